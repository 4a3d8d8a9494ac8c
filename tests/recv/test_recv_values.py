"""Every kind of tensor crosses between two processes and arrives bit for bit.

Each case builds one graph, runs it locally and over the cluster, and compares raw bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, types_pb2

from common.processes import Cluster
from common.sessions import OPERATION_SECONDS, On, assert_same, check, run, task_device

pytestmark = pytest.mark.timeout(120)

PS, WORKER = "ps:0", "worker:0"
DIRECTIONS = [
    pytest.param((PS, WORKER), id="ps-to-worker"),
    pytest.param((WORKER, PS), id="worker-to-ps"),
]
KIB, MIB = 2**10, 2**20

# Every type this TensorFlow has (int4 and more float8 join by themselves where it knows them).
# Strings, resource handles and variants have tests of their own below.
NUMERIC = [
    tf.dtypes.as_dtype(number)
    for name, number in types_pb2.DataType.items()
    if not name.endswith("_REF")
    and name not in ("DT_INVALID", "DT_STRING", "DT_RESOURCE", "DT_VARIANT")
]
SHAPES = [(), (0,), (1,), (3,), (2, 0, 3), (0, 4), (1, 1, 1), (3, 5, 7), (1023,), (65537,)]


def random_array(dtype: Any, shape: tuple[int, ...], seed: int) -> Any:
    """All bit patterns of the type, NaN payloads included (a bool and an int4 have fewer)."""
    kind, count = np.dtype(dtype.as_numpy_dtype), int(np.prod(shape))
    random = np.random.default_rng(seed)
    if dtype == tf.bool or "int4" in dtype.name:
        return random.integers(0, 2, count).astype(kind).reshape(shape)
    return np.frombuffer(random.bytes(count * kind.itemsize), kind).reshape(shape)


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("dtype", NUMERIC, ids=lambda dtype: dtype.name)
def test_dtype(cluster: Cluster, dtype: Any, way: tuple[str, str]) -> None:
    """Scalars, empty tensors and odd shapes of every numeric type."""

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        fetches, feeds = {}, {}
        for seed, shape in enumerate(SHAPES):
            with on(way[0]):
                fed = tf.compat.v1.placeholder(dtype, shape)
                sent = tf.identity(fed)
            with on(way[1]):
                fetches[str(shape)] = tf.identity(sent)
            feeds[fed] = random_array(dtype, shape, seed)
        return fetches, feeds

    check(cluster, build, [way], tensors=len(SHAPES))


STRINGS = {
    "scalar": b"one",
    "empty string": b"",
    "no strings": np.zeros([0], object),
    "no strings of rank 3": np.zeros([2, 0, 3], object),
    "embedded NULs": [b"\0", b"a\0b", b"\0" * 65, b"tail\0"],
    "not UTF-8": [bytes(range(256)), b"\xff\xfe\x80"],
    "matrix": [[b"a", b"bb"], [b"", b"dddd" * 99]],
    "around the inline limit": [b"x" * size for size in range(20, 27)],
    "100000 small ones": [b"%d" % i for i in range(100000)],
    "1 MiB each": [bytes([i]) * (MIB + i) for i in range(4)],
    "one of 16 MiB + 1": b"0123456789abcdef" * MIB + b"!",
}


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("name", STRINGS)
def test_string(cluster: Cluster, name: str, way: tuple[str, str]) -> None:
    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        with on(way[0]):
            fed = tf.compat.v1.placeholder(tf.string)
            sent = tf.identity(fed)
        with on(way[1]):
            return {name: tf.identity(sent)}, {fed: STRINGS[name]}

    check(cluster, build, [way])


def random_bytes(seed: Any, size: int) -> Any:
    """`size` bytes made on the device in scope, the same ones everywhere for a seed."""
    words = tf.random.stateless_uniform([-(-size // 4)], seed, None, None, tf.int32)
    return tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]


SIZES = [1, 3, 4, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537]
SIZES += [MIB - 1, MIB, MIB + 1, 16 * MIB - 1, 16 * MIB, 16 * MIB + 1]


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_size(cluster: Cluster, size: int, way: tuple[str, str]) -> None:
    """Three steps of the same graph: a buffer that is used again must not show old bytes."""

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        with on(way[0]):
            counter = tf.compat.v1.get_variable("step", [], tf.int32, tf.zeros_initializer())
            step = tf.compat.v1.assign_add(counter, 1)
            sent = random_bytes(tf.stack([step, size]), size)
        with on(way[1]):
            return {f"{size} B": tf.identity(sent)}, {}

    check(cluster, build, [way], steps=3)


@pytest.mark.parametrize(
    ("size", "way"),
    [
        pytest.param(64 * MIB, (PS, WORKER), id="64MiB-ps-to-worker"),
        pytest.param(64 * MIB, (WORKER, PS), id="64MiB-worker-to-ps"),
        pytest.param(512 * MIB, (PS, WORKER), id="512MiB-ps-to-worker"),
    ],
)
def test_large(cluster: Cluster, size: int, way: tuple[str, str]) -> None:
    """The receiver makes the same bytes itself and compares them there, to save memory."""
    with tf.Graph().as_default():
        seed = tf.compat.v1.placeholder(tf.int32, [2])
        with tf.device(task_device(way[0])):
            sent = tf.random.stateless_uniform([size // 8], seed, None, None, tf.int64)
        with tf.device(task_device(way[1])):
            got = tf.identity(sent)
            with tf.control_dependencies([got]):
                expected = tf.random.stateless_uniform([size // 8], seed, None, None, tf.int64)
            wrong = tf.math.count_nonzero(tf.not_equal(got, expected))
            fetches = {"wrong words": wrong, "words": tf.size(got), "ends": got[:: size // 8 - 1]}

        def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
            del on
            return fetches, {seed: [size // MIB, 7]}

        values, crossed = run(build, cluster.target(), graph=tf.compat.v1.get_default_graph())
    assert crossed[way] >= 1
    assert (values["wrong words"], values["words"]) == (0, size // 8)
    assert values["ends"].all()


OFFSETS = [0, 1, 3, 4, 60, 63, 64, 65, 4032, 4095, 4096, 4097]
LENGTHS = [1, 63, 64, 1024, 65537]


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("width", [1, 3, 64, 100], ids=lambda width: f"rows-of-{width}")
def test_slice(cluster: Cluster, width: int, way: tuple[str, str]) -> None:
    """Slices of a larger buffer: misaligned ones, and aligned ones that share its memory."""
    rows = max(OFFSETS) + max(LENGTHS)

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        fetches = {}
        with on(way[0]):
            offsets = tf.compat.v1.placeholder(tf.int32, [len(OFFSETS)])
            whole = tf.reshape(random_bytes([5, width], rows * width), [rows, width])
        for i, offset in enumerate(OFFSETS):
            for length in LENGTHS:
                with on(way[0]):
                    sent = whole[offsets[i] : offsets[i] + length]
                with on(way[1]):
                    fetches[f"[{offset}:{offset + length}]"] = tf.identity(sent)
        return fetches, {offsets: OFFSETS}

    check(cluster, build, [way], tensors=len(OFFSETS) * len(LENGTHS))


def float_list(fed: Any) -> Any:
    return tf.raw_ops.TensorListFromTensor(tensor=fed, element_shape=[-1])


SCALAR = np.zeros([0], np.int32)


def nested_list(fed: Any) -> Any:
    lists = tf.raw_ops.TensorListReserve(
        element_shape=SCALAR, num_elements=2, element_dtype=tf.variant
    )
    for index in range(2):
        lists = tf.raw_ops.TensorListSetItem(input_handle=lists, index=index, item=float_list(fed))
    return lists


def stack(received: Any, dtype: Any = tf.float32) -> Any:
    return tf.raw_ops.TensorListStack(
        input_handle=received, element_shape=[-1], element_dtype=dtype
    )


def first_of_nested(received: Any) -> Any:
    inner = tf.raw_ops.TensorListGetItem(
        input_handle=received, index=1, element_shape=SCALAR, element_dtype=tf.variant
    )
    return stack(inner)


def ragged(fed: Any) -> Any:
    return tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[tf.constant([0, 1, 1, 3], tf.int64)],
        rt_dense_values=fed,
        batched_input=True,
    )


def from_ragged(received: Any) -> Any:
    return tf.raw_ops.RaggedTensorFromVariant(
        encoded_ragged=received,
        input_ragged_rank=0,
        output_ragged_rank=1,
        Tvalues=tf.float32,
        Tsplits=tf.int64,
    ).output_dense_values


def optional(fed: Any) -> Any:
    return tf.raw_ops.OptionalFromValue(components=[fed])


def from_optional(received: Any) -> Any:
    return tf.raw_ops.OptionalGetValue(
        optional=received, output_types=[tf.float32], output_shapes=[[3, 5]]
    )[0]


# How a list of floats becomes a variant, and a tensor again; what is fed.
VARIANTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "list of floats": (float_list, stack, np.float32),
    "list of strings": (float_list, lambda got: stack(got, tf.string), object),
    "list of lists": (nested_list, first_of_nested, np.float32),
    "vector of ragged": (ragged, from_ragged, np.float32),
    "optional": (optional, from_optional, np.float32),
}


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("name", VARIANTS)
def test_variant(cluster: Cluster, name: str, way: tuple[str, str]) -> None:
    pack, unpack, kind = VARIANTS[name]
    data = np.arange(15).reshape(3, 5).astype(kind)

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        with on(way[0]):
            fed = tf.compat.v1.placeholder(tf.string if kind is object else tf.float32, [3, 5])
            sent = pack(fed)
        with on(way[1]):
            return {name: unpack(tf.identity(sent))}, {fed: data.astype(bytes).astype(kind)}

    check(cluster, build, [way])


def test_variant_without_decoder(cluster: Cluster) -> None:
    """A variant that stock TensorFlow cannot decode (a dataset) is an error, not a crash."""

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        zero = tf.constant(0, tf.int64)
        with on(PS):
            stop = tf.compat.v1.placeholder(tf.int64, [])
            sent = tf.raw_ops.RangeDataset(
                start=zero, stop=stop, step=zero + 1, output_types=[tf.int64], output_shapes=[[]]
            )
        with on(WORKER):
            size = tf.raw_ops.DatasetCardinality(input_dataset=tf.identity(sent))
        return {"size": size}, {stop: 5}

    with pytest.raises(tf.errors.OpError, match=r"decode|parse"):
        run(build, cluster.target(), seconds=OPERATION_SECONDS)
    test_resource_handle(cluster)


def explicit_hop(on: On, value: Any, source: str, sink: str) -> tuple[Any, Any]:
    """A _Send and a _Recv by name: the placer itself never lets a resource edge cross tasks."""
    graph = tf.compat.v1.get_default_graph()
    ends = {"send_device": task_device(source), "recv_device": task_device(sink)}
    attrs = {key: attr_value_pb2.AttrValue(s=end.encode()) for key, end in ends.items()}
    attrs["tensor_name"] = attr_value_pb2.AttrValue(s=f"{value.op.name} to {sink}".encode())
    attrs["send_device_incarnation"] = attr_value_pb2.AttrValue(i=0)
    attrs["client_terminated"] = attr_value_pb2.AttrValue(b=False)
    kind = attr_value_pb2.AttrValue(type=value.dtype.as_datatype_enum)
    with on(source):
        send = graph.create_op("_Send", [value], [], attrs={"T": kind, **attrs}, name="send")
    with on(sink):
        attrs["tensor_type"] = kind
        receive = graph.create_op("_Recv", [], [value.dtype], attrs=attrs, name="receive")
    return send, receive.outputs[0]


def test_resource_handle(cluster: Cluster) -> None:
    """A handle goes ps -> worker -> ps, and still names its variable."""

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        with on(PS):
            variable = tf.compat.v1.get_variable(
                "v", [1025], initializer=tf.random_uniform_initializer(seed=3), use_resource=True
            )
        there, handle = explicit_hop(on, variable.handle, PS, WORKER)
        back, handle = explicit_hop(on, handle, WORKER, PS)
        with on(PS), tf.control_dependencies([there, back]):
            through = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            direct = variable.read_value()
        return {"same": tf.reduce_all(tf.equal(through, direct)), "size": tf.size(through)}, {}

    values, crossed = run(build, cluster.target())
    assert_same(values, {"same": np.bool_(True), "size": np.int32(1025)})
    assert crossed[PS, WORKER] >= 1 and crossed[WORKER, PS] >= 1
