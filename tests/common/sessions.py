"""Runs one graph locally and over a cluster, and compares the results bit for bit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from common.processes import Cluster

#: Every remote operation ends by itself, so that a hang is a failed test and not a hung run.
OPERATION_SECONDS = 60

#: Maps a task ("ps:0") to a device scope; all tasks are one device in the local run.
On = Callable[[str], Any]
#: Builds a graph: named fetches, and what to feed.
Build = Callable[[On], "tuple[dict[str, Any], dict[Any, Any]]"]


def task_device(task: str) -> str:
    job, index = task.split(":")
    return f"/job:{job}/replica:0/task:{index}/device:CPU:0"


def config(seconds: float = OPERATION_SECONDS) -> Any:
    """Session options under which no case folds away and no operation blocks for ever."""
    options = tf.compat.v1.ConfigProto(operation_timeout_in_ms=int(seconds * 1000))
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    options.graph_options.optimizer_options.opt_level = -1
    return options


def deadline_within(part: float, step: Callable[[], Any], rounds: int = 4) -> Any:
    """Run options with this part of the step's quickest run as deadline."""
    seconds = []
    for _ in range(rounds):
        began = time.monotonic()
        assert step() == 0.0
        seconds.append(time.monotonic() - began)
    return tf.compat.v1.RunOptions(timeout_in_ms=max(1, round(1000 * part * min(seconds))))


def lost(error: BaseException | None, task: str) -> bool:
    """Whether a step ended as one must where this task is lost: callers go by the text."""
    job, index = task.split(":")
    named = f"GRPC error information from remote target /job:{job}/replica:0/task:{index}"
    return isinstance(error, tf.errors.UnavailableError) and named in str(error)


def cancelled_by_close(error: BaseException | None) -> bool:
    """Whether a running step ended because another thread closed its session.

    By its code alone: not every end that the close reaches first names `Session::Close()`.
    """
    return isinstance(error, tf.errors.CancelledError)


def refused_after_close(error: BaseException | None) -> bool:
    """Whether a step only started after the close: its client refused it, or its master did."""
    if isinstance(error, RuntimeError):
        return "closed Session" in str(error)
    told = {
        tf.errors.InvalidArgumentError: "not created yet",
        tf.errors.FailedPreconditionError: "Session is closed",
        tf.errors.AbortedError: "is not found",
    }
    return any(isinstance(error, kind) and text in str(error) for kind, text in told.items())


def crossings(metadata: Any) -> Counter[tuple[str, str]]:
    """How many tensors the executed partitions sent from task to task."""
    count: Counter[tuple[str, str]] = Counter()
    for partition in metadata.partition_graphs:
        for node in partition.node:
            if node.op in ("_Send", "_HostSend") and not node.attr["client_terminated"].b:
                ends = [
                    tf.DeviceSpec.from_string(node.attr[key].s.decode())
                    for key in ("send_device", "recv_device")
                ]
                source, sink = (f"{end.job}:{end.task}" for end in ends)
                if source != sink:
                    count[source, sink] += 1
    return count


def run(
    build: Build,
    target: str = "",
    steps: int = 1,
    seconds: float = OPERATION_SECONDS,
    graph: Any | None = None,
) -> tuple[dict[str, Any], Counter[tuple[str, str]]]:
    """The graph's last fetched values, and the crossings of a step; local without a target."""
    with (graph or tf.Graph()).as_default():
        fetches, feeds = build(lambda task: tf.device(task_device(task) if target else "/cpu:0"))
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        with tf.compat.v1.Session(target, config=config(seconds)) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            for _ in range(steps):
                values = session.run(fetches, feeds, options=options, run_metadata=metadata)
        return values, crossings(metadata)


def difference(got: Any, expected: Any) -> str | None:
    """Why two fetched values are not the same bits, or None where they are."""
    got, expected = np.asarray(got), np.asarray(expected)
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"{got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}"
    if got.dtype == object:
        pairs = zip(got.ravel().tolist(), expected.ravel().tolist())
        wrong = [i for i, (left, right) in enumerate(pairs) if left != right]
        return f"{len(wrong)} of {got.size} elements, first {wrong[0]}" if wrong else None
    if got.tobytes() == expected.tobytes():
        return None
    left, right = (np.frombuffer(each.tobytes(), np.uint8) for each in (got, expected))
    where = np.flatnonzero(left != right)
    return f"{where.size} of {left.size} bytes, first at {where[0]}, last at {where[-1]}"


def assert_same(values: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert values.keys() == expected.keys()
    wrong = {name: difference(value, expected[name]) for name, value in values.items()}
    assert not any(wrong.values()), {name: why for name, why in wrong.items() if why}


def check(
    cluster: Cluster,
    build: Build,
    path: Sequence[tuple[str, str]],
    tensors: int = 1,
    master: str = "worker:0",
    steps: int = 1,
) -> None:
    """Both runs agree, and at least `tensors` went over each hop of the path."""
    expected, _ = run(build, steps=steps)
    values, crossed = run(build, cluster.target(master), steps)
    assert_same(values, expected)
    for hop in path:
        assert crossed[hop] >= tensors, f"{hop}: {crossed}"
