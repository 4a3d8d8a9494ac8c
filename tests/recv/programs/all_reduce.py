"""One worker of MultiWorkerMirroredStrategy that sums a large tensor over the ring.

Prints how many values were wrong in each round, and the counters of this process.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import tensorflow as tf
from tensorflow.python import ar_grpc

from common.counters import own_counters
from common.strategies import ring_strategy, worker_resolver


def main() -> None:
    settings = json.loads(sys.argv[1])
    strategy = ring_strategy(worker_resolver(settings))
    rank, workers = settings["index"], strategy.num_replicas_in_sync

    @tf.function
    def all_reduce(value: Any) -> Any:
        value = tf.identity(value)  # an argument has no device, which all_reduce wants
        return tf.distribute.get_replica_context().all_reduce("sum", value)

    def values(factor: int, round_: int) -> Any:
        return tf.cast((tf.range(settings["size"]) % 1013 + round_) * factor, tf.float32)

    # Rounds differ, so that a buffer that is used again must not show old bytes.
    wrong = []
    for round_ in range(settings["rounds"]):
        summed = strategy.run(all_reduce, (values(rank + 1, round_),))
        wanted = values(workers * (workers + 1) // 2, round_)
        wrong.append(int(tf.math.count_nonzero(tf.not_equal(summed, wanted))))
    deadline = time.monotonic() + 5
    while ar_grpc.status()["offers_open"] and time.monotonic() < deadline:
        time.sleep(0.02)
    said = {"wrong": wrong, **own_counters()}
    # None leaves, and closes its connections, before the others have counted them.
    strategy.run(all_reduce, (tf.constant([0.0]),))
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
