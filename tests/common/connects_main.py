"""An eager client that connects to a host by its address, and brings a tensor from there."""

from __future__ import annotations

import json
import sys
from typing import Any

import tensorflow as tf

from common.counters import own_counters

_WORDS = 2**19


def main() -> None:
    settings = json.loads(sys.argv[1])
    said: dict[str, Any]
    try:
        tf.config.experimental_connect_to_host(settings["host"])
        with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
            there = tf.range(_WORDS) * 3
        with tf.device("/job:localhost/replica:0/task:0/device:CPU:0"):
            here = tf.identity(there)
        wrong = tf.math.count_nonzero(here != tf.range(_WORDS) * 3)
        said = {"wrong": int(wrong), **own_counters()}
    except tf.errors.OpError as error:
        said = {"error": type(error).__name__, "text": error.message}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
