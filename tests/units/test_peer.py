"""A measurement between two hosts, both of them this one: real processes and sockets, fake tasks.

The peer serves at 127.0.0.2, so that an address of the wrong host would show.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_tasks import make_runtime

from artf_cli import cluster
from artf_cli.bench import peers, record, recv
from artf_cli.errors import ArtfError
from artf_cli.peer import channel, host
from artf_cli.peer.channel import Channel, Closed
from artf_cli.peer.client import Peer
from artf_cli.supervise import Group

pytestmark = pytest.mark.timeout(60)

HERE = Path(sys.executable)
TOKEN = "0123456789abcdef"
WHEEL = record.WheelRecord(file="x.whl", sha256="1" * 64)
PEER = "127.0.0.2"
_AGENT = """
import json, socket, sys
from functools import partial
from pathlib import Path
from artf_cli import cluster
from artf_cli.peer import agent, host
runtime, logs, token, wheel = sys.argv[1:]
cluster._RUNTIME = Path(runtime)
listener = socket.create_server(("127.0.0.2", 0))
print(listener.getsockname()[1], flush=True)
facts = partial(host.facts, json.loads(wheel))
agent.Agent(listener, token, Path(sys.executable), facts, Path(logs)).run()
"""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    folder = make_runtime(tmp_path / "runtime", with_ar_grpc=True)
    monkeypatch.setattr(cluster, "_RUNTIME", folder)
    monkeypatch.setattr(recv, "PROCESS_BYTES", 0)
    return folder


class Served:
    """A serving process."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address

    def tasks(self) -> list[psutil.Process]:
        """What it started and what still runs."""
        return psutil.Process(self.process.pid).children()

    def note(self) -> str:
        """The next line that it notes on standard error."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()


@pytest.fixture
def served(runtime: Path, tmp_path: Path) -> Iterator[Served]:
    words = [sys.executable, "-c", _AGENT, str(runtime), str(tmp_path), TOKEN, json.dumps(WHEEL)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield Served(process, f"{PEER}:{int(process.stdout.readline())}")
        process.kill()


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_servers_run_on_the_peer_and_workers_here(served: Served, tmp_path: Path) -> None:
    (tmp_path / "wheel").write_bytes(b"")
    made = record.record(tmp_path / "wheel", ["x"])
    made["wheel"] = WHEEL
    with Peer(served.address, TOKEN) as peer:
        assert (peer.host, peer.own_host) == (PEER, "127.0.0.1")
        watch = peers.Watch(peer, made)
        hosts: list[dict[str, str]] = []
        running: list[list[str]] = []

        def look(clusters: Any) -> None:
            hosts.extend(each.addresses for each in clusters.values())
            running.append([" ".join(task.cmdline()) for task in served.tasks()])
            watch.look(clusters)

        rows = recv.run(
            HERE,
            ("grpc", "grpc+x"),
            ("8", "1KiB"),
            rounds=2,
            cold_rounds=0,
            progress=False,
            peer=peer,
            peer_memory=1 << 30,
            watch=look,
        )
        whole = watch.record()
    assert [(row["protocol"], row["bytes"], row["fabric"]) for row in rows] == [
        (protocol, size, "shm") for size in (8, 1024) for protocol in ("grpc", "grpc+x")
    ]
    assert [row["ratio"] for row in rows] == [1.0, 4.0, 1.0, 4.0]
    assert all(row["cpu_us_per_step"] for row in rows)
    for addresses in hosts:
        assert addresses["ps:0"].startswith(f"{PEER}:")
        assert addresses["worker:0"].startswith("127.0.0.1:")
    assert len(running[0]) == 2
    assert all("recv_worker.py" in command for command in running[0])
    # Two checks, and three steps in each of two rounds.
    moved = (8 + 1024) * (1 + 2 * 3)
    assert whole["counted"] == {
        label: {"ps:0": 0, "worker:0": moved} for label in ("grpc", "grpc+x")
    }
    assert set(whole["hosts"]) == set(whole["received"]) == {"here", "peer"}
    for facts in whole["hosts"].values():
        assert set(facts) == set(host.HostFacts.__annotations__) | set(
            record.Machine.__annotations__
        )
        assert facts["wheel"] == WHEEL
    assert whole["said"]["grpc"] == {"ps:0": [], "worker:0": []}
    until(lambda: not served.tasks())


def test_what_a_task_said_of_its_device_and_path(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "2026-01-01 00:00:00.1: I a.cc:1] AR-gRPC: RDMA over rxe0/1 (Ethernet)\n"
        "W AR-gRPC: connected to ipv4:10.0.0.2:1 over verbs\nother\n"
        "I AR-gRPC: connected to ipv4:10.0.0.2:1 over verbs\n"
    )
    assert cluster.fabric_lines(log) == [
        "RDMA over rxe0/1 (Ethernet)",
        "connected to ipv4:10.0.0.2:1 over verbs",
    ]


def test_a_task_that_fails_there_says_why_here(served: Served, tmp_path: Path) -> None:
    with Peer(served.address, TOKEN) as peer, Group(tmp_path) as group:
        made = cluster.Cluster(group, HERE, "recv_worker.py", "grpc+none", workers=1, peer=peer)
        with pytest.raises(ArtfError, match=r"grpc\+none-.* no server protocol 'grpc\+none'"):
            made.serve()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_task_ends_with_what_it_served(served: Served, tmp_path: Path, how: int) -> None:
    """Whatever becomes of the measuring host's process."""
    with Peer(served.address, TOKEN) as peer, Group(tmp_path) as group:
        child = peer.start(group, "task", "recv_worker.py", "grpc")
        assert json.loads(group.read([child], 20)[1])["event"] == "hello"
        assert len(served.tasks()) == 1
        os.kill(child.pid, how)
        until(lambda: not served.tasks())


def test_tasks_end_with_the_serving_process(served: Served, tmp_path: Path) -> None:
    with Peer(served.address, TOKEN) as peer, Group(tmp_path) as group:
        child = peer.start(group, "task", "recv_worker.py", "grpc")
        group.read([child], 20)
        (task,) = served.tasks()
        served.process.kill()
        until(lambda: not task.is_running() or task.status() == psutil.STATUS_ZOMBIE)
        with pytest.raises(ArtfError, match="the other host ended the connection"):
            group.read([child], 20)


@pytest.mark.parametrize(
    ("script", "variant", "says"),
    [
        ("task.py", "grpc", "start task.py is nothing to start"),
        ("../x", "grpc", "start ../x is nothing to start"),
        ("recv_worker.py", "rm -r", "'rm -r' is no way to run a protocol"),
    ],
)
def test_only_tasks_of_a_measurement_are_started(
    served: Served, tmp_path: Path, script: str, variant: str, says: str
) -> None:
    with Peer(served.address, TOKEN) as peer, Group(tmp_path) as group:
        child = peer.start(group, "task", script, variant)
        with pytest.raises(ArtfError) as caught:
            group.read([child], 20)
    assert says in caught.value.what
    assert not served.tasks()


def test_who_lacks_the_token_gets_nothing(served: Served) -> None:
    with pytest.raises(ArtfError, match="refuses: the token is another one") as caught:
        Peer(served.address, "f" * 16)
    assert "ARTF_PEER_TOKEN" in caught.value.cure
    assert not served.tasks()
    assert "it does not know the token" in served.note()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"[]\n", b"x" * 4096])
def test_strangers_are_let_go_and_others_still_served(served: Served, said: bytes) -> None:
    where = channel.parse_address(served.address)
    with socket.create_connection(where) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        stranger.settimeout(10)
        heard = b""
        try:
            while piece := stranger.recv(4096):
                heard += piece
        except ConnectionResetError:
            pass
    assert b"proof" not in heard
    with Peer(served.address, TOKEN) as peer:
        assert peer.received() == host.received()


def test_a_silent_stranger_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_GREETING_S", 0.1)
    theirs, ours = _pair()
    with theirs, ours, pytest.raises(Closed, match="timed out"):
        channel.welcome(ours, TOKEN)


def test_a_stranger_that_drips_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_GREETING_S", 0.2)
    theirs, ours = _pair()

    def drip() -> None:
        while True:
            try:
                theirs.sendall(b" ")
            except OSError:
                return
            time.sleep(0.05)

    thread = threading.Thread(target=drip)
    thread.start()
    begin = time.monotonic()
    with pytest.raises(Closed):
        channel.welcome(ours, TOKEN)
    ours.close()
    assert time.monotonic() - begin < 5
    thread.join()
    theirs.close()


def answering(lines: bytes) -> tuple[str, threading.Thread]:
    """The address of something that writes `lines` to who connects."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with server, server.accept()[0] as connection:
            connection.sendall(lines)
            connection.settimeout(10)
            while connection.recv(4096):
                pass

    thread = threading.Thread(target=answer)
    thread.start()
    return f"127.0.0.1:{server.getsockname()[1]}", thread


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (b"220 mail\r\n", "no `artf bench serve` answers at"),
        (b'{"artf": "other"}\n', "it speaks something else"),
        (
            b'{"artf": "bench serve", "version": 99, "nonce": "1"}\n',
            "speaks version 99 and this artf version 1",
        ),
        # Who does not prove that it knows the token, either.
        (
            b'{"artf": "bench serve", "version": 1, "nonce": "1"}\n{"proof": "1"}\n',
            "refuses: it does not know the token",
        ),
    ],
)
def test_what_answers_instead_is_said(lines: bytes, says: str) -> None:
    address, thread = answering(lines)
    with pytest.raises(ArtfError) as caught:
        Peer(address, TOKEN)
    thread.join()
    assert says in caught.value.what
    assert caught.value.cure


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ArtfError, match=f"no connection to 127.0.0.1:{port}: Connection refused"):
        Peer(f"127.0.0.1:{port}", TOKEN)


def test_messages_end_with_the_connection() -> None:
    one, other = map(Channel, _pair())
    one.send({"do": "x"})
    assert other.receive() == {"do": "x"}
    one.close()
    with pytest.raises(Closed, match="it closed the connection"):
        other.receive()
    with pytest.raises(Closed):
        other.send({})
        other.send({})
    other.close()


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


def facts(**different: Any) -> host.HostFacts:
    made: dict[str, Any] = {"wheel": WHEEL, "commit": "a" * 40, **different}
    return made  # type: ignore[return-value]


def test_both_hosts_must_run_the_same() -> None:
    host.check_same(facts(), facts(), "b:1")
    other = record.WheelRecord(file="y.whl", sha256="2" * 64)
    with pytest.raises(
        ArtfError, match=r"b:1 has the wheel y\.whl 222222222222, this host x\.whl 1"
    ):
        host.check_same(facts(), facts(wheel=other), "b:1")
    with pytest.raises(ArtfError, match="b:1 is at commit bbbbbbbbbbbbbbbbbb, this host at aaaa"):
        host.check_same(facts(), facts(commit="b" * 40), "b:1")


def test_ports_and_what_they_received(tmp_path: Path) -> None:
    root = tmp_path / "infiniband"
    port = root / "mlx5_0/ports/1"
    for name, text in {
        port / "gid_attrs/ndevs/0": "eth2\n",
        port / "counters/port_rcv_data": "250\n",
        port / "counters/port_rcv_packets": "7\n",
        tmp_path / "net/eth2/mtu": "9000\n",
        tmp_path / "net/eth2/statistics/rx_bytes": "5000\n",
        root / "rxe0/ports/1/hw_counters/rcvd_pkts": "3\n",
    }.items():
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_text(text)
    before = host.received(root)
    assert before == {
        # The counter goes in words of four bytes.
        "mlx5_0/1": {
            "received_packets": 7,
            "received_bytes": 1000,
            "received_bytes_of_network": 5000,
        },
        "rxe0/1": {"received_packets_of_driver": 3},
    }
    (port / "counters/port_rcv_packets").write_text("9\n")
    assert host.grown(before, host.received(root))["mlx5_0/1"] == {
        "received_packets": 2,
        "received_bytes": 0,
        "received_bytes_of_network": 0,
    }
    gid = {"index": 0, "gid": "fe80::1", "type": "RoCE v2"}
    shown = {
        "port": 1,
        "state": "ACTIVE",
        "link_layer": "Ethernet",
        "active_mtu": 4096,
        "max_mtu": 4096,
        "gids": [gid, gid],
        "pkeys": [],
        "probe": None,
    }
    found: Any = {"devices": [{"name": "mlx5_0", "ports": [shown], "error": ""}]}
    assert host.ports(found, root) == [
        {
            "name": "mlx5_0/1",
            "state": "ACTIVE",
            "link_layer": "Ethernet",
            "active_mtu": 4096,
            "max_mtu": 4096,
            "gid_types": ["RoCE v2"],
            "network": "eth2",
            "network_mtu": 9000,
        }
    ]


def test_a_token_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(channel.TOKEN_VARIABLE, raising=False)
    with pytest.raises(ArtfError, match="ARTF_PEER_TOKEN is not set"):
        peers.token()
    monkeypatch.setenv(channel.TOKEN_VARIABLE, "short")
    with pytest.raises(ArtfError, match="has 5 characters"):
        peers.token()
    assert len(channel.new_token()) == 32
    assert channel.new_token() != channel.new_token()
    # Tasks run programs of others' and do not need it.
    assert channel.TOKEN_VARIABLE not in cluster.environment({channel.TOKEN_VARIABLE: "x"})


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "::1:7", "h:70000"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ArtfError, match="is no address"):
        channel.parse_address(address)
