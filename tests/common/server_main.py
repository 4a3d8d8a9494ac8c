"""One TensorFlow server; says READY, then serves until its parent closes the pipe (or dies).

A line on standard input is answered with one of JSON: `status` with what `grpc+ar` counts,
`counters` with the same and this process's TCP connections, `heap` with the bytes that malloc has
given out, `aborted` with the rendezvous that TensorFlow keeps.
Any other line makes serve() return, which ends the interpreter the ordinary way.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: Fields of malloc.h's `struct mallinfo2`, and how many it has.
_HBLKHD, _UORDBLKS, _FIELDS = 4, 7, 10
#: tensorflow::LocalRendezvous::aborted_rendezs_
_ABORTED = "_ZN10tensorflow15LocalRendezvous16aborted_rendezs_E"


class _Mallinfo2(ctypes.Structure):
    _fields_ = [("sizes", ctypes.c_size_t * _FIELDS)]


def heap() -> int | None:
    """Bytes in use of all of malloc's arenas and mappings; None before glibc 2.33.

    What malloc keeps of freed memory goes back first, but for the end of an arena that is not the
    main one, which malloc_trim leaves: that much is no growth of the resident memory.
    """
    libc = ctypes.CDLL(None)
    libc.malloc_trim(0)
    if not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = _Mallinfo2
    sizes = libc.mallinfo2().sizes
    return int(sizes[_UORDBLKS] + sizes[_HBLKHD])


def aborted() -> int:
    """How many rendezvous this process's LocalRendezvous keeps for good, as each was aborted once.

    Its list of them is private, but the wheel's library exports it: a reference to a vector of
    pointers, so what lies there is the address of the vector's begin and end.
    """
    import tensorflow as tf

    library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"))
    vector = ctypes.POINTER(ctypes.c_size_t * 2).in_dll(library, _ABORTED)
    begin, end = vector.contents
    return int(end - begin) // ctypes.sizeof(ctypes.c_void_p)


def serve(settings: Mapping[str, Any]) -> None:
    """Returns where a line has made it."""
    import tensorflow as tf
    from tensorflow.python import ar_grpc

    from common.counters import own_counters

    server = tf.distribute.Server(
        tf.train.ClusterSpec(settings["cluster"]),
        job_name=settings["job"],
        task_index=settings["index"],
        protocol=settings["protocol"],
        config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4),
    )
    print("READY", server.target, flush=True)
    answers: dict[str, Callable[[], Any]] = {
        "status": ar_grpc.status,
        "counters": own_counters,
        "heap": heap,
        "aborted": aborted,
    }
    for line in sys.stdin:
        answer = answers.get(line.strip())
        if answer is None:
            return
        print(json.dumps(answer()), flush=True)
    os._exit(0)


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
