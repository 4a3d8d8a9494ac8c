"""One worker of MultiWorkerMirroredStrategy; without a cluster, the same training in one process.

Prints the reduced values and the trained weights, which its test compares, and the counters of this
process.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

from common.counters import own_counters
from common.strategies import ring_strategy, worker_resolver


def reduced(strategy: Any) -> dict[str, Any]:
    """Sums, means and gathers of values that differ by worker, small and large."""
    rank = strategy.cluster_resolver.task_id
    sizes = [1, 3, 1025, 2**20 + 1]
    kinds = [tf.float32, tf.float64, tf.int32, tf.int64, tf.float16]
    result: dict[str, Any] = {}

    @tf.function
    def in_replica(value: Any) -> Any:
        context = tf.distribute.get_replica_context()
        value = tf.identity(value)  # an argument has no device, which all_reduce wants
        return context.all_reduce("sum", value), context.all_gather(value[:2], axis=0)

    for kind in kinds:
        for size in sizes:
            value = tf.cast(tf.range(size) % 50 + 100 * rank, kind)
            summed, gathered = strategy.run(in_replica, (value,))
            wanted = tf.cast(tf.range(size) % 50 * 2 + 100, kind)
            wrong = int(tf.math.count_nonzero(tf.not_equal(summed, wanted)))
            result[f"{kind.name} x {size}"] = [wrong, gathered.numpy().astype(int).tolist()]
    per_replica = strategy.run(lambda: tf.constant([1.0 + rank, 10.0]))
    result["reduce sum"] = strategy.reduce("SUM", per_replica, axis=None).numpy().tolist()
    result["reduce mean"] = strategy.reduce("MEAN", per_replica, axis=None).numpy().tolist()
    with strategy.scope():
        result["broadcast"] = tf.Variable(float(rank) + 7.0).numpy().item()
    return result


def keras_fit(strategy: Any) -> dict[str, Any]:
    data = np.random.default_rng(2).random((128, 8), np.float32)
    labels = data @ np.arange(8, dtype=np.float32)[:, None]
    dataset = tf.data.Dataset.from_tensor_slices((data, labels)).batch(32)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    with strategy.scope():
        ones = tf.keras.initializers.Constant(0.01)
        layers = [
            tf.keras.layers.Dense(512, kernel_initializer=ones),
            tf.keras.layers.Dense(1, kernel_initializer=ones),
        ]
        model = tf.keras.Sequential(layers)
        model.compile(tf.keras.optimizers.legacy.SGD(0.001), "mse")
    history = model.fit(dataset.with_options(options), epochs=3, verbose=0)
    flat = np.concatenate([weight.ravel() for weight in model.get_weights()])
    return {"loss": history.history["loss"], "weights": flat[::100].tolist()}


def main() -> None:
    settings = json.loads(sys.argv[1])
    if settings.get("via") == "local":
        print(json.dumps({"fit": keras_fit(tf.distribute.get_strategy())}))
        return
    if settings["via"] == "TF_CONFIG":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    else:
        resolver = worker_resolver(settings)
    strategy = ring_strategy(resolver)
    result = {
        "rpc_layer": resolver.rpc_layer,
        "replicas": strategy.num_replicas_in_sync,
        "reduced": reduced(strategy),
        "fit": keras_fit(strategy),
        "counters": own_counters(),
    }
    # None leaves, and closes its connections, before the others have counted them.
    strategy.reduce("SUM", strategy.run(lambda: tf.constant(0.0)), axis=None)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
