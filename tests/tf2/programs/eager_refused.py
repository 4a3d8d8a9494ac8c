"""An eager context whose server cannot start; prints the error that it gets."""

from __future__ import annotations

import json
import sys

import tensorflow as tf


def main() -> None:
    settings = json.loads(sys.argv[1])
    spec = tf.train.ClusterSpec(settings["cluster"])
    said = {"error": "", "text": ""}
    try:
        tf.config.experimental_connect_to_cluster(
            spec, job_name="worker", protocol=settings["protocol"]
        )
        tf.constant(1) + 1
    except tf.errors.OpError as error:
        said = {"error": type(error).__name__, "text": error.message}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
