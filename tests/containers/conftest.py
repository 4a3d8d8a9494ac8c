"""An engine of the suite's own, whatever else runs here, and the images, built once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from artf_cli.containers import bases
from artf_cli.containers import engine as engine_module
from artf_cli.containers.engine import Engine
from artf_cli.containers.images import IMAGE_PYTHON, Image, build_runtime
from artf_cli.paths import DIST, cache_dir
from common.own_engine import SECRET, OwnEngine, refuse, why_not


@pytest.fixture(scope="session")
def own_engine() -> Iterator[OwnEngine]:
    """An engine of our own; where none can run, `refuse` says what becomes of who needs it."""
    reason = why_not()
    if reason:
        refuse(reason)
    own = OwnEngine.new(cache_dir())
    try:
        own.start()
    except RuntimeError as error:
        last = (str(error).strip().splitlines() or ["no message"])[-1]
        refuse(f"no Docker engine runs here: {last}")
    try:
        yield own
    finally:
        own.close()
    assert own.processes() == {}
    assert own.mounts() == []
    assert not own.folder.exists()


@pytest.fixture(scope="session")
def engine(own_engine: OwnEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """What `artf` finds, with the environment that leads to our engine."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own_engine.env.items():
            patch.setenv(name, value)
        # Another engine of this user's.
        for name in ("ARTF_ENGINE", "DOCKER_CONTEXT"):
            patch.delenv(name, raising=False)
        # Bases that were made here have no digest of a registry's.
        file = tmp_path_factory.mktemp("bases") / "bases.toml"
        file.write_text(re.sub(r'digest = ".*"', 'digest = ""', bases.FILE.read_text()))
        patch.setattr(bases, "FILE", file)
        # What no image may keep, see test_training.py.
        if not os.environ.get("ARTF_PIP_CONF"):
            conf = file.with_name("pip.conf")
            conf.write_text(f"# {SECRET}\n[global]\n")
            patch.setenv("ARTF_PIP_CONF", str(conf))
        yield engine_module.find()


@pytest.fixture(scope="session")
def images(own_engine: OwnEngine, engine: Engine) -> list[Image]:
    """The runtime and the quickstart image, with the wheel that was just built."""
    wheel = Path(os.environ["ARTF_WHEEL"])
    if wheel.parent != DIST or wheel.name.split("-")[2] != IMAGE_PYTHON:
        pytest.skip(f"the images take a wheel for {IMAGE_PYTHON} from dist/, not {wheel.name}")
    own_engine.load_base("debian:bookworm-slim")
    return build_runtime(engine, wheel, {})
