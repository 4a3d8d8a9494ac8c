"""Measures one transfer a step from the parameter server's memory to a worker.

Both tasks run this script; the parameter server only serves, the worker gets the commands
`case`, `warm`, `burst`, `cold` and `check` of `artf_cli.bench.recv`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import tensorflow as tf
from task import Task, run_step, session_config
from timing import burst

_RECV = ("_Recv", "_HostRecv")


def pattern(size: int, seed: Any) -> Any:
    """`size` bytes that depend on `seed` (two numbers) only, the same in every TensorFlow."""
    words = tf.random.stateless_uniform(
        [(size + 3) // 4], seed=seed, minval=None, maxval=None, dtype=tf.int32, alg="philox"
    )
    data = tf.reshape(tf.bitcast(words, tf.uint8), [-1])
    return data if size % 4 == 0 else data[:size]


def fingerprint(data: Any) -> Any:
    """A hash over the whole tensor that needs no memory of the tensor's size."""
    return tf.fingerprint(tf.reshape(data, [1, -1]))


def check_fingerprints(pairs: Iterable[Any], size: int) -> None:
    """Raises ValueError unless the fingerprints of each pair, (arrived, expected), are the same."""
    for i, (got, expected) in enumerate(pairs):
        if (got != expected).any():
            raise ValueError(
                f"tensor {i} of {size} bytes arrived with fingerprint "
                f"{bytes(got.flat).hex()}, not {bytes(expected.flat).hex()}"
            )


class RecvTask(Task):
    """Holds one graph and one session per case, made once and used in every round."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[Callable[[], Any]] = []
        self._checks: list[Callable[[], None]] = []

    def do_case(self, size: int, tensors: int, seed: int) -> dict[str, Any]:
        """Makes a case of `tensors` tensors of `size` bytes and checks it; returns its number.

        Without a tensor its step runs on both tasks and moves nothing. Raises ValueError when what
        arrives differs, RuntimeError when other than that would travel.
        """
        number = len(self._steps)
        graph = tf.Graph()
        with graph.as_default():
            with tf.device("/job:ps/task:0/cpu:0"):
                sources = [
                    tf.compat.v1.Variable(
                        partial(pattern, size, (seed, i)),
                        trainable=False,
                        use_resource=True,
                        # The server keeps variables by name, across sessions.
                        name=f"case_{number}/source_{i}",
                    )
                    for i in range(tensors)
                ]
                values = [source.read_value() for source in sources]
                served = tf.no_op()
            with tf.device(f"/job:worker/task:{self.index}/cpu:0"):
                # Identity forwards the buffer: the step costs the transfer and nothing else.
                arrived = [tf.identity(value) for value in values]
                # A group of operations on both tasks would send a control signal.
                step = tf.group(*arrived) if arrived else [served, tf.no_op()]
                checks = [
                    tf.stack([fingerprint(tensor), fingerprint(pattern(size, (seed, i)))])
                    for i, tensor in enumerate(arrived)
                ]
        session = tf.compat.v1.Session(
            self.server.target, graph=graph, config=session_config(self.index)
        )
        # One tensor at a time, so that a case needs little more memory than what it moves.
        for source in sources:
            run_step(partial(session.run, source.initializer))
        self._checks.append(partial(self._check_values, session, checks, size))
        self._checks[-1]()
        self._check_travels(session, step, tensors)
        self._steps.append(session.make_callable(step))
        return {"case": number}

    def do_check(self, case: int) -> None:
        """Checks once more that a case's values arrive; raises ValueError as `do_case`."""
        self._checks[case]()

    def _check_values(self, session: Any, checks: list[Any], size: int) -> None:
        check_fingerprints((run_step(partial(session.run, check)) for check in checks), size)

    def _check_travels(self, session: Any, step: Any, tensors: int) -> None:
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        run_step(lambda: session.run(step, options=options, run_metadata=metadata))
        received = [
            node.name
            for graph in metadata.partition_graphs
            for node in graph.node
            if node.op in _RECV
            and "/job:worker" in node.device
            and b"/job:ps" in node.attr["send_device"].s
            and (not tensors or node.attr["tensor_type"].type == tf.uint8.as_datatype_enum)
        ]
        if len(received) != tensors:
            raise RuntimeError(
                f"the worker's graph receives {len(received)} tensors a step, not {tensors}"
            )

    def do_warm(self, case: int) -> None:
        """Wakes threads and pages before a burst: what that costs, cold steps show."""
        gc.collect()
        run_step(self._steps[case])

    def do_burst(self, case: int, least: int, most: int, seconds: float) -> dict[str, Any]:
        """Times `least` to `most` steps of a case, about `seconds` long; returns µs per step."""
        return burst(self._steps[case], time.monotonic(), seconds, least, most)

    def do_cold(self, case: int) -> dict[str, Any]:
        """Times one step, the first of the case for a while; as `do_burst`."""
        return self.do_burst(case, least=1, most=1, seconds=0)


if __name__ == "__main__":
    RecvTask().serve_commands()
