"""The wheel of the last release as a peer: a client or a server of protocol version 1.

It runs where ARTF_OLD_PYTHON names an interpreter whose TensorFlow is that wheel, of the same
version of Python: `ARTF_OLD_PYTHON=…/bin/python scripts/artf test --only faults -- -k old_wheel`.
What such a peer says is scripted in test_ar_handshake.py, which runs always.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from common.frames import OLD_VERSION, VERSION, hello
from common.pair import MIB, PS, SUM, WORKER, large_step, session_at, summed
from common.processes import ServerProcess, own_address
from common.protocols import AR
from common.scripted import receive_frame

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not os.environ.get("ARTF_OLD_PYTHON"),
        reason="ARTF_OLD_PYTHON names no interpreter with the last release's wheel",
    ),
]


@pytest.fixture
def fabric() -> str:
    return "shm"


class Pair:
    """A ps and a worker of two wheels."""

    def __init__(self, spec: dict[str, list[str]], servers: dict[str, ServerProcess]) -> None:
        self.spec = spec
        self._servers = servers

    def __getitem__(self, task: str) -> ServerProcess:
        return self._servers[task]

    def target(self, task: str) -> str:
        job, _ = task.split(":")
        return f"{AR}://{self.spec[job][0]}"


@contextmanager
def started(old: str, allowed: str, folder: Path) -> Iterator[Pair]:
    """`old` is the task that runs the old wheel."""
    spec = {"ps": [own_address()], "worker": [own_address()]}
    servers: dict[str, ServerProcess] = {}
    with ExitStack() as stack:
        for job in spec:
            task = f"{job}:0"
            python = os.environ["ARTF_OLD_PYTHON"] if task == old else sys.executable
            env = {"AR_GRPC_FABRICS": allowed}
            log = folder / f"{job}.stderr"
            servers[task] = ServerProcess(spec, job, 0, AR, log, env, python)
            stack.callback(servers[task].kill)
        for server in servers.values():
            server.wait_ready()
        yield Pair(spec, servers)


@pytest.mark.parametrize("allowed", ["shm,tcp", "tcp"])
@pytest.mark.parametrize("old", [PS, WORKER])
def test_steps_with_the_old_wheel(old: str, allowed: str, tmp_path: Path) -> None:
    """Either end may be the old one, either way: values are right, and the path is the best one."""
    path = allowed.split(",")[0]
    with started(old, allowed, tmp_path) as pair:
        for task, peer in ((PS, WORKER), (WORKER, PS)):
            # From it to its peer, to whom it is the client.
            with session_at(pair.target(task)) as session:
                before = {each: pair[each].status() for each in (task, peer)}
                assert session.run(large_step((peer, task), 4, parts=2)) == 0.0
                after = {each: pair[each].status() for each in (task, peer)}
            server = f"ipv4:{pair.spec[peer.split(':')[0]][0]}"
            assert after[task]["paths"].get(server) == path, after[task]
            sent, received = (
                after[each][name] - before[each][name]
                for each, name in ((peer, "stream_bytes_sent"), (task, "stream_bytes_received"))
            )
            # In the messages, over the fabric's stream, and nothing out of the peer's memory.
            if path == "shm":
                assert received >= 8 * MIB and sent >= 8 * MIB, (sent, received)
            else:
                assert (sent, received) == (0, 0)
            assert after[task]["rendezvous"] == before[task]["rendezvous"]
            assert summed(pair.target(task)) == SUM
        for task in (PS, WORKER):
            assert pair[task].alive() and pair[task].status()["offers_open"] == 0


def test_which_end_is_old(tmp_path: Path) -> None:
    """The control: the one answers a hello of version 2 in version 1, the other in version 2."""
    with started(PS, "shm,tcp", tmp_path) as pair:
        for job, version in (("ps", OLD_VERSION), ("worker", VERSION)):
            host, port = pair.spec[job][0].split(":")
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(hello("shm"))
                assert receive_frame(connection).version == version
