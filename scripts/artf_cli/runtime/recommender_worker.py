"""Measures a recommender's step between workers and the parameter server, with sessions.

All tasks run this script; the parameter server only serves, each worker has a graph and a session
of its own (between-graph replication) and gets the commands of `artf_cli.bench.recommender`.
"""

from __future__ import annotations

import gc
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf
from recommender import Model, check
from task import Task, run_step, session_config
from timing import burst

_PS = "/job:ps/task:0/cpu:0"


class _Mix(NamedTuple):
    """A session and what it runs."""

    session: Any
    model: Model
    initialise: Any
    step: Any
    steps: Any
    wrong: Any


class RecommenderTask(Task):
    """Holds one graph and one session per mix, made once and used in every round."""

    def __init__(self) -> None:
        super().__init__()
        self._mixes: dict[str, _Mix] = {}

    def do_mix(self, name: str, pulls: list[int], updates: int, ids: list[int]) -> None:
        """Makes a mix; its variables, which all workers share, have yet to be initialised."""

        def make(variable: str, initial: Any) -> Any:
            with tf.device(_PS):
                return tf.compat.v1.Variable(
                    initial,
                    trainable=False,
                    use_resource=True,
                    # The server keeps variables by name, across sessions and workers.
                    name=f"{name}/{variable}",
                )

        graph = tf.Graph()
        with graph.as_default(), tf.device(f"/job:worker/task:{self.index}/cpu:0"):
            model = Model(pulls, updates, ids, make)
            initialise = tf.group(*(variable.initializer for variable in model.variables))
            operation = tf.group(*model.step())
            steps = tf.compat.v1.placeholder(tf.int64, [])
            wrong = model.wrong(steps)
        session = tf.compat.v1.Session(
            self.server.target, graph=graph, config=session_config(self.index)
        )
        step = session.make_callable(operation)
        self._mixes[name] = _Mix(session, model, initialise, step, steps, wrong)

    def do_initialise(self, name: str) -> None:
        """Gives the variables of a mix their first values, for all workers."""
        mix = self._mixes[name]
        run_step(partial(mix.session.run, mix.initialise))

    def do_check(self, name: str, steps: int) -> None:
        """Pulls all variables of a mix; ValueError unless they are what `steps` steps leave."""
        mix = self._mixes[name]
        counts = run_step(partial(mix.session.run, mix.wrong, {mix.steps: steps}))
        check(counts, mix.model.variables, steps)

    def do_warm(self, name: str) -> dict[str, Any]:
        """A step that is not to be measured: it wakes threads and pages up again."""
        gc.collect()
        run_step(self._mixes[name].step)
        return {"steps": 1}

    def do_burst(self, name: str, start: float, seconds: float, least: int) -> dict[str, Any]:
        """Steps for `seconds` from `start` (time.monotonic) on, at least `least` of them."""
        return burst(self._mixes[name].step, start, seconds, least)


if __name__ == "__main__":
    RecommenderTask().serve_commands()
