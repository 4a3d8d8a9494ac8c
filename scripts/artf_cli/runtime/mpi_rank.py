"""Runs any program as a rank of an MPI job that has been started already.

An MPI starts its ranks all at once and by a launcher of its own. Tests and benchmarks start servers
one by one, each with pipes of its own. So the launcher starts a seat as each rank (`mpi_rank.py
seat FOLDER`), and anybody starts `mpi_rank.py run FOLDER COMMAND …`: that gives a free seat the
command, its environment and its own three standard streams, and ends as the command ends. The
command ends with it, and with its seat. The real process is named in FOLDER, see pid_of().
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

#: What a launcher tells its ranks; a program keeps its seat's.
_LAUNCHER = ("OMPI_", "PMIX_", "PMI_", "HYDI_", "HYDRA_", "PALS_", "PRTE_", "MPI_LOCAL")
_MOST_BYTES = 1 << 20
# All ranks of a job start within it, TensorFlow's imports not included.
_SEAT_S = 60.0
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def pid_of(folder: Path, stand_in: int) -> int:
    """The process that runs as a rank for the process `stand_in` (`mpi_rank.py run`)."""
    limit = time.monotonic() + _SEAT_S
    path = folder / f"pid-{stand_in}"
    while not path.exists():
        if time.monotonic() > limit:
            raise TimeoutError(f"no rank of the MPI job in {folder} runs for process {stand_in}")
        time.sleep(_POLL_S)
    return int(path.read_text())


def _seat(folder: Path) -> int:
    """Waits for a command, and runs it as this rank; its exit status, as a shell has it."""
    _die_with_parent()
    signal.signal(signal.SIGUSR1, lambda *_: None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        bound = folder / f"bound-{os.getpid()}"
        listener.bind(str(bound))
        listener.listen(1)
        bound.rename(folder / f"free-{os.getpid()}")
        guest, _ = listener.accept()
    with guest:
        message, streams, _, _ = socket.recv_fds(guest, _MOST_BYTES, 3)
        order = json.loads(message)
        told = {k: v for k, v in order["env"].items() if not k.startswith(_LAUNCHER)}
        child = subprocess.Popen(
            order["command"],
            env={**os.environ, **told},
            cwd=order["cwd"],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            # The launcher may have left the rank a connection.
            close_fds=False,
            preexec_fn=_die_with_parent,
        )
        # Hydra tells the ranks so that another one has died.
        signal.signal(signal.SIGUSR1, lambda number, _: child.send_signal(number))
        for stream in streams:
            os.close(stream)
        guest.send(json.dumps(child.pid).encode())
        ends = os.pidfd_open(child.pid)
        readable, _, _ = select.select([ends, guest], [], [])
        if ends not in readable:
            child.kill()
        status = child.wait()
        if ends in readable:
            guest.send(json.dumps(status).encode())
    # Hydra ends the whole job when a rank dies of a signal, whatever it is told.
    return status if status >= 0 else 128 - status


def _take_seat(folder: Path) -> socket.socket:
    """A connection to a seat that nobody else has."""
    limit = time.monotonic() + _SEAT_S
    while True:
        for path in sorted(folder.glob("free-*")):
            taken = path.with_name(path.name.replace("free", "taken"))
            try:
                path.rename(taken)
            except FileNotFoundError:
                continue  # another one was quicker
            seat = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            seat.connect(str(taken))
            return seat
        if time.monotonic() > limit:
            sys.exit(f"no rank of the MPI job in {folder} is free, {_SEAT_S:g} s long")
        time.sleep(_POLL_S)


def _run(folder: Path, command: list[str]) -> NoReturn:
    with _take_seat(folder) as seat:
        order = {"command": command, "env": dict(os.environ), "cwd": os.getcwd()}
        socket.send_fds(seat, [json.dumps(order).encode()], [0, 1, 2])
        pid = seat.recv(_MOST_BYTES)
        if not pid:
            sys.exit(f"the MPI rank ended before it ran {command[0]}: see its launcher's output")
        written = folder / f"written-{os.getpid()}"
        written.write_bytes(pid)
        written.rename(folder / f"pid-{os.getpid()}")
        status = seat.recv(_MOST_BYTES)
    if not status:
        sys.exit("the MPI job has ended this rank: see its launcher's output")
    ended = int(json.loads(status))
    if ended < 0:
        if -ended != signal.SIGKILL:
            signal.signal(-ended, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    sys.exit(ended)


def main() -> None:
    """`seat FOLDER`, or `run FOLDER COMMAND [ARGUMENT …]`."""
    mode, folder, *command = sys.argv[1:]
    if mode == "seat":
        # An interpreter that ends gives up its handlers first, and Hydra may send its signal then.
        os._exit(_seat(Path(folder)))
    _run(Path(folder), command)


if __name__ == "__main__":
    main()
