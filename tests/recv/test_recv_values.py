"""Every kind of tensor crosses between two processes and arrives bit for bit.

Each case builds one graph, runs it locally and over the cluster, and compares raw bytes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from common.graphs import (
    LENGTHS,
    NUMERIC,
    OFFSETS,
    STRINGS,
    VARIANTS,
    arrays,
    random_bytes,
    resource_handle,
    slices,
    strings,
    variants,
)
from common.processes import Cluster
from common.repeated import few
from common.sessions import OPERATION_SECONDS, On, assert_same, check, run, task_device

pytestmark = pytest.mark.timeout(120)

PS, WORKER = "ps:0", "worker:0"
DIRECTIONS = [
    pytest.param((PS, WORKER), id="ps-to-worker"),
    pytest.param((WORKER, PS), id="worker-to-ps"),
]
MIB = 2**20
SHAPES = [(), (0,), (1,), (3,), (2, 0, 3), (0, 4), (1, 1, 1), (3, 5, 7), (1023,), (65537,)]


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("dtype", NUMERIC, ids=lambda dtype: dtype.name)
def test_dtype(cluster: Cluster, dtype: Any, way: tuple[str, str]) -> None:
    """Scalars, empty tensors and odd shapes of every numeric type."""
    build = partial(arrays, way=way, dtypes=[dtype], shapes=SHAPES)
    check(cluster, build, [way], tensors=len(SHAPES))


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("name", STRINGS)
def test_string(cluster: Cluster, name: str, way: tuple[str, str]) -> None:
    check(cluster, partial(strings, way=way, names=[name]), [way])


SIZES = [1, 3, 4, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537]
SIZES += [MIB - 1, MIB, MIB + 1, 16 * MIB - 1, 16 * MIB, 16 * MIB + 1]


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_size(cluster: Cluster, size: int, way: tuple[str, str]) -> None:
    """Three steps of the same graph: a buffer that is used again must not show old bytes."""

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        with on(way[0]):
            counter = tf.compat.v1.get_variable("step", [], tf.int32, tf.zeros_initializer())
            step = tf.compat.v1.assign_add(counter, 1)
            sent = random_bytes(tf.stack([step, size]), size)
        with on(way[1]):
            return {f"{size} B": tf.identity(sent)}, {}

    check(cluster, build, [way], steps=3)


@pytest.mark.parametrize(
    ("size", "way"),
    [
        pytest.param(64 * MIB, (PS, WORKER), id="64MiB-ps-to-worker"),
        pytest.param(64 * MIB, (WORKER, PS), id="64MiB-worker-to-ps"),
        pytest.param(512 * MIB, (PS, WORKER), id="512MiB-ps-to-worker"),
    ],
)
def test_large(cluster: Cluster, size: int, way: tuple[str, str]) -> None:
    """The receiver makes the same bytes itself and compares them there, to save memory."""
    with tf.Graph().as_default():
        seed = tf.compat.v1.placeholder(tf.int32, [2])
        with tf.device(task_device(way[0])):
            sent = tf.random.stateless_uniform([size // 8], seed, None, None, tf.int64)
        with tf.device(task_device(way[1])):
            got = tf.identity(sent)
            with tf.control_dependencies([got]):
                expected = tf.random.stateless_uniform([size // 8], seed, None, None, tf.int64)
            wrong = tf.math.count_nonzero(tf.not_equal(got, expected))
            fetches = {"wrong words": wrong, "words": tf.size(got), "ends": got[:: size // 8 - 1]}

        def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
            del on
            return fetches, {seed: [size // MIB, 7]}

        values, crossed = run(build, cluster.target(), graph=tf.compat.v1.get_default_graph())
    assert crossed[way] >= 1
    assert (values["wrong words"], values["words"]) == (0, size // 8)
    assert values["ends"].all()


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize(
    "width", few([1, 3, 64, 100], 3, 100), ids=lambda width: f"rows-of-{width}"
)
def test_slice(cluster: Cluster, width: int, way: tuple[str, str]) -> None:
    """Slices of a larger buffer: misaligned ones, and aligned ones that share its memory."""
    tensors = len(OFFSETS) * len(LENGTHS)
    check(cluster, partial(slices, way=way, width=width), [way], tensors=tensors)


@pytest.mark.parametrize("way", DIRECTIONS)
@pytest.mark.parametrize("name", VARIANTS)
def test_variant(cluster: Cluster, name: str, way: tuple[str, str]) -> None:
    check(cluster, partial(variants, way=way, names=[name]), [way])


def test_variant_without_decoder(cluster: Cluster) -> None:
    """A variant that stock TensorFlow cannot decode (a dataset) is an error, not a crash."""

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        zero = tf.constant(0, tf.int64)
        with on(PS):
            stop = tf.compat.v1.placeholder(tf.int64, [])
            sent = tf.raw_ops.RangeDataset(
                start=zero, stop=stop, step=zero + 1, output_types=[tf.int64], output_shapes=[[]]
            )
        with on(WORKER):
            size = tf.raw_ops.DatasetCardinality(input_dataset=tf.identity(sent))
        return {"size": size}, {stop: 5}

    with pytest.raises(tf.errors.OpError, match=r"decode|parse"):
        run(build, cluster.target(), seconds=OPERATION_SECONDS)
    test_resource_handle(cluster)


def test_resource_handle(cluster: Cluster) -> None:
    """A handle goes ps -> worker -> ps, and still names its variable."""
    build = partial(resource_handle, there=PS, back=WORKER)
    values, crossed = run(build, cluster.target())
    assert_same(values, {"same": np.bool_(True), "size": np.int32(1025)})
    assert crossed[PS, WORKER] >= 1 and crossed[WORKER, PS] >= 1
