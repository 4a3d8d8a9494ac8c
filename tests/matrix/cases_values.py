"""recv: tensors of every kind arrive bit for bit, both ways between a ps and a worker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from common.ar import path_of
from common.graphs import (
    CONDS,
    LENGTHS,
    NUMERIC,
    OFFSETS,
    STRINGS,
    VARIANTS,
    Built,
    arrays,
    dead,
    huge_transfer,
    resource_handle,
    slices,
    strings,
    variants,
)
from common.interrupted import session_on
from common.paths import LARGE
from common.processes import Cluster
from common.sessions import On, assert_same, check, difference, run
from matrix.cases import GIB, case
from matrix.meter import Payload

PS, WORKER, OTHER = "ps:0", "worker:0", "worker:1"
WAYS = ((PS, WORKER), (WORKER, PS))

recv = partial(case, "recv: values")


def _itemsize(dtype: Any) -> int:
    return int(np.dtype(dtype.as_numpy_dtype).itemsize)


def _of_every_type(shapes: Sequence[tuple[int, ...]]) -> Payload:
    """What arrays of these shapes and all types weigh, once each way."""
    elements = sum(int(np.prod(shape)) for shape in shapes)
    return Payload(small=2 * elements * sum(map(_itemsize, NUMERIC)))


def _check_every_type(cluster: Cluster, shapes: Sequence[tuple[int, ...]]) -> None:
    for way in WAYS:
        build = partial(arrays, way=way, dtypes=NUMERIC, shapes=shapes)
        check(cluster, build, [way], tensors=len(NUMERIC) * len(shapes))


SCALARS: list[tuple[int, ...]] = [(), (1,), (1, 1, 1)]
EMPTY: list[tuple[int, ...]] = [(0,), (2, 0, 3), (0, 4)]
ODD: list[tuple[int, ...]] = [(3,), (3, 5, 7), (1023,), (65537,)]


@recv("scalars", "one element of every type, of rank 0, 1 and 3", _of_every_type(SCALARS))
def scalars(cluster: Cluster) -> None:
    _check_every_type(cluster, SCALARS)


@recv("empty", "no elements, of every type: the shape arrives all the same", Payload())
def empty(cluster: Cluster) -> None:
    _check_every_type(cluster, EMPTY)


@recv("odd shapes", "3 to 65537 elements of every type", _of_every_type(ODD))
def odd_shapes(cluster: Cluster) -> None:
    _check_every_type(cluster, ODD)


def _large_shape(dtype: Any) -> tuple[int, ...]:
    return (LARGE // _itemsize(dtype) + 3,)


@recv(
    "large",
    "2 MiB and three elements of every type, above the size from which the rendezvous serves",
    Payload(large=sum(_large_shape(dtype)[0] * _itemsize(dtype) for dtype in NUMERIC)),
)
def large(cluster: Cluster) -> None:
    def build(on: On) -> Built:
        fetches, feeds = {}, {}
        for dtype in NUMERIC:
            built = arrays(on, WAYS[0], [dtype], [_large_shape(dtype)])
            fetches.update(built[0])
            feeds.update(built[1])
        return fetches, feeds

    check(cluster, build, WAYS[:1], tensors=len(NUMERIC))


@recv(
    "unaligned",
    "slices of a larger buffer at any offset, which share its memory or are copied",
    Payload(small=2 * 3 * len(OFFSETS) * sum(LENGTHS)),
)
def unaligned(cluster: Cluster) -> None:
    for way in WAYS:
        build = partial(slices, way=way, width=3)
        check(cluster, build, [way], tensors=len(OFFSETS) * len(LENGTHS))


def _characters(value: Any) -> int:
    return sum(len(each) for each in np.asarray(value, object).ravel())


@recv(
    "strings",
    "empty ones, NULs, no UTF-8, 100,000 small ones, one of 16 MiB",
    Payload(encoded=2 * sum(map(_characters, STRINGS.values()))),
)
def all_strings(cluster: Cluster) -> None:
    for way in WAYS:
        check(cluster, partial(strings, way=way, names=list(STRINGS)), [way], tensors=len(STRINGS))


@recv(
    "variants",
    "lists of floats, of strings and of lists, ragged tensors, optionals",
    Payload(encoded=2 * 4 * 15 * 4),
)
def all_variants(cluster: Cluster) -> None:
    for way in WAYS:
        build = partial(variants, way=way, names=list(VARIANTS))
        check(cluster, build, [way], tensors=len(VARIANTS))


@recv(
    "resource handles",
    "a handle goes to another task and back, and still names its variable",
    Payload(encoded=2),
)
def resource_handles(cluster: Cluster) -> None:
    values, crossed = run(partial(resource_handle, there=PS, back=WORKER), cluster.target())
    assert_same(values, {"same": np.bool_(True), "size": np.int32(1025)})
    assert crossed[PS, WORKER] >= 1 and crossed[WORKER, PS] >= 1


DEAD_SIZES = [1025, LARGE // 4 + 1]


@recv(
    "dead tensors",
    "the untaken branch of cond (v1, v2) and Switch sends none; the taken one's value arrives",
    Payload(small=4 * DEAD_SIZES[0], large=4 * DEAD_SIZES[1]) * (4 * len(CONDS)),
)
def dead_tensors(cluster: Cluster) -> None:
    for way in WAYS:
        for taken in (True, False):
            build = partial(dead, way=way, conds=CONDS, sizes=DEAD_SIZES, taken=taken)
            check(cluster, build, [way, way[::-1]])


SHARED = LARGE + 5


@recv(
    "several receivers",
    "one tensor of the ps goes to both workers, and twice within each",
    Payload(large=2 * SHARED),
)
def several_receivers(cluster: Cluster) -> None:
    def build(on: On) -> Built:
        with on(PS):
            fed = tf.compat.v1.placeholder(tf.uint8, [None])
            sent = tf.bitwise.invert(fed)
        fetches = {}
        for task in (WORKER, OTHER):
            with on(task):
                fetches[f"{task}, as it came"] = tf.identity(sent)
                fetches[f"{task}, changed"] = tf.bitwise.invert(sent)
        return fetches, {fed: np.arange(SHARED).astype(np.uint8)}

    check(cluster, build, [(PS, WORKER), (PS, OTHER)])


#: A whole number of blocks, and one element more.
HUGE = 2 * GIB + 8


@recv(
    "over 2 GiB",
    "a tensor of 2 GiB and 8 bytes, at least twice, compared by sums of its blocks and samples",
    Payload(large=2 * HUGE),
    quick_on=("grpc+ar/shm",),
    memory=12 * GIB,
    limit=240.0,
)
def over_2_gib(cluster: Cluster) -> None:
    def read_so_far() -> int:
        return int(cluster[WORKER].status().get("rendezvous_bytes", 0))

    before = read_so_far()
    with session_on(cluster, seconds=200) as session:
        samples = huge_transfer(PS, WORKER, HUGE)
        for done in range(1, 7):
            there, here = session.run(samples)
            assert not difference(here, there)
            # RDMA's memory is registered while it is first used, which takes its time here.
            registers = path_of(cluster, WORKER, PS) == "verbs"
            if done > 1 and (not registers or read_so_far() >= before + HUGE):
                break
