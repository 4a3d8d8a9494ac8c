"""Real containers on a real engine: the image, and the three layouts of docker/compose.yaml."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from artf_cli import pins
from artf_cli.containers.engine import Engine
from artf_cli.containers.images import Image
from artf_cli.containers.training import TASKS, Training, run_of
from artf_cli.errors import ArtfError
from artf_cli.progress import Meter
from common.ar import eventually
from common.own_engine import SECRET, OwnEngine
from common.protocols import AR
from common.repeated import few

pytestmark = pytest.mark.timeout(900)

STEPS = 400
#: TensorFlow's channels wait a second after a failed connect, and longer after the next; a step is
#: tried each 0.2 s.
RECONNECTS = 20
PATHS = {"volume": "shm", "namespace": "shm", "apart": "tcp"}


def quiet() -> Meter:
    return Meter("", 1, shown=False)


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first true value of `condition`."""
    value = eventually(condition, seconds, every=0.2)
    assert value, f"not within {seconds:.0f} s: {what}"
    return value


def run_in(own: OwnEngine, image: str, *command: str) -> str:
    """What a command prints in a new container that reaches nothing."""
    return own.docker("run", "--rm", "--network", "none", image, *command).stdout


def test_the_runtime_image_is_small_and_not_root(
    own_engine: OwnEngine, engine: Engine, images: list[Image]
) -> None:
    runtime = images[0]
    size = int(run_in(own_engine, runtime.name, "du", "-s", "-B1", "/opt/tensorflow").split()[0])
    assert runtime.bytes <= 1.3 * size, f"{runtime.bytes} bytes for {size} of wheel and needs"
    found = engine.inspect(runtime.name)
    assert found is not None
    assert found["Config"]["User"] == "1000:1000"
    labels = found["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == pins.load().version
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.revision"]
    code = "import ctypes, os; ctypes.CDLL('libibverbs.so.1'); print(os.getuid())"
    assert run_in(own_engine, runtime.name, "python", "-c", code).split() == ["1000"]


def test_no_image_keeps_what_a_site_passed_in(own_engine: OwnEngine, images: list[Image]) -> None:
    proxy = own_engine.env["ARTF_BUILD_PROXY"].rpartition("/")[2]
    for image in images:
        kept = own_engine.docker("image", "inspect", image.name).stdout
        kept += own_engine.docker("history", "--no-trunc", image.name).stdout
        assert proxy not in kept
        assert SECRET not in kept
        look = (
            f"grep -rlF -e '{proxy}' -e '{SECRET}' --exclude-dir=proc --exclude-dir=sys / "
            "2>/dev/null; ls /run/secrets"
        )
        words = ["run", "--rm", "--network", "none", "--user", "0", image.name, "sh", "-c", look]
        assert own_engine.docker(*words, check=False).stdout == ""


def test_the_health_check_trains_a_step(own_engine: OwnEngine, images: list[Image]) -> None:
    """Healthy while the server runs, unhealthy when it stands still."""
    settings = ["--env", "CLUSTER=ps=127.0.0.1:2222 worker=127.0.0.1:2223", "--env", "TASK=ps:0"]
    settings += ["--health-interval=1s", "--health-timeout=40s", "--health-retries=1"]
    words = ["run", "--detach", "--network", "none", "--health-start-period=0s", *settings]
    container = own_engine.docker(*words, images[-1].name).stdout.strip()

    def health() -> dict[str, Any]:
        text = own_engine.docker("inspect", "--format", "{{json .State}}", container).stdout
        state: dict[str, Any] = json.loads(text)
        return state

    try:
        state = until(
            lambda: health()["Health"]["Status"] == "healthy" and health(), 180, "healthy"
        )
        said = state["Health"]["Log"][-1]["Output"]
        assert "a step of training over grpc+ar://127.0.0.1:2222 is right" in said
        os.kill(state["Pid"], signal.SIGSTOP)
        until(lambda: health()["Health"]["Status"] == "unhealthy", 150, "unhealthy")
    finally:
        own_engine.docker("rm", "--force", container)


def test_without_a_server_the_health_check_makes_its_own(
    own_engine: OwnEngine, images: list[Image]
) -> None:
    said = run_in(own_engine, images[0].name, "python", "/opt/ar-grpc/health.py")
    assert said.startswith("a step of training over ")


def left(own: OwnEngine) -> list[str]:
    """Containers, networks and volumes of the engine."""
    names = own.docker("ps", "--all", "--quiet").stdout.split()
    names += own.docker("volume", "ls", "--quiet").stdout.split()
    networks = own.docker("network", "ls", "--format", "{{.Name}}").stdout.split()
    return names + [name for name in networks if name not in ("bridge", "host", "none")]


@pytest.mark.parametrize("layout", few(PATHS, "volume"))
def test_a_layout_trains_over_its_path(
    own_engine: OwnEngine, engine: Engine, images: list[Image], layout: str, tmp_path: Path
) -> None:
    with Training(engine, images[-1].name, layout, AR, STEPS) as training:
        results = training.wait(quiet(), tmp_path)
        logs = {task: training.log(name) for task, name in training.containers().items()}
    run = run_of(AR, results)
    path = PATHS[layout]
    assert run["paths"] == {"worker:0": path, "worker:1": path}
    assert run["accuracy"] >= 0.95
    assert results["worker:0"]["steps"] + results["worker:1"]["steps"] >= 2 * STEPS
    for task in TASKS[1:]:
        lines = [line for line in logs[task].splitlines() if " connected to " in line]
        reasons = [line for line in lines if f":2222 over {path}" in line]
        assert reasons, logs[task]
        if path == "tcp":
            assert reasons[0].partition(" over tcp: ")[2], "the reason is missing"
    assert left(own_engine) == []


def sockets(own: OwnEngine, container: str) -> set[str]:
    return set(own.docker("exec", container, "ls", "/run/ar-grpc").stdout.split())


@pytest.mark.slow
def test_a_killed_worker_takes_part_again(
    own_engine: OwnEngine, engine: Engine, images: list[Image], tmp_path: Path
) -> None:
    """The others train on, it comes again and trains on, and its socket is swept.

    It says what it does for that itself: it tries its first steps again until the parameter server
    has connected to it anew. No later step, and none of the others, is tried again.
    """
    steps = 1500

    def progress(task: str) -> int:
        said = training.answers(names[task])
        return max((int(one["step"]) for one in said if one["event"] == "progress"), default=0)

    with Training(engine, images[-1].name, "volume", AR, steps) as training:
        names = training.containers()
        until(lambda: progress("worker:1") > 50, 120, "both workers train")
        before = sockets(own_engine, names["ps:0"])
        assert len(before) == 3
        reached = progress("worker:0")
        os.kill(training.state(names["worker:1"])["Pid"], signal.SIGKILL)
        until(lambda: progress("worker:0") > reached + 20, 30, "the other worker trains on")

        def starts() -> list[dict[str, Any]]:
            said = training.answers(names["worker:1"])
            return [one for one in said if one["event"] == "training"]

        first, again = until(lambda: len(starts()) == 2 and starts(), 120, "it trains again")
        after = sockets(own_engine, names["ps:0"])
        results = training.wait(quiet(), tmp_path)
        restarts = {task: training.state(name)["RestartCount"] for task, name in names.items()}
    assert first["step"] < 50
    assert again["step"] > reached
    assert first["tried_again"] == []
    assert len(again["tried_again"]) <= RECONNECTS, again
    assert restarts == {"ps:0": 0, "worker:0": 0, "worker:1": 1}
    assert len(after) == 3, "the dead worker's socket is still there"
    assert len(before - after) == 1
    assert results["worker:1"]["steps"] > 0
    run = run_of(AR, results)
    assert run["paths"] == {"worker:0": "shm", "worker:1": "shm"}
    assert run["accuracy"] >= 0.95
    assert left(own_engine) == []


@pytest.mark.slow
def test_a_container_that_fails_is_named_and_nothing_is_left(
    own_engine: OwnEngine, engine: Engine, images: list[Image], tmp_path: Path
) -> None:
    with (
        pytest.raises(ArtfError, match=r"the container of .* ended with status 1: .*'no-such'"),
        Training(engine, images[-1].name, "apart", "no-such", STEPS) as training,
    ):
        training.wait(quiet(), tmp_path)
    assert left(own_engine) == []


@pytest.mark.parametrize("which", few([0, 1], 0), ids=["runtime", "quickstart"])
def test_the_image_says_what_it_is_made_of(
    own_engine: OwnEngine, images: list[Image], which: int
) -> None:
    image = images[which].name
    text = run_in(own_engine, image, "cat", "/usr/share/ar-grpc/sbom.cdx.json")
    bill = json.loads(text)
    assert bill["bomFormat"] == "CycloneDX"
    parts = {part["name"]: part for part in bill["components"]}
    ours = parts["tensorflow-cpu"]
    manifest = pins.load()
    assert ours["version"] == manifest.version
    assert {part["name"]: part["version"] for part in ours["components"]} == {
        name: source.version for name, source in manifest.sources.items()
    }
    listed = run_in(own_engine, image, "pip", "list", "--format=json")
    for package in json.loads(listed):
        assert parts[package["name"]]["version"] == package["version"]
    assert parts["libibverbs1"]["purl"].startswith("pkg:deb/debian/libibverbs1@")
    debian = run_in(own_engine, image, "dpkg-query", "-W", "-f", "${Package}\n").split()
    assert set(debian) <= set(parts)
