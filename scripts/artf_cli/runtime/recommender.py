"""A recommender's step in TensorFlow's terms, the same for a session and for a strategy.

Must be called where the worker's operations belong; what lies on the parameter server stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

_FLOAT = 4
_ID = 8
_INCREMENTS = 5
_SHIFTS = 64

#: Makes a variable on the parameter server: (name, what makes its first value).
Make = Callable[[str, Callable[[], Any]], Any]


def _pattern(size: int, seed: int) -> Any:
    """`size` whole numbers that depend on `seed` only; sums of them stay exact in float32."""
    words = tf.random.stateless_uniform(
        [size], seed=(seed, 0), minval=0, maxval=256, dtype=tf.int32, alg="philox"
    )
    return tf.cast(words, tf.float32)


def _increment(column: int) -> int:
    """What each step adds to every element of a column."""
    return 1 + column % _INCREMENTS


class Model:
    """What a mix keeps on the parameter server: columns that are pulled, tables that count ids.

    The sizes are bytes. The first `updates` columns also get an update of their size in each step;
    the tables get a piece of ids each.
    """

    def __init__(self, pulls: Sequence[int], updates: int, ids: Sequence[int], make: Make) -> None:
        self._columns = [
            make(f"column_{i}", partial(_pattern, size // _FLOAT, i))
            for i, size in enumerate(pulls)
        ]
        self._updates = updates
        self._pieces = [size // _ID for size in ids]
        self._tables = [
            make(f"table_{i}", partial(tf.zeros, [length + _SHIFTS]))
            for i, length in enumerate(self._pieces)
        ]

    @property
    def variables(self) -> list[Any]:
        """All of them, in the order in which they were made."""
        return [*self._columns, *self._tables]

    def step(self) -> list[Any]:
        """Pulls all columns, then pushes all updates and ids; the operations that end the step."""
        if not self._columns:
            return [tf.no_op()]
        arrived = [tf.identity(_read(column)) for column in self._columns]
        # An update follows from what was pulled, as a gradient does; columns are never negative.
        slope = tf.sign(arrived[-1][0] + 1.0)
        slopes = [slope * float(1 + i) for i in range(_INCREMENTS)]
        with tf.control_dependencies(arrived):
            updates = [
                tf.fill(column.shape, slopes[i % _INCREMENTS])
                for i, column in enumerate(self._columns[: self._updates])
            ]
            pieces = [
                tf.range(i % _SHIFTS, i % _SHIFTS + length, dtype=tf.int64)
                for i, length in enumerate(self._pieces)
            ]
        done = []
        for column, update in zip(self._columns, updates):
            with tf.device(column.device):
                done.append(column.assign_add(update, read_value=False))
        for table, piece in zip(self._tables, pieces):
            with tf.device(table.device):
                done.append(
                    tf.raw_ops.ResourceScatterAdd(
                        resource=table.handle, indices=piece, updates=tf.constant(1.0)
                    )
                )
        return done

    def wrong(self, steps: Any) -> Any:
        """For each variable, how many elements differ from what `steps` (a scalar) steps leave."""
        counts = []
        for i, column in enumerate(self._columns):
            added = steps * float(_increment(i)) if i < self._updates else 0.0
            counts.append(_differ(column, _pattern(column.shape[0], i) + added))
        for i, (table, length) in enumerate(zip(self._tables, self._pieces)):
            before = i % _SHIFTS
            hit = tf.pad(tf.ones([length]), [[before, _SHIFTS - before]])
            counts.append(_differ(table, hit * steps))
        return tf.stack(counts) if counts else tf.zeros([0], tf.int64)


def _read(variable: Any) -> Any:
    with tf.device(variable.device):
        return variable.read_value()


def _differ(variable: Any, expected: Any) -> Any:
    return tf.math.count_nonzero(tf.not_equal(tf.identity(_read(variable)), expected))


def check(counts: Any, variables: Sequence[Any], steps: int) -> None:
    """Raises ValueError for `Model.wrong`'s counts unless all are 0."""
    wrong = [
        f"{variable.name}: {count} elements" for variable, count in zip(variables, counts) if count
    ]
    if wrong:
        raise ValueError(f"after {steps} steps these are wrong: {', '.join(wrong)}")
