"""Graphs in which tensors of every kind go one way between two tasks, for the suites that use them.

What takes `on` and `way` = (sender, receiver) is, once the way is given, a Build for `check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, types_pb2

from common.sessions import On, task_device

Way = tuple[str, str]
#: Named fetches, and what to feed.
Built = tuple[dict[str, Any], dict[Any, Any]]

MIB = 2**20


def fed_on(on: On, task: str, dtype: Any, shape: Any = None) -> tuple[Any, Any]:
    """A placeholder and the tensor that its task makes of it."""
    with on(task):
        fed = tf.compat.v1.placeholder(dtype, shape)
        return fed, tf.identity(fed)


# --- arrays ---------------------------------------------------------------------------------------

#: Every type this TensorFlow has (int4 and more float8 join by themselves where it knows them).
#: Strings, resource handles and variants have graphs of their own below.
NUMERIC = [
    tf.dtypes.as_dtype(number)
    for name, number in types_pb2.DataType.items()
    if not name.endswith("_REF")
    and name not in ("DT_INVALID", "DT_STRING", "DT_RESOURCE", "DT_VARIANT")
]


def random_array(dtype: Any, shape: tuple[int, ...], seed: int) -> Any:
    """All bit patterns of the type, NaN payloads included (a bool and an int4 have fewer)."""
    kind, count = np.dtype(dtype.as_numpy_dtype), int(np.prod(shape))
    random = np.random.default_rng(seed)
    if dtype == tf.bool or "int4" in dtype.name:
        return random.integers(0, 2, count).astype(kind).reshape(shape)
    return np.frombuffer(random.bytes(count * kind.itemsize), kind).reshape(shape)


def arrays(on: On, way: Way, dtypes: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Built:
    """An array of random bits for each type and shape."""
    fetches, feeds = {}, {}
    for dtype in dtypes:
        for seed, shape in enumerate(shapes):
            fed, sent = fed_on(on, way[0], dtype, shape)
            with on(way[1]):
                fetches[f"{dtype.name} {shape}"] = tf.identity(sent)
            feeds[fed] = random_array(dtype, shape, seed)
    return fetches, feeds


def random_bytes(seed: Any, size: int) -> Any:
    """`size` bytes made on the device in scope, the same ones everywhere for a seed."""
    words = tf.random.stateless_uniform([-(-size // 4)], seed, None, None, tf.int32)
    return tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]


def huge_transfer(source: str, sink: str, size: int, blocks: int = 1024) -> list[Any]:
    """Small samples of `size` bytes that go from source to sink: the sender's, then the receiver's.

    `size` is 8 bytes more than a multiple of 8 * `blocks`.
    """
    with tf.device(task_device(source)):
        sent = tf.random.stateless_uniform([size // 8], [3, 4], None, None, tf.int64)
    samples = []
    for end in (source, sink):
        with tf.device(task_device(end)):
            here = sent if end == source else tf.identity(sent)
            sums = tf.reduce_sum(tf.reshape(here[:-1], [blocks, -1]), 1)
            samples.append(tf.concat([sums, here[:: 2**20 + 1], here[-9:]], 0))
    return samples


#: Gives a server XLA's device of the host's cores. It stands for devices that are no CPUs:
#: TensorFlow has no accelerator's facts about it, and only it knows its memory.
XLA = {"TF_XLA_FLAGS": "--tf_xla_enable_xla_devices=true"}


def between_devices(source: str, sink: str, size: int) -> list[Any]:
    """`size` float32 values from a device of one task to one of another: what they are, and their
    least and greatest where they came."""
    with tf.device(source):
        value = tf.random.uniform([], seed=1)
        sent = tf.fill([size], value)
    with tf.device(sink):
        return [value, tf.reduce_min(sent), tf.reduce_max(sent)]


OFFSETS = [0, 1, 3, 4, 60, 63, 64, 65, 4032, 4095, 4096, 4097]
LENGTHS = [1, 63, 64, 1024, 65537]


def slices(on: On, way: Way, width: int) -> Built:
    """Slices of a larger buffer: misaligned ones, and aligned ones that share its memory."""
    rows = max(OFFSETS) + max(LENGTHS)
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


# --- strings --------------------------------------------------------------------------------------

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


def strings(on: On, way: Way, names: Sequence[str]) -> Built:
    """Those of STRINGS that are named, each a tensor of its own."""
    fetches, feeds = {}, {}
    for name in names:
        fed, sent = fed_on(on, way[0], tf.string)
        with on(way[1]):
            fetches[name] = tf.identity(sent)
        feeds[fed] = STRINGS[name]
    return fetches, feeds


# --- variants -------------------------------------------------------------------------------------


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


#: What packs an array of 3 x 5 into a variant, what unpacks it, and the array's type.
VARIANTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "list of floats": (float_list, stack, np.float32),
    "list of strings": (float_list, lambda got: stack(got, tf.string), object),
    "list of lists": (nested_list, first_of_nested, np.float32),
    "vector of ragged": (ragged, from_ragged, np.float32),
    "optional": (optional, from_optional, np.float32),
}


def variants(on: On, way: Way, names: Sequence[str]) -> Built:
    """Those of VARIANTS that are named, packed by the sender and unpacked by the receiver."""
    fetches, feeds = {}, {}
    for name in names:
        pack, unpack, kind = VARIANTS[name]
        with on(way[0]):
            fed = tf.compat.v1.placeholder(tf.string if kind is object else tf.float32, [3, 5])
            sent = pack(fed)
        with on(way[1]):
            fetches[name] = unpack(tf.identity(sent))
        feeds[fed] = np.arange(15).reshape(3, 5).astype(kind).astype(bytes).astype(kind)
    return fetches, feeds


# --- sends and receives by name -------------------------------------------------------------------


def explicit_hop(
    on: On,
    value: Any,
    source: str,
    sink: str,
    send_after: Sequence[Any] = (),
    receive_after: Sequence[Any] = (),
) -> tuple[Any, Any]:
    """A _Send and a _Recv by name, which may wait for other operations of their own task.

    The placer itself never lets a resource edge cross tasks, nor makes a _Recv wait.
    """
    graph = tf.compat.v1.get_default_graph()
    ends = {"send_device": task_device(source), "recv_device": task_device(sink)}
    attrs = {key: attr_value_pb2.AttrValue(s=end.encode()) for key, end in ends.items()}
    attrs["tensor_name"] = attr_value_pb2.AttrValue(s=f"{value.op.name} to {sink}".encode())
    attrs["send_device_incarnation"] = attr_value_pb2.AttrValue(i=0)
    attrs["client_terminated"] = attr_value_pb2.AttrValue(b=False)
    kind = attr_value_pb2.AttrValue(type=value.dtype.as_datatype_enum)
    with on(source), tf.control_dependencies(send_after):
        send = graph.create_op("_Send", [value], [], attrs={"T": kind, **attrs}, name="send")
    with on(sink), tf.control_dependencies(receive_after):
        attrs["tensor_type"] = kind
        receive = graph.create_op("_Recv", [], [value.dtype], attrs=attrs, name="receive")
    return send, receive.outputs[0]


def resource_handle(on: On, there: str, back: str) -> Built:
    """A handle goes to another task and back, and still names its variable."""
    with on(there):
        variable = tf.compat.v1.get_variable(
            "v", [1025], initializer=tf.random_uniform_initializer(seed=3), use_resource=True
        )
    sent, handle = explicit_hop(on, variable.handle, there, back)
    returned, handle = explicit_hop(on, handle, back, there)
    with on(there), tf.control_dependencies([sent, returned]):
        through = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        direct = variable.read_value()
    return {"same": tf.reduce_all(tf.equal(through, direct)), "size": tf.size(through)}, {}


# --- dead tensors ---------------------------------------------------------------------------------


def cond_v1(on: On, pred: Any, value: Any, way: Way) -> Any:
    """The untaken branch lies on the source, so what it sends is dead."""

    def branch(factor: float) -> Any:
        with on(way[0]):
            return value * factor

    tf.compat.v1.disable_control_flow_v2()
    try:
        return tf.cond(pred, lambda: branch(2.0), lambda: branch(-3.0))
    finally:
        tf.compat.v1.enable_control_flow_v2()


def cond_v2(on: On, pred: Any, value: Any, way: Way) -> Any:
    def branch(factor: float) -> Any:
        with on(way[0]):
            return value * factor

    return tf.cond(pred, lambda: branch(2.0), lambda: branch(-3.0))


def switch_merge(on: On, pred: Any, value: Any, way: Way) -> Any:
    with on(way[0]):
        dead_if_true, dead_if_false = tf.raw_ops.Switch(data=value, pred=pred)
    with on(way[1]):
        negative, positive = tf.identity(dead_if_true) * -3.0, tf.identity(dead_if_false) * 2.0
        return tf.raw_ops.Merge(inputs=[negative, positive]).output


CONDS = [cond_v1, cond_v2, switch_merge]


def dead(
    on: On, way: Way, conds: Sequence[Callable[..., Any]], sizes: Sequence[int], taken: bool
) -> Built:
    """A choice by each cond between two tensors of so many floats, of which one is dead."""
    fetches, feeds = {}, {}
    pred_fed, pred = fed_on(on, way[1], tf.bool, [])
    for size in sizes:
        fed, value = fed_on(on, way[0], tf.float32, [size])
        for cond in conds:
            chosen = cond(on, pred, value, way)
            with on(way[1]):
                fetches[f"{cond.__name__}, {size} floats, {taken}"] = tf.identity(chosen)
        feeds[fed] = np.arange(size, dtype=np.float32)
    return fetches, {pred_fed: taken, **feeds}
