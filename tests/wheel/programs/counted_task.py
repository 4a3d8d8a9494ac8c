"""A task whose libibverbs counts (tests/verbs/counting_verbs.cc): one tensor a step, and where its
bytes lie at both ends.

Runs on the wheel alone, as the tasks of `artf_cli.cluster` do, and takes commands as they do.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts/artf_cli/runtime"))

import tensorflow as tf
from recv_worker import check_fingerprints, fingerprint, pattern
from task import Task, run_step, session_config

_PS = "/job:ps/task:0/cpu:0"
_SEED = 7


def _address(tensor: Any) -> int:
    """Where a tensor's bytes lie; `_numpy` looks at them, `numpy` would copy them."""
    return int(tensor._numpy().__array_interface__["data"][0])


def _address_of(tensor: Any) -> Any:
    return tf.py_function(_address, [tensor], tf.int64)


class CountedTask(Task):
    """Has one graph and one session per size."""

    def __init__(self) -> None:
        super().__init__()
        self._library = ctypes.CDLL(os.environ["AR_IBVERBS_LIB"])
        self._steps: dict[int, tuple[Any, Any, Any]] = {}

    def _source(self, size: int) -> Any:
        """The variable on the parameter server; the same one in whichever task's graph."""
        return tf.compat.v1.Variable(
            partial(pattern, size, (_SEED, size)),
            trainable=False,
            use_resource=True,
            name=f"source_{size}",
        )

    def do_case(self, size: int) -> None:
        """Makes a case of `size` bytes, 0: of no tensor, and checks that the values arrive."""
        with tf.Graph().as_default() as graph:
            with tf.device(_PS):
                source = self._source(size) if size else None
                value = source.read_value() if source is not None else None
                served = tf.no_op()
            with tf.device(f"/job:worker/task:{self.index}/cpu:0"):
                arrived = tf.identity(value) if value is not None else None
                step = tf.group(arrived) if arrived is not None else [served, tf.no_op()]
                where = _address_of(arrived) if arrived is not None else None
                expected = fingerprint(pattern(size, (_SEED, size))) if size else None
                check = [fingerprint(arrived), expected] if size else None
        session = tf.compat.v1.Session(
            self.server.target, graph=graph, config=session_config(self.index)
        )
        if source is not None:
            run_step(partial(session.run, source.initializer))
            check_fingerprints([run_step(partial(session.run, check))], size)
        make = session.make_callable
        self._steps[size] = (
            make(step),
            make(where) if where is not None else None,
            partial(session.run, check),
        )

    def do_steps(self, size: int, steps: int) -> None:
        """Runs so many steps of a case."""
        for _ in range(steps):
            run_step(self._steps[size][0])

    def do_where(self, size: int) -> dict[str, Any]:
        """Runs a step; the address at which its tensor arrived."""
        return {"address": int(run_step(self._steps[size][1]))}

    def do_check(self, size: int) -> None:
        """Checks again that a case's values arrive."""
        check_fingerprints([run_step(self._steps[size][2])], size)

    def do_source(self, size: int) -> dict[str, Any]:
        """The parameter server's: the address of the variable's own bytes."""
        with tf.Graph().as_default() as graph, tf.device(_PS):
            where = _address_of(self._source(size).read_value())
        config = tf.compat.v1.ConfigProto(device_filters=["/job:ps"])
        session = tf.compat.v1.Session(self.server.target, graph=graph, config=config)
        return {"address": int(run_step(partial(session.run, where)))}

    def do_counts(self) -> dict[str, Any]:
        """What the library has counted so far."""
        with tempfile.NamedTemporaryFile() as file:
            error = self._library.counting_verbs_write(file.name.encode())
            if error:
                raise OSError(error, os.strerror(error))
            return {"counts": json.load(file)}


if __name__ == "__main__":
    CountedTask().serve_commands()
