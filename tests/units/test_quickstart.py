"""The quickstart's driver over tasks that need no TensorFlow, and the kernel's byte counts."""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fake_tasks import make_runtime

from artf_cli import cluster, quickstart
from artf_cli.bench import train
from artf_cli.cluster import environment, observed_paths
from artf_cli.console import out
from artf_cli.errors import ArtfError

RUNTIME = Path(cluster.__file__).with_name("runtime")
HERE = Path(sys.executable)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


tcp_info = load(RUNTIME / "tcp_info.py")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    folder = make_runtime(tmp_path / "runtime")
    monkeypatch.setattr(cluster, "_RUNTIME", folder)
    return folder


def test_a_training_gives_one_run(runtime: Path) -> None:
    (run,) = quickstart.run(HERE, ["grpc"], rounds=2)
    # Both workers train 100 steps in a second, one after the other or at once.
    assert 50 <= run["steps_per_second"] <= 200
    sent = 2 * (2 * train.DEFAULT_STEPS + train._WARM_STEPS) * (1000 + 8)
    assert {**run, "steps_per_second": 0} == {
        "protocol": "grpc",
        "steps_per_second": 0,
        "accuracy": 0.98,
        "bytes_sent": sent,
        "paths": {"worker:0": "tcp", "worker:1": "tcp"},
    }


def test_protocols_take_turns(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    trained = train.run(HERE, ["grpc", "grpc+x", "grpc"], rounds=3, steps=5)
    assert [one.protocol for one in trained] == ["grpc", "grpc+x"]
    assert [len(one.steps_per_second) for one in trained] == [3, 3]
    warm, both, turned = ["grpc 5", "grpc+x 5"], ["grpc 5", "grpc+x 5"], ["grpc+x 5", "grpc 5"]
    assert (tmp_path / "log").read_text().splitlines() == warm + both + turned + both


def test_a_round_with_a_step_run_again_is_not_timed(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_REPEATED", "2")
    (one,) = train.run(HERE, ["grpc"], rounds=2, steps=5)
    assert len(one.steps_per_second) == 2
    assert one.bytes_sent == 2 * (3 * 5 + train._WARM_STEPS) * (1000 + 8)
    monkeypatch.setenv("FAKE_REPEATED", "2,3,4")
    with pytest.raises(ArtfError, match="LeNet over grpc ran steps again in each of 3 rounds"):
        train.run(HERE, ["grpc"], rounds=1, steps=5)


def test_a_rate_is_compared_the_other_way_round() -> None:
    stock = train.Trained("grpc", [100.0] * 6, 0.98, 1, {"worker:0": "tcp", "worker:1": "tcp"})
    ours = train.Trained("grpc+ar", [120.0, 130.0] * 3, 0.97, 1, {"worker:0": "shm"})
    rows = train.rows_of([stock, ours])
    assert [row["ratio"] for row in rows] == [1.0, 1.25]
    assert rows[1]["ratio_interval"] == [1.2, 1.3]
    assert rows[1]["median"] == 125.0
    assert [row["fabric"] for row in rows] == ["tcp", "shm"]
    assert train.rows_of([ours])[0]["ratio"] is None


@pytest.mark.parametrize(("share", "path"), [("1", "shm"), ("2", "unknown")])
def test_a_fabric_counts_when_it_carried_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str, path: str
) -> None:
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_SHARE", share)
    folder = make_runtime(tmp_path / "runtime", with_ar_grpc=True)
    monkeypatch.setattr(cluster, "_RUNTIME", folder)
    (run,) = train.run(HERE, ["grpc+ar"], rounds=1, steps=5)
    assert run.paths == {"worker:0": path, "worker:1": path}


def test_a_path_that_carried_nothing_is_not_called_tcp(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRAVELS", "0")
    (run,) = train.run(HERE, ["grpc"], rounds=1, steps=5)
    assert run.paths == {"worker:0": "unknown", "worker:1": "unknown"}


def test_low_accuracy_is_an_error(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ACCURACY", "0.949")
    with pytest.raises(ArtfError, match=r"LeNet over grpc reads 94\.9% .* less than 95%"):
        train.run(HERE, ["grpc"], rounds=1, steps=5)


def test_a_failing_task_is_named(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DEATH", "1")
    with pytest.raises(ArtfError) as caught:
        train.run(HERE, ["grpc"], rounds=1, steps=5)
    expected = "grpc-worker1 ended with status 1: OSError: the network fell over"
    assert caught.value.what == expected
    log = Path(caught.value.cure.replace("read its log ", ""))
    assert "Traceback" in log.read_text()


def test_an_unknown_protocol_is_named(runtime: Path) -> None:
    said = "has no server protocol 'grpc+none' (it has GRPC_SERVER)"
    with pytest.raises(ArtfError, match=re.escape(said)):
        train.run(HERE, ["grpc+none"], rounds=1, steps=5)


def test_render() -> None:
    run = quickstart.Run(
        protocol="grpc+ar",
        steps_per_second=123.4,
        accuracy=0.9833,
        bytes_sent=5_600_000,
        paths={"worker:0": "tcp", "worker:1": "shm"},
    )
    with out.capture() as capture:
        quickstart.render_runs([run])
    text = capture.get()
    for word in ("grpc+ar", "123.4", "98.3%", "5.6", "worker:0 tcp", "worker:1 shm"):
        assert word in text


def test_the_tasks_environment_has_no_proxy_and_no_gpu() -> None:
    base = {"HTTPS_PROXY": "http://x", "grpc_proxy": "y", "TF_CONFIG": "{}", "HOME": "/h"}
    assert environment(base) == {
        "HOME": "/h",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }


def report(*connections: tuple[int, str, str, int]) -> dict[str, Any]:
    names = ("inode", "local", "remote", "bytes_sent")
    return {
        "connections": [dict(zip(names, c)) for c in connections],
        "fabrics": {},
        "fabric_bytes_received": 0,
    }


def test_tcp_needs_both_ends_and_the_bytes() -> None:
    def paths(before: int, after: int, worker_end: str) -> dict[str, str]:
        return observed_paths(
            {"ps:0": report((1, "a:1", "b:2", before))},
            {
                "ps:0": report((1, "a:1", "b:2", after)),
                "worker:0": report((9, worker_end, "a:1", 0)),
            },
            {"worker:0": 100},
        )

    assert paths(50, 150, "b:2") == {"worker:0": "tcp"}
    assert paths(51, 150, "b:2") == {"worker:0": "unknown"}
    assert paths(0, 150, "b:3") == {"worker:0": "unknown"}


@pytest.mark.parametrize("channel", ["mpi", "verbs"])
def test_a_classic_channel_is_the_path_of_the_bytes_it_brought(channel: str) -> None:
    """TCP has its calls alone; and bytes of an earlier round do not count."""

    def path(before: int, after: int) -> str:
        def said(count: int) -> dict[str, dict[str, Any]]:
            worker = report((9, "b:2", "a:1", 0))
            worker["classic_bytes_received"] = {"mpi": 0, "verbs": 0, channel: count}
            return {"ps:0": report((1, "a:1", "b:2", 0)), "worker:0": worker}

        return observed_paths(said(before), said(after), {"worker:0": 100})["worker:0"]

    assert path(0, 100) == path(70, 170) == channel
    assert path(70, 169) == path(0, 0) == "unknown"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_tcp_info_counts_a_known_transfer(family: socket.AddressFamily) -> None:
    size = 3_000_017
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError as error:
        pytest.skip(f"no loopback for {family.name}: {error}")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        server, _ = listener.accept()
        with server:
            received: list[int] = []

            def drain() -> None:
                while sum(received) < size:
                    received.append(len(server.recv(1 << 20)))

            thread = threading.Thread(target=drain)
            thread.start()
            client.sendall(bytes(size))
            thread.join()
            found = {tcp.local: tcp for tcp in tcp_info.tcp_sockets()}
            ends = [tcp_info._address(s.getsockname()) for s in (client, server)]
            assert found[ends[0]].remote == ends[1]
            assert found[ends[1]].remote == ends[0]
            assert found[ends[0]].established
            assert found[ends[0]].bytes_sent == size
            assert found[ends[1]].bytes_received == size
            assert found[ends[1]].bytes_sent == 0
            # A duplicate is the same connection: it is not counted again.
            with client.dup():
                assert tcp_info.bytes_sent() == sum(tcp.bytes_sent for tcp in found.values())
            assert tcp_info._address(listener.getsockname()) not in {
                tcp.local for tcp in tcp_info.tcp_sockets() if tcp.local != ends[1]
            }
            # Looking at the descriptors left them as they were.
            server.sendall(b"x")
            assert client.recv(1) == b"x"


def test_other_sockets_are_not_counted() -> None:
    before = {tcp.inode for tcp in tcp_info.tcp_sockets()}
    one, other = socket.socketpair()
    with one, other, socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        assert {tcp.inode for tcp in tcp_info.tcp_sockets()} == before


def test_an_address_is_the_same_in_both_families() -> None:
    assert tcp_info._address(("::ffff:127.0.0.1", 80)) == tcp_info._address(("127.0.0.1", 80))


def test_old_kernels() -> None:
    raw = bytearray(240)
    struct.pack_into("=QQ", raw, 120, 7, 8)
    struct.pack_into("=QQ", raw, 200, 12, 3)
    raw[0] = 1
    assert tcp_info.counters(bytes(raw)) == (1, 9, 8)
    assert tcp_info.counters(bytes(raw[:200])) == (1, 7, 8)
    with pytest.raises(OSError, match="counts no payload"):
        tcp_info.counters(bytes(raw[:104]))


def test_the_offsets_are_those_of_the_kernels_header(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None or not Path("/usr/include/linux/tcp.h").exists():
        pytest.skip("no C compiler, or no Linux headers")
    source = tmp_path / "offsets.c"
    source.write_text(
        "#include <linux/tcp.h>\n#include <stddef.h>\n#define AT(f) offsetof(struct tcp_info, f)\n"
        + "".join(
            f'_Static_assert(AT({field}) == {offset}, "{field}");\n'
            for field, offset in (
                ("tcpi_state", 0),
                ("tcpi_bytes_acked", tcp_info._BYTES_ACKED),
                ("tcpi_bytes_retrans", tcp_info._BYTES_RETRANSMITTED),
                ("tcpi_bytes_received", tcp_info._BYTES_RECEIVED),
                ("tcpi_bytes_sent", tcp_info._BYTES_SENT),
            )
        )
    )
    done = subprocess.run([compiler, "-fsyntax-only", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_step_that_collided_is_run_again(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(runtime))
    for name in ("tensorflow", "task", "timing"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    task = load(runtime / "task.py")
    aborted = task.tf.errors.AbortedError
    twice = aborted("The same RunGraph request was received twice. step_id: 1")
    outcomes: list[Any] = [twice, twice, "value"]

    def step() -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert task.run_step(step) == "value"
    # What is timed of a step that collided is the try that did not.
    timing = load(RUNTIME / "timing.py")

    def slow_collision() -> Any:
        if isinstance(outcomes[0], Exception):
            time.sleep(0.5)
        return step()

    outcomes[:] = ["value", twice, "value", "value"]
    taken = timing.burst(slow_collision, start=0, seconds=0, least=3)
    assert len(taken["samples_us"]) == 3
    assert max(taken["samples_us"]) < 400_000
    assert 0 <= taken["seconds"] < 0.4
    outcomes[:] = [twice] * 3
    with pytest.raises(aborted, match="twice"):
        task.run_step(step)
    outcomes[:] = [aborted("the parameter server restarted"), "value"]
    with pytest.raises(aborted, match="restarted"):
        task.run_step(step)
    for name in ("tensorflow", "task", "timing"):
        sys.modules.pop(name, None)
