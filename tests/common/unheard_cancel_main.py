"""A broadcast whose time is up before its receive can be told so; its memory is given away then.

Task 0 receives. It says where the bytes were to go, where the tensor lies that was made when its
step had ended, and how many of that tensor's values the broadcast wrote after all. Task 1 sends,
and has more time: its bytes are there when the receive asks for them.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from common.strategies import broadcast_ends

LONG = 30.0


def main() -> None:
    settings = json.loads(sys.argv[1])
    size, held = settings["size"], settings["held"]
    broadcast = broadcast_ends(settings, 7.0)

    def memory_of_a_new_tensor() -> Any:
        """The tensor is as long as what was freed."""
        with context.eager_mode():
            tensor = tf.raw_ops.Empty(shape=[size], dtype=tf.float32, init=False)
        return tensor._numpy()

    if settings["index"] == 1:
        broadcast(1, LONG)
        with suppress(tf.errors.OpError):
            broadcast(2, LONG)
        return
    held_receives = ctypes.CDLL(settings["held by"])
    held_receives.held_destination.restype = ctypes.c_void_p
    memory_of_a_new_tensor()  # what that takes the first time must not be in between below
    broadcast(1, LONG)
    held_receives.hold_receives(int(1000 * held))
    ended = "in time"
    begin = time.monotonic()
    try:
        broadcast(2, settings["limit"])
    except tf.errors.DeadlineExceededError as error:
        ended = error.message
    seconds = time.monotonic() - begin
    values = memory_of_a_new_tensor()
    values[:] = 0
    time.sleep(held + settings["after"])
    said = {
        "ended": ended,
        "seconds": seconds,
        "meant for": held_receives.held_destination(),
        "lies at": values.ctypes.data,
        "late": int(np.count_nonzero(values)),
    }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
