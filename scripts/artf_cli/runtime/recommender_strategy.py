"""Measures a recommender's step through ParameterServerStrategy and its coordinator.

All tasks run this script; the coordinator gets the commands of `artf_cli.bench.recommender`, and a
step of it is a function for each worker: all scheduled, then joined.
"""

from __future__ import annotations

import gc
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf
from recommender import Model, check
from strategy import StrategyTask
from timing import burst


class _Mix(NamedTuple):
    """Variables and the functions over them."""

    model: Model
    step: Any
    wrong: Any


class RecommenderTask(StrategyTask):
    """Holds the variables and functions of each mix, made once and used in every round."""

    def __init__(self) -> None:
        super().__init__()
        self._mixes: dict[str, _Mix] = {}

    def do_mix(self, name: str, pulls: list[int], updates: int, ids: list[int]) -> None:
        """Makes a mix, whose variables have their first values at once."""
        model = Model(
            pulls, updates, ids, lambda part, initial: self.make(f"{name}/{part}", initial)
        )

        def step() -> None:
            model.step()

        self._mixes[name] = _Mix(model, tf.function(step), tf.function(model.wrong))

    def do_initialise(self, name: str) -> None:
        """Nothing: see `do_mix`."""

    def do_check(self, name: str, steps: int) -> None:
        """Pulls all variables of a mix; ValueError unless they are what `steps` steps leave."""
        mix = self._mixes[name]
        counts = self.fetch(mix.wrong, tf.constant(steps, tf.int64))
        check(counts, mix.model.variables, steps)

    def do_warm(self, name: str) -> dict[str, Any]:
        """A step of all workers that is not to be measured."""
        gc.collect()
        self.wave(self._mixes[name].step)
        return {"steps": self.workers}

    def do_burst(self, name: str, start: float, seconds: float, least: int) -> dict[str, Any]:
        """Steps for `seconds` from `start` (time.monotonic) on, at least `least` of them."""
        answer = burst(partial(self.wave, self._mixes[name].step), start, seconds, least)
        answer["steps"] *= self.workers
        return answer


if __name__ == "__main__":
    RecommenderTask().serve_commands()
