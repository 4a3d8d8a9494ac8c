"""Runs a command that dies when its starter dies: `leash.py STARTER_PID COMMAND [ARGUMENT …]`.

The supervisor starts every child through this, because a preexec_fn is unsafe in a process with
threads. The death signal survives the execv that follows.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_AUTOGROUP_TRIES = 100


def _stay_nice() -> None:
    """Gives this process's session its niceness, which counts within a session alone (sched(7))."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    if not nice or not os.path.exists("/proc/self/autogroup"):
        return
    for _ in range(_AUTOGROUP_TRIES):
        try:
            with open("/proc/self/autogroup", "w") as group:
                group.write(str(nice))
            return
        except BlockingIOError:
            # Who is not root may do so ten times a second, all processes together.
            time.sleep(0.05)
        except OSError:
            return


def main() -> None:
    """Ties this process to its parent and becomes the command; exits 127 when it cannot."""
    starter = int(sys.argv[1])
    command = sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != starter:
        # The starter died before prctl: nobody will ever signal us.
        sys.exit("the process that started this one is gone")
    _stay_nice()
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
