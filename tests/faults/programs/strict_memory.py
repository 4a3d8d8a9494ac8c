"""A `grpc+ar` server where the kernel may refuse pages that were promised (proc(5)).

Only what this process reads of vm.overcommit_memory says so. Prints which memory a tensor got.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path

_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
_OVERCOMMIT = "/proc/sys/vm/overcommit_memory"


def be_strict(folder: str) -> None:
    """Has a file over the kernel's setting, in a mount namespace of this process. Needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    setting = Path(folder, "overcommit_memory")
    setting.write_text("2\n")
    if (
        libc.unshare(_CLONE_NEWNS)
        or libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
        or libc.mount(str(setting).encode(), _OVERCOMMIT.encode(), None, _MS_BIND, None)
    ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> None:
    # Only now: the library reads the setting, and threads that are there before keep the old one.
    import tensorflow as tf
    from tensorflow.python import ar_grpc

    settings = json.loads(sys.argv[1])
    server = tf.distribute.Server(
        tf.train.ClusterSpec({"worker": [settings["address"]]}), protocol=settings["protocol"]
    )
    tensor = tf.fill([4 * 2**20], tf.constant(7, tf.uint8))
    last = int(tensor[-1])
    print(json.dumps({"arena": ar_grpc.status().get("arena"), "last": last}), flush=True)
    del server


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        be_strict(made)
        main()
