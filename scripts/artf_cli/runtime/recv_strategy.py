"""Measures one transfer a step through ParameterServerStrategy: a function that reads variables.

All tasks run this script; the coordinator gets the commands of `artf_cli.bench.recv`. A step is a
function that it schedules on the worker, and the wait until that is done.
"""

from __future__ import annotations

import gc
import time
from functools import partial
from typing import Any

import tensorflow as tf
from recv_worker import check_fingerprints, fingerprint, pattern
from strategy import StrategyTask
from timing import burst


class RecvTask(StrategyTask):
    """Holds the variables and functions of each case, made once and used in every round."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[Any] = []
        self._checks: list[Any] = []
        # One call for each variable, not ten operations over the network.
        self._pattern = tf.function(pattern)

    def do_case(self, size: int, tensors: int, seed: int) -> dict[str, Any]:
        """Makes a case of `tensors` tensors of `size` bytes and checks it; returns its number.

        Without a tensor its step is an empty function. Raises ValueError when what arrives differs.
        """
        number = len(self._steps)
        first = [partial(self._pattern, size, tf.constant((seed, i))) for i in range(tensors)]
        sources = [self.make(f"case_{number}/source_{i}", one) for i, one in enumerate(first)]

        def arrive() -> list[Any]:
            values = []
            for source in sources:
                with tf.device(source.device):
                    value = source.read_value()
                values.append(tf.identity(value))
            return values

        def step() -> Any:
            with tf.control_dependencies(arrive()):
                return tf.constant(0)

        def prints() -> Any:
            return [
                tf.stack([fingerprint(tensor), fingerprint(expected())])
                for tensor, expected in zip(arrive(), first)
            ]

        self._steps.append(partial(self.wave, tf.function(step)))
        self._checks.append(partial(self._check_values, tf.function(prints), size))
        self.do_check(number)
        self._steps[-1]()
        return {"case": number}

    def do_check(self, case: int) -> None:
        """Checks once more that a case's values arrive; raises ValueError as `do_case`."""
        self._checks[case]()

    def _check_values(self, prints: Any, size: int) -> None:
        check_fingerprints(self.fetch(prints), size)

    def do_warm(self, case: int) -> None:
        """Wakes threads and pages before a burst: what that costs, cold steps show."""
        gc.collect()
        self._steps[case]()

    def do_burst(self, case: int, least: int, most: int, seconds: float) -> dict[str, Any]:
        """Times `least` to `most` steps of a case, about `seconds` long; returns µs per step."""
        return burst(self._steps[case], time.monotonic(), seconds, least, most)

    def do_cold(self, case: int) -> dict[str, Any]:
        """Times one step, the first of the case for a while; as `do_burst`."""
        return self.do_burst(case, least=1, most=1, seconds=0)


if __name__ == "__main__":
    RecvTask().serve_commands()
