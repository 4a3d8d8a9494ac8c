"""Eager remote operations: connects to running servers and checks copies and functions.

Prints {case: None or what is wrong}.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Callable

import numpy as np
import tensorflow as tf

PS, W0, W1 = "/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"
KINDS = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64"
KINDS += " complex64 complex128 float8_e5m2 float8_e4m3fn"
SIZES = [0, 1, 63, 65, 1025, 65537, 2**20 + 1, 16 * 2**20]


def made(kind: str, size: int) -> Any:
    kind_np = np.dtype(tf.dtypes.as_dtype(kind).as_numpy_dtype)
    random = np.random.default_rng(size)
    if kind == "bool":
        return random.integers(0, 2, size).astype(bool)
    return np.frombuffer(random.bytes(size * kind_np.itemsize), kind_np)


def on(device: str, value: Any) -> Any:
    with tf.device(device):
        copy = tf.identity(value)
    assert device.split("/")[1] in copy.device, copy.device
    return copy


def same(got: Any, expected: Any) -> str | None:
    got = got.numpy()
    equal = got.dtype == expected.dtype and got.tobytes() == expected.tobytes()
    return None if equal else f"{got!r} instead of {expected!r}"


def copies(path: list[str], array: Any) -> str | None:
    """There along the path, and back."""
    value = tf.constant(array)
    for device in path:
        value = on(device, value)
    return same(on("/job:client/task:0", value), array)


def function_on_remote_device() -> str | None:
    @tf.function
    def cube(x: Any) -> Any:
        return x * x * x

    array = np.arange(65537, dtype=np.float32)
    with tf.device(W0):
        got = cube(tf.constant(array))
    assert "worker" in got.device, got.device
    return same(got, array * array * array)


def function_over_three_devices() -> str | None:
    @tf.function
    def chain(x: Any) -> Any:
        for device in (PS, W0, W1, PS):
            with tf.device(device):
                x = x * 3 + 1
        return x

    array = np.arange(65537, dtype=np.int64)
    return same(chain(tf.constant(array)), (((array * 3 + 1) * 3 + 1) * 3 + 1) * 3 + 1)


def variable_on_ps() -> str | None:
    with tf.device(PS):
        variable = tf.Variable(tf.zeros([1025]))

    @tf.function
    def add(x: Any) -> Any:
        variable.assign_add(x)
        return variable.read_value()

    for _ in range(10):
        with tf.device(W1):
            last = add(tf.ones([1025]))
    return same(last, np.full([1025], 10, np.float32)) or same(
        variable.read_value(), np.full([1025], 10, np.float32)
    )


def strings() -> str | None:
    values = [b"", b"a\0b", b"\xff" * 70000, b"tail"]
    got = on("/job:client/task:0", on(W1, on(W0, tf.constant(values)))).numpy().tolist()
    return None if got == values else f"lengths {[len(each) for each in got]}"


def variants() -> str | None:
    array = np.arange(30, dtype=np.float32).reshape(3, 10)
    with tf.device(W0):
        handle = tf.raw_ops.TensorListFromTensor(tensor=array, element_shape=[10])
    with tf.device(W1):
        got = tf.raw_ops.TensorListStack(
            input_handle=tf.identity(handle), element_shape=[10], element_dtype=tf.float32
        )
    return same(got, array)


def remote_error_then_work() -> str | None:
    try:
        with tf.device(W0):
            tf.linalg.inv(tf.zeros([3, 3])).numpy()
        return "a singular matrix was inverted"
    except tf.errors.InvalidArgumentError:
        # TensorFlow keeps a remote error until it is cleared: the next operation may get it, too.
        tf.experimental.async_clear_error()
        return copies([W0, PS], np.arange(1025))


def main() -> None:
    settings = json.loads(sys.argv[1])
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(settings["cluster"]),
        job_name="client",
        protocol=settings["protocol"],
    )
    cases: dict[str, Callable[[], str | None]] = {
        case.__name__: case
        for case in (
            function_on_remote_device,
            function_over_three_devices,
            variable_on_ps,
            strings,
            variants,
            remote_error_then_work,
        )
    }
    result = {name: case() for name, case in cases.items()}
    for kind in KINDS.split():
        result[f"{kind} there and back"] = copies([W0], made(kind, 1025))
    for size in SIZES:
        result[f"{size} B there and back"] = copies([PS], made("uint8", size))
        result[f"{size} B by worker 0 and worker 1"] = copies([W0, W1], made("uint8", size))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
