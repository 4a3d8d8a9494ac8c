"""The AR endpoint against peers that are stock, killed, stopped or out of luck.

Whatever becomes of a peer, an error or plain TCP comes of it in time, and the next step works. What
peers say in the handshake is test_ar_handshake.py's.
"""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
import tensorflow as tf

from common.ar import descriptors, eventually, offers, path_of, settle, wait_no_offers
from common.fixtures import ClusterFactory
from common.frames import (
    OLD_VERSION,
    VERDICT,
    VERSION,
    Answer,
    Attach,
    OldAnswer,
    ShmReply,
    ShmRequest,
    TokenFrame,
    Verdict,
    hello,
)
from common.limits import LATE, SEEN
from common.loops import Loop, callable_of
from common.pair import (
    MIB,
    PS,
    SUM,
    WORKER,
    assert_works,
    large_step,
    session_at,
)
from common.processes import Cluster, own_address, run_program
from common.protocols import AR, STOCK
from common.repeated import few
from common.scripted import receive_frame, serves_http2

pytestmark = pytest.mark.timeout(120)

PROGRAMS = Path(__file__).with_name("programs")
#: Completion queues of a server: each keeps the descriptor that it was first polled with.
QUEUES = 11


@pytest.fixture
def fabric() -> str:
    return "shm"


# --- stock peers, and what AR_GRPC_FABRICS forces -------------------------------------------------


def test_stock_client(pair: Cluster) -> None:
    """`grpc://` reaches a server of grpc+ar, which takes it for what it is."""
    assert_works(pair, "shm")
    links = pair[PS].status()["links"]
    with session_at(pair.target(PS)) as session:
        value = session.run(tf.fill([MIB], 3.0))
        assert (value == 3.0).all() and value.size == MIB
        assert pair[PS].status()["links"] == links


def test_client_of_a_stock_server(stock: Cluster) -> None:
    """The first connection learns it by a hello, the second within a minute says none."""
    settings = {"targets": [stock.target(PS, AR)] * 3, "seconds": 20}
    outcome = run_program(PROGRAMS / "ar_client.py", settings)
    result = outcome.result()
    assert [each.get("value") for each in result["attempts"]] == [SUM] * 3
    whys = re.findall(r"connected to ipv4:\S+ over tcp: (.*)", outcome.stderr)
    plain = "it does not speak AR-gRPC"
    assert whys == [plain, "it is known not to speak AR-gRPC", "it is known not to speak AR-gRPC"]
    assert (result["status"]["links"], result["status"]["stream_bytes_sent"]) == (0, 0)


@pytest.mark.parametrize("stock_task", [PS, WORKER])
def test_stock_task_in_a_cluster(new_ar_cluster: ClusterFactory, stock_task: str) -> None:
    """Tensors go both ways between a stock task and one of grpc+ar, all of them over plain TCP."""
    cluster = new_ar_cluster(protocols={stock_task: STOCK}, ps=1, worker=1)
    assert_works(cluster, None)
    for task in (PS, WORKER):
        status = cluster[task].status()
        assert (status["paths"], status["links"]) == ({}, 0)
        assert status["stream_bytes_sent"] == status["rendezvous_bytes"] == 0


def test_forced_fabric_to_a_stock_server(stock: Cluster) -> None:
    """A client that may use nothing but shared memory ends at its deadline; its log says why."""
    settings = {"targets": [stock.target(PS, AR)], "seconds": 3}
    outcome = run_program(PROGRAMS / "ar_client.py", settings, env={"AR_GRPC_FABRICS": "shm"})
    (attempt,) = outcome.result()["attempts"]
    # TensorFlow dials a master until its deadline, whatever the reason that it cannot be reached.
    assert attempt["error"] == "DeadlineExceededError", attempt
    assert 3 <= attempt["seconds"] < 3 + LATE
    assert "AR_GRPC_FABRICS=shm allows no tcp" in outcome.stderr
    assert "it does not speak AR-gRPC" in outcome.stderr


def test_forced_fabric_that_no_longer_reaches(new_ar_cluster: ClusterFactory) -> None:
    """A step to a task that now allows only tcp is Unavailable, at once, with the reason."""
    envs = {WORKER: {"AR_GRPC_FABRICS": "shm"}, PS: {}}
    cluster = new_ar_cluster(envs=envs, ps=1, worker=1)
    with session_at(cluster.target()) as session:
        step = large_step((PS, WORKER), 1)
        assert session.run(step) == 0.0
        # A call while no server is there would leave its own reason for the next one.
        assert eventually(lambda: cluster[PS].status()["cleanups"]["called"] == 1, LATE)
        envs[PS]["AR_GRPC_FABRICS"] = "tcp"
        cluster.restart(PS)
        began = time.monotonic()
        with pytest.raises(tf.errors.UnavailableError, match="AR_GRPC_FABRICS=shm allows no tcp"):
            session.run(step)
        assert time.monotonic() - began < LATE
        envs[PS]["AR_GRPC_FABRICS"] = "shm"
        cluster.restart(PS)  # a session's close waits for its tasks


def test_what_a_client_lacks_is_in_its_log(new_ar_cluster: ClusterFactory) -> None:
    """Also where it has another fabric: who looks for RDMA reads why there is none."""
    library = "/missing/libibverbs.so.1"
    envs = {PS: {"AR_IBVERBS_LIB": library}, WORKER: {"AR_GRPC_FABRICS": "tcp"}}
    cluster = new_ar_cluster(envs=envs, ps=1, worker=1)
    with session_at(cluster.target(PS)) as session:
        assert session.run(large_step((WORKER, PS), 1)) == 0.0
    assert path_of(cluster, PS, WORKER) == "tcp"
    log = cluster[PS].tail()
    none = "the server allows none of the client's fabrics"
    assert re.search(rf"connected to \S+ over tcp: {none}; verbs: [^\n]*{library}", log), log


@pytest.mark.parametrize("value", ["nonsense", "^shm,verbs,tcp"])
def test_unusable_fabrics(value: str) -> None:
    """Neither a server nor a session is made, and the error names the value and the choice."""
    settings = {"server": {"ps": [own_address()]}, "targets": [f"{AR}://127.0.0.1:1"]}
    outcome = run_program(
        PROGRAMS / "ar_client.py", {**settings, "seconds": 3}, env={"AR_GRPC_FABRICS": value}
    )
    for attempt in outcome.result()["attempts"]:
        assert attempt["error"] == "InvalidArgumentError"
        assert f"AR_GRPC_FABRICS={value}:" in attempt["text"]
        assert "known names: shm, verbs, tcp" in attempt["text"]


# --- peers that are killed or stopped -------------------------------------------------------------


def test_idle_peer_killed(pair: Cluster) -> None:
    """The other end knows it without a step, and reaches the next one over shared memory."""
    assert_works(pair, "shm")
    assert pair[WORKER].status()["links"] > 0
    pair[PS].kill()
    assert eventually(lambda: pair[WORKER].status()["links"] == 0, LATE)
    pair.restart(PS)
    assert_works(pair, "shm")


@pytest.mark.parametrize(
    ("mib", "sender", "receiver"),
    few(
        [(mib, *way) for mib in (64, 256) for way in ((PS, WORKER), (WORKER, PS))],
        (64, PS, WORKER),
        (256, WORKER, PS),
    ),
)
def test_peer_killed_in_a_rendezvous(pair: Cluster, mib: int, sender: str, receiver: str) -> None:
    """The ps dies while it sends, or receives; what the survivor held for that is free again."""
    assert_works(pair, "shm")
    in_use = pair[WORKER].status()["arena"]["in_use"]
    with session_at(pair.target()) as session:
        loop = Loop(callable_of(session, large_step((sender, receiver), mib // 4, parts=4)))
        loop.wait_steps(2)
        time.sleep(0.03)
        killed = time.monotonic()
        pair[PS].kill()
        loop.is_lost(PS, killed)
        wait_no_offers(pair, WORKER)
        settle(in_use + MIB, lambda: pair[WORKER].status()["arena"]["in_use"])
        pair.restart(PS)  # a session's close waits for its tasks
    assert_works(pair, "shm")


@pytest.mark.parametrize(
    ("fabric", "kills"),
    [
        ("tcp", 2),
        pytest.param("shm", 20, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param("tcp", 20, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_kills_are_seen_at_once(pair: Cluster, fabric: str, kills: int) -> None:
    """Of the sender and of the receiver, in small steps and in large ones."""
    assert_works(pair, fabric)
    seconds = []
    for kill in range(kills):
        with session_at(pair.target()) as session:
            way = ((PS, WORKER), (WORKER, PS))[kill % 2]
            loop = Loop(callable_of(session, large_step(way, 1 if kill % 4 < 2 else 16, parts=4)))
            loop.wait_steps(3)
            time.sleep(0.01 * (kill % 7))
            killed = time.monotonic()
            pair[PS].kill()
            loop.is_lost(PS, killed)
            seconds.append(round(loop.failed_at - killed, 3))
            pair.restart(PS)  # a session's close waits for its tasks
    print(f"{fabric}: seen after {sorted(seconds)} s")
    assert statistics.median_low(seconds) < SEEN
    assert_works(pair, fabric)


def test_receiver_killed_while_it_holds_offers(pair: Cluster) -> None:
    """Stopped first, so that it is sure to hold some: they are let go when it dies."""
    way = (WORKER, PS)
    with session_at(pair.target()) as session:
        loop = Loop(callable_of(session, large_step(way, 16, parts=8)))
        loop.wait_steps(2)
        for attempt in range(50):
            time.sleep(0.003 * (attempt % 7))
            pair[PS].stand_still()
            time.sleep(0.3)
            if offers(pair, WORKER):
                break
            pair[PS].signal(signal.SIGCONT)
            loop.wait_steps(1)
        assert offers(pair, WORKER) > 0
        killed = time.monotonic()
        pair[PS].kill()
        loop.is_lost(PS, killed)
        wait_no_offers(pair, WORKER, seconds=LATE)
        pair.restart(PS)
    assert_works(pair, "shm")


def stands_still(loop: Loop, seconds: float) -> bool:
    before = loop.steps
    time.sleep(seconds)
    return loop.steps == before


def test_stopped_peer_goes_on(pair: Cluster) -> None:
    """Three seconds of SIGSTOP in the middle of steps cost three seconds and nothing else."""
    for way in ((PS, WORKER), (WORKER, PS)):
        with session_at(pair.target()) as session:
            loop = Loop(callable_of(session, large_step(way, 8, parts=4)))
            loop.wait_steps(3)
            pair[PS].stand_still()
            try:
                # The others may still end a step whose part there is over.
                assert eventually(partial(stands_still, loop, 2.5), 15)
            finally:
                pair[PS].signal(signal.SIGCONT)
            loop.wait_steps(5)
            assert loop.finish() is None
        wait_no_offers(pair, PS, WORKER)
    assert_works(pair, "shm")


# --- what runs out, and what is left behind -------------------------------------------------------


def quiet_descriptors(pid: int) -> set[int]:
    """Those of a process, once none is opened or closed any more: connections close late."""
    seen: list[set[int]] = []

    def quiet() -> bool:
        seen.append({int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()})
        return len(seen) > 3 and seen[-1] == seen[-2] == seen[-3]

    assert eventually(quiet, every=0.2), seen
    return seen[-1]


@contextmanager
def only_free(pid: int, free: int) -> Iterator[None]:
    """Another process may open `free` descriptors more than it has."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = quiet_descriptors(pid)
    limit = list(itertools.islice((i for i in itertools.count() if i not in used), free + 1))[-1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def connect(cluster: Cluster) -> socket.socket:
    host, port = cluster.spec["ps"][0].split(":")
    return socket.create_connection((host, int(port)), timeout=10)


@pytest.mark.parametrize("version", [OLD_VERSION, VERSION])
def test_server_without_descriptors_for_a_fabric(pair: Cluster, version: int) -> None:
    """It takes the connection, offers no fabric, and says why; TCP is served."""
    assert_works(pair, "shm")
    pid = pair[PS].pid
    before = descriptors(pid)
    # One is the connection's; a segment of shared memory takes two while it is made.
    with only_free(pid, 2), closing(connect(pair)) as connection:
        connection.sendall(hello("shm", version=version))
        frame = receive_frame(connection)
        answer = OldAnswer.decode(frame) if version == OLD_VERSION else Answer.decode(frame)
        assert answer.fabric == "" and "descriptor table full" in answer.reason, answer
        assert serves_http2(connection)
    settle(before + QUEUES, descriptors, pid)
    assert_works(pair, "shm")


@pytest.mark.parametrize(
    ("free", "version"),
    few(
        itertools.product((4, 6), (OLD_VERSION, VERSION)),
        (4, VERSION),
        (6, OLD_VERSION),
    ),
)
def test_server_with_few_descriptors(pair: Cluster, free: int, version: int) -> None:
    """Its TCP is served; who attaches over shared memory, and brings three more, is refused."""
    assert_works(pair, "shm")
    pid = pair[PS].pid
    before = descriptors(pid)
    with only_free(pid, free), closing(connect(pair)) as connection:
        connection.sendall(hello("shm", version=version))
        if version == OLD_VERSION:
            answer = OldAnswer.decode(receive_frame(connection))
            invitation = TokenFrame(answer.address, answer.token)
        else:
            assert Answer.decode(receive_frame(connection)).fabric == "shm"
            invitation = TokenFrame.decode(Attach.decode(receive_frame(connection)).data)
        passed = socket.socketpair()
        request = ShmRequest(invitation.token, MIB, version)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as unix:
            unix.settimeout(10)
            unix.connect("\0" + invitation.address[1:])
            socket.send_fds(unix, [request.encode()], [passed[0].fileno()] * 3)
            reply = ShmReply.decode(unix.recv(1024))
            assert reply.code != 0, reply
            if free < 5:
                assert "descriptor table full" in reply.reason
        for each in passed:
            each.close()
        connection.sendall(Verdict(False, reason=reply.reason, transient=True).encode(version))
        if version == VERSION:
            said = receive_frame(connection)
            if said.kind == VERDICT:
                assert not Verdict.decode(said).established  # its own, which crossed ours
                said = receive_frame(connection)
            last = Answer.decode(said)
            assert (last.fabric, last.attempt) == ("", 2) and last.reason
        assert serves_http2(connection)
    settle(before + QUEUES, descriptors, pid)
    assert_works(pair, "shm")


@pytest.mark.parametrize("free", few([0, 1, 2], 0, 2))
def test_server_without_descriptors(pair: Cluster, free: int) -> None:
    """Who comes then waits; the listener outlives it, and serves him once there are some again."""
    assert_works(pair, "shm")
    before = descriptors(pair[PS].pid)
    with ExitStack() as open_connections:
        with only_free(pair[PS].pid, free):
            for _ in range(free + 1):
                last = open_connections.enter_context(closing(connect(pair)))
                last.sendall(hello("shm"))
            last.settimeout(1)
            with pytest.raises(TimeoutError):
                last.recv(1)
        last.settimeout(10)
        assert Answer.decode(receive_frame(last)).fabric == "shm"
    settle(before + QUEUES, descriptors, pair[PS].pid)
    assert_works(pair, "shm")


def test_client_with_few_descriptors(pair: Cluster) -> None:
    """With too few for TCP an error in time; with some more tcp, and at last shm, and no error."""
    limit = 4.0
    settings = {
        "target": pair.target(PS, AR),
        "other": pair.target(WORKER, AR),
        "seconds": limit,
        "most": 24,
    }
    *few, last = run_program(PROGRAMS / "few_descriptors.py", settings).result()
    for row in few:
        # A session is made, run and closed.
        assert row["seconds"] < 3 * limit + LATE, row
        if "error" in row:
            assert row["error"] in {"UnavailableError", "DeadlineExceededError"}, row
        else:
            assert row["value"] == SUM, row
    paths = [row.get("path") for row in few]
    assert paths[-1] == "shm" and "tcp" in paths, few
    # From the first that could connect at all, none failed for what the endpoint lacked.
    assert None not in paths[paths.index("tcp") :], few
    assert last["value"] == SUM and last["path"] == "shm"


def unix_names(pid: int) -> set[str]:
    """The abstract names and paths of ours at which a process listens."""
    names = [str(each.laddr) for each in psutil.Process(pid).net_connections("unix")]
    return {name for name in names if "ar-grpc" in name}


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """pytest's own is too long for the path of a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="ar-") as folder:
        yield Path(folder)


def test_nothing_is_left_after_kills(new_ar_cluster: ClusterFactory, short_folder: Path) -> None:
    """kill -9 of all: no name, no file; the next server sweeps the shared directory."""
    shared = short_folder
    memory = set(os.listdir("/dev/shm"))  # noqa: PTH208
    cluster = new_ar_cluster({"AR_GRPC_SHM_DIR": str(shared)}, ps=1, worker=1)
    assert_works(cluster, "shm")
    names = unix_names(cluster[PS].pid) | unix_names(cluster[WORKER].pid)
    files = set(shared.iterdir())
    assert len(names) >= 2 and len(files) == 2, (names, files)
    # The step's call is made again until there is a master, which two servers' starts take.
    with session_at(cluster.target(), 100) as session:
        loop = Loop(callable_of(session, large_step((PS, WORKER), 16, parts=4)))
        loop.wait_steps(2)
        # The master first, which would tell of the other's end.
        for task in (WORKER, PS):
            cluster[task].signal(signal.SIGKILL)
        for task in (WORKER, PS):
            cluster[task].kill()
        abstract = {name for name in names if name.startswith("@")}
        left = Path("/proc/net/unix").read_text()
        assert abstract and not [name for name in abstract if name in left]
        assert not {name for name in set(os.listdir("/dev/shm")) - memory if "ar" in name}  # noqa: PTH208
        for task in (WORKER, PS):
            cluster.restart(task)
        # The master is another one.
        error = loop.finish()
        assert isinstance(error, tf.errors.AbortedError) and "is not found" in str(error), error
    assert_works(cluster, "shm")
    now = set(shared.iterdir())
    assert len(now) == 2 and not now & files, now


def cpu_seconds(pid: int) -> float:
    """Of all threads, from the scheduler's own nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def test_idle_servers_burn_no_cpu(pair: Cluster) -> None:
    """Connected, after steps: less than 1 % of a core for both together."""
    assert_works(pair, "shm")
    time.sleep(1)
    pids = [pair[task].pid for task in (PS, WORKER)]
    used: list[float] = []
    # What others do to the machine's caches adds to one of three, what burns a core to each.
    while len(used) < 3 and not (used and used[-1] < 0.05):
        before = sum(cpu_seconds(pid) for pid in pids)
        time.sleep(5)
        used.append(sum(cpu_seconds(pid) for pid in pids) - before)
    assert pair[WORKER].status()["links"] > 0
    assert min(used) < 0.05, f"{used} s of CPU in 5 s each"
