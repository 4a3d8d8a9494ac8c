"""Graphs of sends and receives as plain values: what JSON holds, hypothesis shrinks.

A case is {"master": task, "steps": count, "sources": [...], "nodes": [...]}. Each source and each
node makes one value; a node names the values that it uses by their numbers, modulo how many there
are, so that every list of nodes is a graph, and what is left of one is still one.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels, op_def_registry

from common.sessions import On, config, task_device
from common.traced import bytes_received

Case = dict[str, Any]
Node = dict[str, Any]

TASKS = ("ps:0", "worker:0", "worker:1")
#: What can become of a value: each has a method of Graph.
NODES = ("move", "mix", "after", "cut", "join", "list", "cond", "loop")
#: No value is longer, however often its node is joined with itself.
MOST_ELEMENTS = 2**19
#: A string is no longer, so that what is large is a tensor that can be read where it lies.
_LONGEST_STRING = 40

#: Every type of this TensorFlow that has a value of its own, by name.
DTYPES = sorted(
    tf.dtypes.as_dtype(number).name
    for name, number in types_pb2.DataType.items()
    if not name.endswith("_REF") and name not in ("DT_INVALID", "DT_RESOURCE", "DT_VARIANT")
)


@cache
def _has_kernel(op: str, dtype: Any, attribute: str = "T") -> bool:
    """Whether an operation takes this type on a CPU, by TensorFlow's own registries."""
    number = dtype.as_datatype_enum
    attributes = {each.name: each for each in op_def_registry.get(op).attr}
    allowed = attributes[attribute].allowed_values.list.type
    if allowed and number not in allowed:
        return False
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        limits = [each for each in kernel.constraint if each.name == attribute]
        if kernel.device_type in ("CPU", "DEFAULT") and all(
            number in each.allowed_values.list.type for each in limits
        ):
            return True
    return False


# --- values ---------------------------------------------------------------------------------------


def array(name: str, shape: list[int], seed: int) -> Any:
    """All bit patterns of the type, NaN payloads included (a bool and an int4 have fewer)."""
    dtype, count = tf.dtypes.as_dtype(name), int(np.prod(shape))
    random = np.random.default_rng(seed)
    if dtype == tf.string:
        lengths = random.integers(0, _LONGEST_STRING, count)
        values = np.empty(count, object)
        values[:] = [random.bytes(int(length)) for length in lengths]
        return values.reshape(shape)
    kind = np.dtype(dtype.as_numpy_dtype)
    if dtype == tf.bool or "int4" in name:
        return random.integers(0, 2, count).astype(kind).reshape(shape)
    return np.frombuffer(random.bytes(count * kind.itemsize), kind).reshape(shape)


def _flows(dtype: Any) -> bool:
    """Whether branches and loops take this type."""
    return all(
        _has_kernel(op, dtype) for op in ("Switch", "Merge", "Enter", "Exit", "NextIteration")
    )


def _made(dtype: Any, size: int, seed: Any) -> Any:
    """Random bits made by an operation, so in memory of its device's allocator."""
    if dtype.size < 4:
        words = tf.random.stateless_uniform(
            [-(-size * dtype.size // 4)], seed, None, None, tf.int32
        )
        return tf.reshape(tf.bitcast(words, dtype), [-1])[:size]
    words = tf.random.stateless_uniform([size, dtype.size // 4], seed, None, None, tf.int32)
    return tf.bitcast(words[:, 0] if dtype.size == 4 else words, dtype)


def can_be_made(name: str) -> bool:
    """Whether a task can make random bits of this type by itself."""
    dtype = tf.dtypes.as_dtype(name)
    return dtype != tf.bool and all(
        _has_kernel("Bitcast", dtype, each) for each in ("T", "type")
    ) and _has_kernel("StridedSlice", dtype)  # fmt: skip


def can_be_kept(name: str) -> bool:
    """Whether a variable can hold them, too."""
    return can_be_made(name) and _has_kernel("Assign", tf.dtypes.as_dtype(name))


def mixed(value: Any) -> Any:
    """Other bits of the same type and shape, where an operation makes them the same way always."""
    if value.dtype == tf.string:
        return tf.strings.join([value, tf.constant("!")])
    if value.dtype == tf.bool:
        return tf.logical_not(value)
    if value.dtype.is_integer and _has_kernel("Invert", value.dtype):
        return tf.bitwise.invert(value)
    if value.dtype.is_floating and _has_kernel("Neg", value.dtype):
        return tf.negative(value)
    return tf.identity(value)


# --- the graph of a case --------------------------------------------------------------------------


class Graph:
    """Builds a case's graph in the default graph; `on` maps a task to a device scope."""

    def __init__(self, case: Case, on: On) -> None:
        self._case = case
        self._on = on
        self._steps: dict[str, Any] = {}
        self._fed: list[tuple[Any, Node, int]] = []
        self._values: list[Any] = []
        self._used: set[int] = set()
        for number, source in enumerate(case["sources"]):
            self._values.append(getattr(self, f"_{source['source']}")(source, number))
        for node in case["nodes"]:
            self._values.append(getattr(self, f"_{node['node']}")(node))
        #: What nothing else uses.
        self.fetches = {
            f"value {number}": value
            for number, value in enumerate(self._values)
            if number not in self._used
        }

    def feeds(self, step: int) -> dict[Any, Any]:
        fed: dict[Any, Any] = dict.fromkeys(self._steps.values(), step)
        for placeholder, source, number in self._fed:
            shapes = source["shapes"]
            shape = shapes[step % len(shapes)]
            fed[placeholder] = array(source["dtype"], shape, 97 * number + step)
        return fed

    def move(self, value: Any, task: str) -> Any:
        with self._on(task):
            return tf.identity(value)

    def _step(self, task: str) -> Any:
        """The step's number, fed to each task by itself, so that it crosses to none."""
        if task not in self._steps:
            with self._on(task):
                self._steps[task] = tf.compat.v1.placeholder(tf.int32, [])
        return self._steps[task]

    def _value(self, number: int) -> Any:
        chosen = number % len(self._values)
        self._used.add(chosen)
        return self._values[chosen]

    def _fed_source(self, source: Node, number: int) -> Any:
        with self._on(source["task"]):
            fed = tf.compat.v1.placeholder(source["dtype"], None)
            self._fed.append((fed, source, number))
            return tf.identity(fed)

    def _made_source(self, source: Node, number: int) -> Any:
        step = self._step(source["task"])
        with self._on(source["task"]):
            seed = tf.stack([step, number])
            return _made(tf.dtypes.as_dtype(source["dtype"]), source["size"], seed)

    def _variable_source(self, source: Node, number: int) -> Any:
        """What a variable holds after the step's update; in place, where that is possible."""
        made = self._made_source(source, number)
        with self._on(source["task"]):
            variable = tf.compat.v1.get_variable(
                f"variable{number}",
                initializer=lambda: tf.zeros([source["size"]], made.dtype),
                use_resource=source["resource"],
            )
            add = made.dtype in (tf.int32, tf.int64)
            update = tf.compat.v1.assign_add if add else tf.compat.v1.assign
            with tf.control_dependencies([update(variable, made).op]):
                return variable.read_value()

    def _move(self, node: Node) -> Any:
        return self.move(self._value(node["of"]), node["task"])

    def _mix(self, node: Node) -> Any:
        with self._on(node["task"]):
            return mixed(self._value(node["of"]))

    def _after(self, node: Node) -> Any:
        """A value that waits for another one: an edge without data crosses."""
        value, other = self._value(node["of"]), self._value(node["other"])
        with self._on(node["task"]), tf.control_dependencies([other]):
            return tf.identity(value)

    def _cut(self, node: Node) -> Any:
        """A slice that shares the buffer, mostly at an address that is not aligned."""
        value = self._value(node["of"])
        with self._on(node["task"]):
            if not _has_kernel("StridedSlice", value.dtype):
                return tf.identity(value)
            return tf.reshape(value, [-1])[node["start"] :]

    def _join(self, node: Node) -> Any:
        value, other = self._value(node["of"]), self._value(node["other"])
        if value.dtype != other.dtype:
            other = value
        with self._on(node["task"]):
            if not all(_has_kernel(op, value.dtype) for op in ("ConcatV2", "StridedSlice")):
                return tf.identity(value)
            flat = [tf.reshape(each, [-1]) for each in (value, other)]
            return tf.concat(flat, 0)[:MOST_ELEMENTS]

    def _list(self, node: Node) -> Any:
        """A variant on its way: a list whose elements are the value's rows."""
        value = self._value(node["of"])
        with self._on(node["task"]):
            if not _has_kernel("TensorListStack", value.dtype, "element_dtype"):
                return tf.identity(value)
            rows = tf.reshape(value, [1, -1])
            packed = tf.raw_ops.TensorListFromTensor(tensor=rows, element_shape=[-1])
        moved = self.move(packed, node["to"])
        with self._on(node["to"]):
            return tf.raw_ops.TensorListStack(
                input_handle=moved, element_shape=[-1], element_dtype=value.dtype
            )

    def _cond(self, node: Node) -> Any:
        """Two branches on two tasks; what goes to the one that is not taken is dead."""
        value = self._value(node["of"])
        if not _flows(value.dtype):
            return self.move(value, node["then"])
        step = self._step(node["task"])
        with self._on(node["task"]):
            taken = tf.equal(step % 2, node["taken"] % 2)

        def branch(task: str, change: Callable[[Any], Any]) -> Callable[[], Any]:
            def body() -> Any:
                with self._on(task):
                    return change(value)

            return body

        first, second = branch(node["then"], mixed), branch(node["else"], tf.identity)
        return _control_flow(node["version"], lambda: tf.cond(taken, first, second))

    def _loop(self, node: Node) -> Any:
        """Trips around tasks, each in a frame's next iteration; how many depends on the step."""
        value = self._value(node["of"])
        if not _flows(value.dtype):
            return self.move(value, node["around"][0])
        step = self._step(node["task"])
        with self._on(node["task"]):
            trips, zero = (step + node["trips"]) % 4, tf.constant(0)

        def more(trip: Any, _: Any) -> Any:
            with self._on(node["task"]):
                return trip < trips

        def body(trip: Any, around: Any) -> tuple[Any, Any]:
            for task in node["around"]:
                with self._on(task):
                    around = mixed(around)
            with self._on(node["task"]):
                return trip + 1, around

        shapes = [tf.TensorShape([]), tf.TensorShape(None)]
        _, around = _control_flow(
            node["version"],
            lambda: tf.while_loop(
                more, body, [zero, value], shapes, parallel_iterations=node["parallel"]
            ),
        )
        return around


def _control_flow(version: int, make: Callable[[], Any]) -> Any:
    if version == 2:
        return make()
    tf.compat.v1.disable_control_flow_v2()
    try:
        return make()
    finally:
        tf.compat.v1.enable_control_flow_v2()


# --- runs -----------------------------------------------------------------------------------------


def run(
    case: Case, target: str = "", make: Callable[[Case, On], Graph] = Graph
) -> tuple[list[dict[str, Any]], list[int]]:
    """Each step's values, and the sizes of what crossed in the first; local without a target.

    What an earlier case left on the servers is dropped before.
    """
    if target:
        tf.compat.v1.Session.reset(target)
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        graph = make(case, lambda task: tf.device(task_device(task) if target else "/cpu:0"))
        traced = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        metadata = tf.compat.v1.RunMetadata()
        values = []
        with tf.compat.v1.Session(target, config=config()) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            for step in range(case["steps"]):
                first = {"options": traced, "run_metadata": metadata} if target and not step else {}
                values.append(session.run(graph.fetches, graph.feeds(step), **first))
        return values, bytes_received(metadata, "RecvTensor")
