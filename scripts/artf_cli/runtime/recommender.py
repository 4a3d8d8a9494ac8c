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
# No size of a chunk is a multiple of this prime.
_PERIOD = 251

#: Makes a variable on the parameter server: (name, what makes its first value).
Make = Callable[[str, Callable[[], Any]], Any]


def _pattern(size: int, offset: int = 0) -> Any:
    """`size` whole numbers from 0 up that depend on their place; float32 sums stay exact."""
    return tf.cast((tf.range(size) + offset) % _PERIOD, tf.float32)


class Model:
    """What a mix keeps on the parameter server: columns that are pulled, and a count of each id.

    The sizes are bytes. The first `updates` columns also get an update of their size in each step;
    each of `ids` is a piece of ids to count.
    """

    def __init__(self, pulls: Sequence[int], updates: int, ids: Sequence[int], make: Make) -> None:
        self._sizes = [size // _FLOAT for size in pulls]
        offsets = [sum(self._sizes[:i]) for i in range(len(pulls))]
        self._columns = [
            make(f"column_{i}", partial(_pattern, size, offset))
            for i, (size, offset) in enumerate(zip(self._sizes, offsets))
        ]
        # What each step adds to every element of a column.
        self._added = [
            float(1 + i % _INCREMENTS) if i < updates else 0.0 for i in range(len(pulls))
        ]
        self._updates = updates
        # The ids of a piece: from its number on, which begins anew after a while.
        self._pieces = [(i % _SHIFTS, i % _SHIFTS + size // _ID) for i, size in enumerate(ids)]
        self._hits = [0] * max((end for _, end in self._pieces), default=0)
        for begin, end in self._pieces:
            for number in range(begin, end):
                self._hits[number] += 1
        self._counts = make("counts", partial(tf.zeros, [len(self._hits)], tf.int64))

    @property
    def variables(self) -> list[Any]:
        """All of them, in the order in which they were made."""
        return [*self._columns, self._counts]

    def step(self) -> list[Any]:
        """Pulls all columns, then pushes all updates and ids; the operations that end the step."""
        if not self._columns:
            return [tf.no_op()]
        arrived = [tf.identity(_read(column)) for column in self._columns]
        # An update follows from what was pulled, as a gradient does; columns are never negative.
        slope = tf.sign(arrived[-1][0] + 1.0)
        slopes = {added: slope * added for added in set(self._added)}
        with tf.control_dependencies(arrived):
            updates = [
                tf.fill([size], slopes[added])
                for size, added in zip(self._sizes[: self._updates], self._added)
            ]
            pieces = [tf.range(begin, end, dtype=tf.int64) for begin, end in self._pieces]
        done = []
        for column, update in zip(self._columns, updates):
            with tf.device(column.device):
                done.append(column.assign_add(update, read_value=False))
        with tf.device(self._counts.device):
            one = tf.constant(1, tf.int64)
            for piece in pieces:
                done.append(
                    tf.raw_ops.ResourceScatterAdd(
                        resource=self._counts.handle, indices=piece, updates=one
                    )
                )
        return done

    def wrong(self, steps: Any) -> Any:
        """For each variable, how many elements differ from what `steps` (a scalar) steps leave."""
        counts = tf.identity(_read(self._counts))
        hits = tf.constant(self._hits, tf.int64, [len(self._hits)]) * tf.cast(steps, tf.int64)
        wrong = [tf.math.count_nonzero(tf.not_equal(counts, hits), keepdims=True)]
        if self._columns:
            values = tf.concat([tf.identity(_read(column)) for column in self._columns], 0)
            # tf.repeat would pad every column to the largest: gigabytes.
            ends = tf.constant([sum(self._sizes[: i + 1]) for i in range(len(self._sizes))])
            numbers = tf.searchsorted(ends, tf.range(sum(self._sizes)), side="right")
            added = tf.constant(self._added) * tf.cast(steps, tf.float32)
            expected = _pattern(sum(self._sizes)) + tf.gather(added, numbers)
            differ = tf.cast(tf.not_equal(values, expected), tf.int64)
            wrong.insert(0, tf.math.segment_sum(differ, numbers))
        return tf.concat(wrong, 0)


def _read(variable: Any) -> Any:
    with tf.device(variable.device):
        return variable.read_value()


def check(counts: Any, variables: Sequence[Any], steps: int) -> None:
    """Raises ValueError for `Model.wrong`'s counts unless all are 0."""
    wrong = [
        f"{variable.name}: {count} elements" for variable, count in zip(variables, counts) if count
    ]
    if wrong:
        raise ValueError(f"after {steps} steps these are wrong: {', '.join(wrong)}")
