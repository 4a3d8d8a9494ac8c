"""An engine for the suite: its own where none can be used, and the images, built once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from artf_cli.containers import engine as engine_module
from artf_cli.containers.engine import Engine
from artf_cli.containers.images import IMAGE_PYTHON, Image, build_runtime
from artf_cli.paths import DIST, cache_dir
from common.own_engine import OwnEngine, why_not


@pytest.fixture(scope="session")
def own_engine() -> Iterator[OwnEngine]:
    """An engine of our own; the tests that need one skip with the reason where none can run."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="engine-", dir=cache_dir()))
    own = OwnEngine(folder)
    try:
        own.start()
    except RuntimeError as error:
        last = (str(error).strip().splitlines() or ["no message"])[-1]
        pytest.skip(f"no Docker engine runs here: {last}")
    try:
        yield own
    finally:
        own.close()
    assert own.processes() == []
    assert own.mounts() == []
    assert not folder.exists()


@pytest.fixture(scope="session")
def engine(own_engine: OwnEngine) -> Iterator[Engine]:
    """What `artf` finds, with the environment that leads to our engine."""
    before = dict(os.environ)
    os.environ.update(own_engine.env)
    yield engine_module.find()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def images(own_engine: OwnEngine, engine: Engine) -> list[Image]:
    """The runtime and the quickstart image, with the wheel that was just built."""
    wheel = Path(os.environ["ARTF_WHEEL"])
    if wheel.parent != DIST or wheel.name.split("-")[2] != IMAGE_PYTHON:
        pytest.skip(f"the images take a wheel for {IMAGE_PYTHON} from dist/, not {wheel.name}")
    own_engine.load_base("debian:bookworm-slim")
    return build_runtime(engine, wheel, {})
