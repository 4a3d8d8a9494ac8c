"""Starts a server of a protocol; prints the error that it gets."""

from __future__ import annotations

import ctypes
import json
import sys

import tensorflow as tf


def main() -> None:
    settings = json.loads(sys.argv[1])
    if "loads" in settings:
        ctypes.CDLL(settings["loads"])
    said = {"error": "", "text": ""}
    try:
        tf.distribute.Server(
            settings["cluster"], job_name="worker", task_index=0, protocol=settings["protocol"]
        )
    except tf.errors.OpError as error:
        said = {"error": type(error).__name__, "text": error.message}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
