"""A coordinator: ParameterServerStrategy over running servers; prints what its test asserts."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

from common.counters import own_counters

STEPS = 40
BIG = (1025, 257)


def custom_loop(strategy: Any) -> dict[str, Any]:
    """Scheduled functions read and update variables on the ps; all sums are exact."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        big = tf.Variable(tf.zeros(BIG, tf.float64))
        total = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def step(number: Any) -> Any:
        before = tf.reduce_max(big)
        big.assign_add(tf.fill(BIG, tf.cast(number, tf.float64)))
        total.assign_add(number)
        return number * 2, before

    numbers = range(1, STEPS + 1)
    results = [coordinator.schedule(step, (tf.constant(n, tf.int64),)) for n in numbers]
    coordinator.join()
    return {
        "devices": sorted({variable.device for variable in (big, total)}),
        "results": [int(each.fetch()[0]) for each in results],
        "total": int(total.numpy()),
        "big": sorted(set(big.numpy().ravel().tolist())),
    }


def keras_fit(strategy: Any) -> dict[str, Any]:
    data = np.random.default_rng(1).random((64, 8), np.float32)
    labels = data @ np.arange(8, dtype=np.float32)[:, None]
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(64), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.legacy.SGD(0.01), "mse")
    dataset = tf.data.Dataset.from_tensor_slices((data, labels)).repeat().batch(16)
    history = model.fit(dataset, epochs=3, steps_per_epoch=10, verbose=0)
    return {
        "loss": history.history["loss"],
        "devices": sorted({weight.device for weight in model.weights}),
    }


def main() -> None:
    settings = json.loads(sys.argv[1])
    if settings["via"] == "TF_CONFIG":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    else:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(settings["cluster"]),
            task_type="chief",
            task_id=0,
            rpc_layer=settings["protocol"],
        )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    result = {"rpc_layer": resolver.rpc_layer, "loop": custom_loop(strategy)}
    if settings.get("fit", True):
        result["fit"] = keras_fit(strategy)
    result["counters"] = own_counters()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
