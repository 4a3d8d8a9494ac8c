"""Runs this task's ends of some broadcasts; prints of each the least and the greatest value.

Traced, it prints as well how many bytes each RecvBuf call brought, as TensorFlow's trace says.
"""

from __future__ import annotations

import json
import sys

import tensorflow as tf

from common.strategies import broadcast_ends
from common.traced import bytes_received


def main() -> None:
    settings = json.loads(sys.argv[1])
    end = broadcast_ends(settings, 7.0)
    said: list[list[float]] = []
    for number in range(1, settings["steps"] + 1):
        traced = tf.compat.v1.RunMetadata() if settings.get("traced") else None
        brought = bytes_received(traced, "RecvBuf") if traced else []
        said.append([*end(number, 60.0, traced), *brought])
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
