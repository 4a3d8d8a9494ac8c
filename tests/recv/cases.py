"""What hypothesis draws: random cases of recv/graphs.py, most of whose tensors are large."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from recv.graphs import DTYPES, MOST_ELEMENTS, TASKS, Node, can_be_kept, can_be_made

KIB, MIB = 2**10, 2**20

_tasks = st.sampled_from(TASKS)
_values = st.integers(0, 12)
_small_shapes = st.sampled_from([[], [0], [1], [3], [2, 0, 3], [1, 1, 1], [3, 5, 7], [1023]])
#: Around the sizes where something changes, of which most are above the rendezvous size.
_large_bytes = st.one_of(
    st.integers(96 * KIB, 448 * KIB), st.sampled_from([256 * KIB + 8, MIB, MIB + 16, 4 * MIB + 16])
)


@st.composite
def _shapes(draw: Any, dtype: str) -> list[int]:
    width = tf.dtypes.as_dtype(dtype).size
    # A fifth of what crosses must be large, and lists, strings and control values are not.
    if dtype == "string" or draw(st.sampled_from([True] + [False] * 5)):
        small: list[int] = draw(_small_shapes)
        return small
    count = min(draw(_large_bytes) // width, MOST_ELEMENTS)
    return [count] if draw(st.booleans()) else [3, count // 3]


@st.composite
def _fed_sources(draw: Any) -> Node:
    dtype = draw(st.sampled_from(DTYPES))
    shapes = draw(st.lists(_shapes(dtype), min_size=1, max_size=2))
    return {"source": "fed_source", "task": draw(_tasks), "dtype": dtype, "shapes": shapes}


@st.composite
def _made_sources(draw: Any, kind: str) -> Node:
    can = can_be_kept if kind == "variable_source" else can_be_made
    dtype = draw(st.sampled_from([name for name in DTYPES if can(name)]))
    size = int(np.prod(draw(_shapes(dtype))))
    made = {"source": kind, "task": draw(_tasks), "dtype": dtype, "size": size}
    if kind == "variable_source":
        made["resource"] = draw(st.booleans())
    return made


_nodes = st.one_of(
    st.fixed_dictionaries({"node": st.just("move"), "of": _values, "task": _tasks}),
    st.fixed_dictionaries({"node": st.just("mix"), "of": _values, "task": _tasks}),
    st.fixed_dictionaries(
        {"node": st.just("after"), "of": _values, "other": _values, "task": _tasks}
    ),
    st.fixed_dictionaries(
        {"node": st.just("cut"), "of": _values, "task": _tasks, "start": st.integers(0, 70)}
    ),
    st.fixed_dictionaries(
        {"node": st.just("join"), "of": _values, "other": _values, "task": _tasks}
    ),
    st.fixed_dictionaries({"node": st.just("list"), "of": _values, "task": _tasks, "to": _tasks}),
    st.fixed_dictionaries(
        {
            "node": st.just("cond"),
            "of": _values,
            "task": _tasks,
            "then": _tasks,
            "else": _tasks,
            "taken": st.integers(0, 1),
            "version": st.sampled_from([1, 2]),
        }
    ),
    st.fixed_dictionaries(
        {
            "node": st.just("loop"),
            "of": _values,
            "task": _tasks,
            "around": st.lists(_tasks, min_size=1, max_size=3),
            "trips": st.integers(0, 3),
            "parallel": st.sampled_from([1, 2, 10]),
            "version": st.sampled_from([1, 2]),
        }
    ),
)

CASES = st.fixed_dictionaries(
    {
        "master": _tasks,
        "steps": st.integers(1, 4),
        "sources": st.lists(
            st.one_of(
                _fed_sources(), _made_sources("made_source"), _made_sources("variable_source")
            ),
            min_size=1,
            max_size=4,
        ),
        "nodes": st.lists(_nodes, min_size=1, max_size=9),
    }
)
