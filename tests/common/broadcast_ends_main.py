"""Runs this task's ends of some broadcasts; prints of each the least and the greatest value.

Traced, it prints as well how many bytes each RecvBuf call brought, as TensorFlow's trace says. The
sender ends when the file `until` is there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import tensorflow as tf

from common.strategies import broadcast_ends
from common.traced import bytes_received


def main() -> None:
    settings = json.loads(sys.argv[1])
    end = broadcast_ends(settings, 7.0)
    said: list[list[float]] = []
    for number in range(1, settings["steps"] + 1):
        traced = tf.compat.v1.RunMetadata() if settings.get("traced") else None
        values = end(number, 60.0, traced)
        said.append([*values, *(bytes_received(traced, "RecvBuf") if traced else [])])
    print(json.dumps(said), flush=True)
    limit = time.monotonic() + 60
    while settings["index"] == 1 and not Path(settings["until"]).exists():
        assert time.monotonic() < limit, "the receiver does not end"
        time.sleep(0.05)


if __name__ == "__main__":
    main()
