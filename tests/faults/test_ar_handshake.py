"""The handshake against peers that are broken, hostile, silent, stopped, older or newer.

Whatever a peer says, plain TCP or an error comes of it in time, and the next connection works.
The wire format is version 2; what an older peer says is version 1 (common/frames.py).
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python import ar_grpc

from common import frames
from common.ar import descriptors, eventually, path_of, settle
from common.fixtures import ClusterFactory
from common.frames import (
    ANSWER,
    ATTACH,
    BROCHURE,
    BYTES,
    ESTABLISHED,
    FABRIC,
    FEATURES,
    FRAME_ATTEMPT,
    HEADER,
    HELLO,
    MAGIC,
    MAX_ATTACH_FRAME,
    MAX_ATTACH_FRAMES,
    MAX_BROCHURE,
    MAX_BROCHURES,
    MAX_FRAME,
    MAX_NAME,
    NODE,
    OLD_VERSION,
    SOME_NODE,
    SOME_TOKEN,
    VERDICT,
    VERDICT_ATTEMPT,
    VERSION,
    Answer,
    Attach,
    Frame,
    Hello,
    OldAnswer,
    Place,
    ShmReply,
    ShmRequest,
    TokenFrame,
    Verdict,
    brochures,
    frame,
    header,
    hello,
    part,
    text,
)
from common.graphs import huge_transfer
from common.limits import LATE
from common.loops import Loop, callable_of
from common.pair import PS, SUM, WORKER, assert_works, large_step, session_at, summed
from common.processes import Cluster, Program, ServerProcess, own_address, stand_still
from common.protocols import AR
from common.repeated import few
from common.scripted import (
    CLIENT,
    HELLO_1,
    HELLO_2,
    HTTP_2,
    KNOWS_VERSION_1,
    PREFACE,
    SERVER,
    SETTINGS,
    Script,
    Scripted,
    attaches,
    attaches_old,
    falls_silent,
    goes_on,
    invites,
    receive,
    receive_all,
    receive_frame,
    refused,
    says,
    seconds_until_closed,
    serves_http2,
    watched,
)
from common.sessions import config, difference

pytestmark = pytest.mark.timeout(120)

PROGRAMS = Path(__file__).with_name("programs")
RECONNECT = 1.2  # seconds that gRPC waits at most before it connects again for the first time
HANDSHAKE = 5.0  # seconds that either end waits for the other in a handshake
ATTEMPT = HANDSHAKE / 2  # seconds that it waits for the only fabric
OUT_OF_TIME = r"no shm within [12]\d{3} ms"
both_versions = pytest.mark.parametrize("version", [OLD_VERSION, VERSION])


@pytest.fixture
def fabric() -> str:
    return "shm"


# --- what a server is told by raw sockets ---------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process, to the nanosecond (clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


def connect(cluster: Cluster, task: str = PS) -> socket.socket:
    job, index = task.split(":")
    host, port = cluster.spec[job][int(index)].split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def greet(connection: socket.socket, *fabrics: str, node: bytes = SOME_NODE) -> TokenFrame:
    """Says hello in version 2; where the server, which must want shared memory, waits for us."""
    connection.sendall(hello(*fabrics or ("shm",), node=node))
    answer = Answer.decode(receive_frame(connection))
    assert (answer.fabric, answer.attempt, answer.reason) == ("shm", 1, ""), answer
    attach = Attach.decode(receive_frame(connection))
    assert attach.attempt == 1
    return TokenFrame.decode(attach.data)


def greet_old(connection: socket.socket) -> TokenFrame:
    """The same in version 1."""
    connection.sendall(hello("shm", version=OLD_VERSION))
    answer = OldAnswer.decode(receive_frame(connection))
    assert (answer.fabric, answer.reason) == ("shm", ""), answer
    return TokenFrame(answer.address, answer.token)


def gives_up(connection: socket.socket, attempt: int = 1) -> Verdict:
    """The server's verdict on this attempt, which must be that it failed."""
    verdict = Verdict.decode(receive_frame(connection))
    assert (verdict.established, verdict.attempt) == (False, attempt), verdict
    return verdict


def ends_on_tcp(connection: socket.socket, attempt: int = 2) -> Answer:
    """The server's last answer, which says why it is TCP; HTTP/2 goes on there."""
    answer = Answer.decode(receive_frame(connection))
    assert (answer.fabric, answer.attempt) == ("", attempt) and answer.reason, answer
    assert serves_http2(connection)
    return answer


def test_plain_http2(pair: Cluster) -> None:
    """Whole, and byte by byte, so that the server cannot know at once what it will be."""
    with closing(connect(pair)) as connection:
        assert serves_http2(connection)
    with closing(connect(pair)) as connection:
        for byte in PREFACE[:-1]:
            connection.sendall(bytes([byte]))
            time.sleep(0.002)
        connection.sendall(PREFACE[-1:])
        assert receive(connection, 9)[3] == SETTINGS
    assert summed(pair.target(PS)) == SUM


# The parts of a good hello.
SAYS_NODE = part(NODE, SOME_NODE)
SAYS_FEATURES = part(FEATURES, bytes(8))
OFFERS_SHM = part(BROCHURE, text("shm") + Place().encode())


def said(*parts: bytes) -> bytes:
    """A hello of these."""
    return frame(HELLO, b"".join(parts))


def old(kind: int, body: bytes) -> bytes:
    return frame(kind, body, OLD_VERSION)


BROKEN = {
    "garbage": bytes(range(256)) * 4,
    "the magic, then garbage": MAGIC + b"\xff" * 64,
    "a frame that is too long": frame(HELLO, b"x" * (MAX_FRAME - HEADER + 1)),
    "an answer for a hello": Answer("shm").encode(),
    "a verdict for a hello": Verdict(True).encode(),
    "an attachment for a hello": Attach(b"shm").encode(),
    "an empty hello": said(),
    "no node": said(SAYS_FEATURES, OFFERS_SHM),
    "two nodes": said(SAYS_NODE, OFFERS_SHM, SAYS_NODE),
    "a short node": said(part(NODE, SOME_NODE[:15]), OFFERS_SHM),
    "a long node": said(part(NODE, SOME_NODE + b"!"), OFFERS_SHM),
    "features twice": said(SAYS_NODE, SAYS_FEATURES, SAYS_FEATURES),
    "short features": said(SAYS_NODE, part(FEATURES, bytes(7))),
    "long features": said(SAYS_NODE, part(FEATURES, bytes(9))),
    "too many brochures": said(SAYS_NODE, OFFERS_SHM * (MAX_BROCHURES + 1)),
    "a brochure of no fabric": said(SAYS_NODE, part(BROCHURE, text("") + b"here")),
    "a brochure of a long name": said(SAYS_NODE, part(BROCHURE, text("x" * (MAX_NAME + 1)))),
    "a name beyond its brochure": said(SAYS_NODE, part(BROCHURE, b"\xff\xffshm")),
    "a brochure that is too long": said(
        SAYS_NODE, part(BROCHURE, text("shm") + b"x" * (MAX_BROCHURE + 1))
    ),
    "a field beyond the end": said(SAYS_NODE, part(BROCHURE, OFFERS_SHM, 500)),
    "a field of 4 GiB": said(SAYS_NODE, part(BROCHURE, b"", 0xFFFFFFFF)),
    "an unknown field beyond the end": said(SAYS_NODE, OFFERS_SHM, part(999, b"", 1)),
    "half a field": said(SAYS_NODE, OFFERS_SHM, part(FEATURES, b"")[:5]),
    "version 1: a long frame": old(HELLO, b"x" * 4097),
    "version 1: an answer for a hello": OldAnswer("shm").encode(),
    "version 1: too many fabrics": old(HELLO, SOME_NODE + bytes([17]) + text("shm") * 17),
    "version 1: a text beyond the end": old(HELLO, SOME_NODE + bytes([1]) + b"\xf4\1shm"),
    "version 1: more than a hello": old(HELLO, SOME_NODE + bytes([0]) + b"more"),
    "version 1: an empty hello": old(HELLO, b""),
    "version 1: a body of version 2": old(HELLO, SAYS_NODE + SAYS_FEATURES + OFFERS_SHM),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_hello(pair: Cluster, name: str) -> None:
    """The connection is closed, and nothing else comes of it."""
    with closing(connect(pair)) as connection:
        connection.sendall(BROKEN[name])
        assert seconds_until_closed(connection, most=10) < LATE
    assert summed(pair.target(PS)) == SUM


def test_every_prefix(pair: Cluster) -> None:
    """A body that ends early is no hello, unless it ends between two fields."""
    body = SAYS_NODE + SAYS_FEATURES + OFFERS_SHM
    whole = {len(SAYS_NODE), len(SAYS_NODE + SAYS_FEATURES), len(body)}
    for size in range(len(body) + 1):
        with closing(connect(pair)) as connection:
            connection.sendall(said(body[:size]))
            if size in whole:
                answer = Answer.decode(receive_frame(connection))
                assert answer.fabric == ("shm" if size == len(body) else "")
            else:
                assert receive_all(connection, most=10) == b"", size
    # A connection that ends in the hello is no more than that, to whatever byte it came.
    for size in range(HEADER + len(body)):
        with closing(connect(pair)) as connection:
            connection.sendall(said(body)[:size])
    assert summed(pair.target(PS)) == SUM


def test_hello_in_single_bytes(pair: Cluster) -> None:
    with closing(connect(pair)) as connection:
        for byte in hello("shm"):
            connection.sendall(bytes([byte]))
        assert Answer.decode(receive_frame(connection)).fabric == "shm"


def test_bit_flips(pair: Cluster) -> None:
    """Each bit of a good hello: the server closes, answers, or takes it for HTTP/2, in time."""
    good = hello("shm")
    outcomes = set()
    for bit in range(8 * len(good)):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        with closing(connect(pair)) as connection, suppress(ConnectionError):
            connection.sendall(flipped)
            connection.shutdown(socket.SHUT_WR)
            heard = receive_all(connection, most=10)
            if heard.startswith(MAGIC):
                version, kind, _ = header(heard[:HEADER])
                assert (kind, version in (OLD_VERSION, VERSION)) == (ANSWER, True), (bit, heard)
                outcomes.add("answered")
            elif heard:
                assert heard[3] == SETTINGS, (bit, heard)
                outcomes.add("HTTP/2")
            else:
                outcomes.add("closed")
    assert {"answered", "closed"} <= outcomes
    assert_works(pair, "shm")


@pytest.mark.parametrize("where", ["first", "between", "last", "everywhere"])
def test_unknown_fields(pair: Cluster, where: str) -> None:
    """Of a newer client: they are skipped, also twice, and the server answers."""
    new, known = part(900, b"new") + part(900, b""), [SAYS_NODE, OFFERS_SHM]
    at = {"first": [0], "between": [1], "last": [2], "everywhere": [0, 1, 2]}[where]
    body = b"".join((new if i in at else b"") + b"".join(known[i : i + 1]) for i in range(3))
    with closing(connect(pair)) as connection:
        connection.sendall(frame(HELLO, body))
        answer = Answer.decode(receive_frame(connection))
        assert (answer.fabric, answer.attempt) == ("shm", 1)
        assert Attach.decode(receive_frame(connection)).attempt == 1


@pytest.mark.parametrize("kind", [0, 5, 99, 65535])
def test_unknown_kind_for_a_hello(pair: Cluster, kind: int) -> None:
    """Of a newer client: it is told that this end stays on TCP."""
    with closing(connect(pair)) as connection:
        connection.sendall(frame(kind, b"whatever"))
        assert f"kind {kind}" in ends_on_tcp(connection, attempt=1).reason


@pytest.mark.parametrize("version", [0, 3, 65535])
def test_hello_of_another_version(pair: Cluster, version: int) -> None:
    """It is answered in our version, says so, and the connection goes on as plain HTTP/2."""
    for said in (hello("shm", version=version), frame(HELLO, b"of another kind", version)):
        with closing(connect(pair)) as connection:
            connection.sendall(said)
            assert f"version {version}" in ends_on_tcp(connection, attempt=1).reason


WITHOUT = [(), ("tcp",), ("verbs", "carrier-pigeon")]


@pytest.mark.parametrize("fabrics", WITHOUT)
@both_versions
def test_hello_without_a_common_fabric(
    pair: Cluster, fabrics: tuple[str, ...], version: int
) -> None:
    """Both stay on TCP; the client needs no verdict."""
    with closing(connect(pair)) as connection:
        connection.sendall(hello(*fabrics, version=version))
        if version == OLD_VERSION:
            said = OldAnswer.decode(receive_frame(connection))
            assert (said.fabric, said.address) == ("", "") and said.reason
            assert serves_http2(connection)
        else:
            assert not ends_on_tcp(connection, attempt=1).transient


@pytest.mark.parametrize(
    ("brochure", "why"),
    [
        pytest.param(Place(boot_id="another").encode(), "another host", id="host"),
        pytest.param(Place(user=4242).encode(), "runs as user 4242", id="user"),
        pytest.param(
            Place(network="net:[1]").encode(), "another network namespace", id="namespace"
        ),
        pytest.param(Place(version=9).encode(), "malformed brochure", id="version"),
        pytest.param(Place().encode()[:-1], "malformed brochure", id="cut short"),
        pytest.param(b"", "malformed brochure", id="empty"),
    ],
)
def test_client_elsewhere(pair: Cluster, brochure: bytes, why: str) -> None:
    """Whom shared memory does not reach is told at once, without an attempt."""
    with closing(connect(pair)) as connection:
        connection.sendall(Hello((("shm", brochure),)).encode())
        answer = ends_on_tcp(connection, attempt=1)
        assert why in answer.reason and not answer.transient


def test_largest_hello(pair: Cluster) -> None:
    """What is within all bounds is understood; of a fabric that comes twice the first counts."""
    names = [f"{number:0{MAX_NAME}}" for number in range(MAX_BROCHURES - 2)]
    offered = [(name, b"x" * MAX_BROCHURE) for name in names] + [*brochures("shm"), ("shm", b"")]
    body = frames.frame(HELLO, Hello(tuple(offered)).encode()[HEADER:])
    room = MAX_FRAME - len(body) - len(part(900, b""))
    with closing(connect(pair)) as connection:
        connection.sendall(frame(HELLO, body[HEADER:] + part(900, bytes(room))))
        assert Answer.decode(receive_frame(connection)).fabric == "shm"


def test_answer_to_a_hello(pair: Cluster) -> None:
    """Each has its own tokens; a client that then stays on TCP is served on the connection."""
    answers, invitations = [], []
    for transient in (False, True):
        with closing(connect(pair)) as connection:
            connection.sendall(hello("verbs", "shm", "tcp"))
            answers.append(Answer.decode(receive_frame(connection)))
            attach = Attach.decode(receive_frame(connection))
            invitations.append(TokenFrame.decode(attach.data))
            verdict = Verdict(False, 1, "the test says so", transient)
            connection.sendall(verdict.encode())
            last = ends_on_tcp(connection)
            assert (last.reason, last.transient) == ("shm: the test says so", transient)
            assert last.node == answers[-1].node
    first, second = answers
    assert (first.fabric, first.attempt, first.transient) == ("shm", 1, False)
    assert replace(first, link=second.link) == second
    assert invitations[0].version == 2
    assert re.fullmatch(r"@ar-grpc\.[0-9a-f]{32}", invitations[0].address)
    assert invitations[0].address == invitations[1].address
    tokens = {first.link, second.link, *(each.token for each in invitations)}
    assert len(tokens) == 4 and all(len(set(token)) > 4 for token in tokens)


def test_answer_to_a_hello_of_version_1(pair: Cluster) -> None:
    answers = []
    for _ in range(2):
        with closing(connect(pair)) as connection:
            connection.sendall(hello("verbs", "shm", "tcp", version=OLD_VERSION))
            answers.append(OldAnswer.decode(receive_frame(connection)))
            connection.sendall(Verdict(False, reason="the test says so").encode(OLD_VERSION))
            assert serves_http2(connection)
    first, second = answers
    assert first.fabric == "shm"
    assert re.fullmatch(r"@ar-grpc\.[0-9a-f]{32}", first.address)
    assert replace(first, token=second.token) == second
    assert first.token != second.token and len(set(first.token)) > 4


GREETED = hello("shm")
SILENT = {
    "from the start": b"",
    "in the magic": MAGIC[:5],
    "in the hello": GREETED[:20],
    "after the hello": GREETED,
    "in an attachment's frame": GREETED + Attach(b"?").encode()[:20],
    "in the verdict": GREETED + Verdict(True).encode()[:12],
    "after the verdict": GREETED + Verdict(True).encode(),
    "after the last answer": GREETED + Verdict(False).encode(),
    "version 1: in the hello": hello("shm", version=OLD_VERSION)[:20],
    "version 1: after the hello": hello("shm", version=OLD_VERSION),
    "version 1: in the verdict": hello("shm", version=OLD_VERSION)
    + Verdict(True).encode(OLD_VERSION)[:12],
}


def test_silent_clients(pair: Cluster) -> None:
    """Wherever a client falls silent, it is let go after five seconds; all at once here."""
    assert_works(pair, "shm")
    before = descriptors(pair[PS].pid)
    began = time.monotonic()
    connections = {name: connect(pair) for name in SILENT}
    try:
        for name, connection in connections.items():
            connection.sendall(SILENT[name])
        assert summed(pair.target(PS)) == SUM  # others are served meanwhile
        for name, connection in connections.items():
            seconds_until_closed(connection, most=10)
            assert HANDSHAKE - 0.1 < time.monotonic() - began < HANDSHAKE + LATE, name
    finally:
        for connection in connections.values():
            connection.close()
    settle(before + 1, descriptors, pair[PS].pid)


ATTEMPT_1 = part(FRAME_ATTEMPT, b"\1\0\0\0")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(Verdict(True, attempt=2).encode(), id="on an attempt to come"),
        pytest.param(Verdict(False, attempt=2**32 - 1).encode(), id="on the last attempt"),
        pytest.param(
            frame(VERDICT, part(VERDICT_ATTEMPT, b"\1\0\0\0") + part(ESTABLISHED, b"\2")),
            id="neither established nor not",
        ),
        pytest.param(frame(VERDICT, part(ESTABLISHED, b"\0")), id="on no attempt"),
        pytest.param(frame(VERDICT, part(VERDICT_ATTEMPT, b"\1\0\0\0")), id="no verdict"),
        pytest.param(Verdict(False, reason="x" * 1025).encode(), id="a long reason"),
        pytest.param(Verdict(False).encode(OLD_VERSION), id="of version 1"),
        pytest.param(Verdict(False).encode(3), id="of version 3"),
        pytest.param(Verdict(True).encode() + PREFACE, id="established, and TCP goes on"),
        pytest.param(GREETED, id="a second hello"),
        pytest.param(Answer("shm").encode(), id="an answer"),
        pytest.param(b"garbage" * 9, id="garbage"),
        pytest.param(PREFACE, id="HTTP/2 without a verdict"),
        pytest.param(Attach(b"?", attempt=2).encode(), id="a frame of an attempt to come"),
        pytest.param(frame(ATTACH, part(BYTES, b"?")), id="a frame of no attempt"),
        pytest.param(frame(ATTACH, ATTEMPT_1), id="a frame of no bytes"),
        pytest.param(frame(ATTACH, ATTEMPT_1 * 2 + part(BYTES, b"?")), id="attempt twice"),
        pytest.param(frame(ATTACH, ATTEMPT_1 + part(BYTES, b"?", 9)), id="a frame cut short"),
        pytest.param(Attach(b"x" * (MAX_ATTACH_FRAME + 1)).encode(), id="a frame too large"),
        pytest.param(Attach(b"?").encode() * (MAX_ATTACH_FRAMES + 1), id="too many frames"),
    ],
)
def test_broken_verdict(pair: Cluster, said: bytes) -> None:
    """The connection is closed at once."""
    with closing(connect(pair)) as connection:
        greet(connection)
        connection.sendall(said)
        assert seconds_until_closed(connection, most=10) < LATE
    assert summed(pair.target(PS)) == SUM


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(Verdict(True).encode(OLD_VERSION), id="established, but nothing attached"),
        pytest.param(old(VERDICT, b"\2" + text("")), id="neither established nor not"),
        pytest.param(hello("shm", version=OLD_VERSION), id="a second hello"),
        pytest.param(Verdict(False).encode(), id="of version 2"),
        pytest.param(b"garbage" * 9, id="garbage"),
        pytest.param(PREFACE, id="HTTP/2 without a verdict"),
    ],
)
def test_broken_verdict_of_version_1(pair: Cluster, said: bytes) -> None:
    with closing(connect(pair)) as connection:
        greet_old(connection)
        connection.sendall(said)
        assert seconds_until_closed(connection, most=10) < LATE
    assert summed(pair.target(PS)) == SUM


def test_established_but_nothing_attached(pair: Cluster) -> None:
    """The server waits for the fabric as long as the attempt lasts; then it is TCP."""
    # Its time begins with the hello's answer.
    began = time.monotonic()
    with closing(connect(pair)) as connection:
        greet(connection)
        connection.sendall(Verdict(True).encode())
        verdict = gives_up(connection)
        assert ATTEMPT - 0.1 < time.monotonic() - began < ATTEMPT + LATE
        assert verdict.transient and re.fullmatch(OUT_OF_TIME, verdict.reason)
        assert ends_on_tcp(connection).transient


def test_frames_that_are_skipped(pair: Cluster) -> None:
    """Those of attempts that are over, and kinds of a newer client's, change nothing."""
    late = Attach(b"late", 0).encode() + Verdict(True, 0).encode() + frame(77, b"new")
    with closing(connect(pair)) as connection:
        greet(connection)
        connection.sendall(late + Verdict(False, 1, "enough").encode())
        answer = Answer.decode(receive_frame(connection))
        assert (answer.fabric, answer.attempt, answer.reason) == ("", 2, "shm: enough")
        # What crossed the last answer.
        connection.sendall(late + Attach(b"late").encode() + Verdict(True).encode())
        assert serves_http2(connection)


FLOODS = {
    "unknown kinds": frame(77, b""),
    "frames of an attempt that is over": Attach(b"", 0).encode(),
    "verdicts on an attempt that is over": Verdict(True, 0).encode(),
}


@pytest.mark.parametrize("name", FLOODS)
def test_flood_of_frames(pair: Cluster, name: str) -> None:
    """What is skipped is bounded, too: 16 MiB of it cost no time, and the connection."""
    flood = FLOODS[name] * (16 * 2**20 // len(FLOODS[name]))
    before = cpu_seconds(pair[PS].pid)
    with closing(connect(pair)) as connection:
        greet(connection)
        with suppress(ConnectionError):
            connection.sendall(flood)
        assert seconds_until_closed(connection, most=10) < LATE
    assert cpu_seconds(pair[PS].pid) - before < 1
    assert summed(pair.target(PS)) == SUM


def test_words_of_a_peer_in_the_log(pair: Cluster) -> None:
    """They do not begin a line of their own, which could look like one of ours."""
    pair.mark()
    with closing(connect(pair)) as connection:
        greet(connection)
        connection.sendall(Verdict(False, 1, "no\nforged\x1b[2J", transient=True).encode())
        ends_on_tcp(connection)
    assert eventually(lambda: "forged" in pair[PS].tail())
    (line,) = [line for line in pair[PS].tail().splitlines() if "forged" in line]
    assert line.endswith(r"shm: no\x0aforged\x1b[2J") and " W " in line, line


GOAWAY = 7  # the type of this frame of HTTP/2


def until_goaway(connection: socket.socket, most: float) -> float | None:
    """Seconds until the server says that it ends this HTTP/2 connection; None: it does not."""
    began = time.monotonic()
    connection.settimeout(most)
    try:
        while head := receive(connection, 9):
            receive(connection, int.from_bytes(head[:3], "big"))
            if head[3] == GOAWAY:
                return time.monotonic() - began
            connection.settimeout(max(most - (time.monotonic() - began), 0.01))
    except TimeoutError:
        return None
    raise AssertionError("closed without a word")


def test_transient_connection_is_retired(pair: Cluster) -> None:
    """On TCP for now: it is ended gracefully after ten seconds. One that stays there is not."""
    ages: dict[bool, float | None] = {}

    def age(transient: bool) -> None:
        with closing(connect(pair)) as connection:
            # The server has not met it: one that fails again and again waits longer.
            greet(connection, node=os.urandom(len(SOME_NODE)))
            connection.sendall(Verdict(False, 1, "no", transient).encode())
            last = Answer.decode(receive_frame(connection))
            assert (last.fabric, last.attempt, last.transient) == ("", 2, transient), last
            connection.sendall(PREFACE)
            ages[transient] = until_goaway(connection, 14)

    threads = [threading.Thread(target=age, args=(transient,)) for transient in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ages[False] is None
    # gRPC spreads the age by a tenth either way.
    retired = ages[True]
    assert retired is not None and 9 - 0.1 < retired < 11 + LATE, ages


def test_late_client(pair: Cluster) -> None:
    """One that stood still goes on where the server has gone: on TCP, soon to be made anew."""
    with closing(connect(pair)) as connection:
        greet(connection)
        assert gives_up(connection).transient
        connection.sendall(Attach(b"late").encode() + Verdict(True).encode())
        assert ends_on_tcp(connection).transient


@pytest.mark.parametrize("size", [0, 1, MAX_ATTACH_FRAME])
def test_frame_that_nobody_waits_for(pair: Cluster, size: int) -> None:
    """Shared memory's attachment has none from the client: the attempt fails, TCP goes on."""
    with closing(connect(pair)) as connection:
        greet(connection)
        connection.sendall(Attach(b"x" * size).encode())
        assert "nobody waits for" in gives_up(connection).reason
        assert "nobody waits for" in ends_on_tcp(connection).reason


def asked(address: str, packet: bytes) -> ShmReply:
    """What the Unix socket says to this packet without descriptors."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as unix:
        unix.settimeout(10)
        unix.connect("\0" + address[1:])
        unix.send(packet)
        return ShmReply.decode(unix.recv(1024))


def test_attach_with_a_wrong_token(pair: Cluster) -> None:
    """The Unix socket refuses who was not introduced, and who does not know how to ask."""
    request, old_request = ShmRequest(b"!" * 16), ShmRequest(b"!" * 16, version=OLD_VERSION)
    refusals = {
        request.encode(): VERSION,
        old_request.encode(): OLD_VERSION,
        # Of an unknown connector, in what all of them understand.
        b"garbage": OLD_VERSION,
        b"": OLD_VERSION,
        request.encode()[:-1]: OLD_VERSION,
        request.encode() + b"!": OLD_VERSION,
        old_request.encode()[:-1]: OLD_VERSION,
        replace(request, kind=2).encode(): OLD_VERSION,
        replace(request, version=65535).encode(): OLD_VERSION,
        request.encode() + bytes(2000): OLD_VERSION,
    }
    del refusals[b""]  # an empty packet cannot be told from a close
    with closing(connect(pair)) as connection:
        invitation = greet(connection)
        for packet, version in refusals.items():
            reply = asked(invitation.address, packet)
            assert reply.code != 0 and reply.version == version, (packet, reply)
        assert "unknown token" in asked(invitation.address, request.encode()).reason
        # None of that has spent the right one, which is good for one attempt.
        right = ShmRequest(invitation.token)
        reply = asked(invitation.address, right.encode())
        assert reply.code != 0 and "descriptors" in reply.reason
        assert "descriptors" in gives_up(connection).reason
        assert "unknown token" in asked(invitation.address, right.encode()).reason
        ends_on_tcp(connection)


@pytest.mark.parametrize("size", [0, 1, 4095, 2**40, 3 * 2**20])
@both_versions
def test_attach_with_a_wrong_ring(pair: Cluster, size: int, version: int) -> None:
    """No memory is mapped that the connector does not have, whatever it asks for."""
    with closing(connect(pair)) as connection:
        invitation = greet(connection) if version == VERSION else greet_old(connection)
        memory = os.memfd_create("ring")
        os.ftruncate(memory, 2**16)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as unix:
            unix.settimeout(10)
            unix.connect("\0" + invitation.address[1:])
            request = ShmRequest(invitation.token, size, version).encode()
            socket.send_fds(unix, [request], [memory] * 3)
            reply = ShmReply.decode(unix.recv(1024))
            assert reply.code != 0 and reply.version == version, reply
        os.close(memory)
        if version == VERSION:
            assert reply.reason in gives_up(connection).reason
            ends_on_tcp(connection)
        else:
            connection.sendall(Verdict(False).encode(OLD_VERSION))
            assert serves_http2(connection)


def test_thousands_of_broken_connections(pair: Cluster) -> None:
    """They leave no descriptor, no link, and a server that still serves."""
    assert_works(pair, "shm")
    before, links = descriptors(pair[PS].pid), pair[PS].status()["links"]
    others = [hello("shm", version=9), hello(), hello(version=OLD_VERSION), PREFACE]
    others += [said(SAYS_NODE, part(900, b"new"), OFFERS_SHM), frame(99, b"new")]
    openings = [*BROKEN.values(), *SILENT.values(), *others]
    greetings = [hello("shm", version=OLD_VERSION), GREETED]
    assert all(each in openings for each in greetings)
    for opening, number in zip(itertools.cycle(openings), range(3000)):
        with closing(connect(pair)) as connection:
            connection.sendall(opening)
            if opening in greetings and number % 2:
                version = receive_frame(connection).version
                connection.sendall(Verdict(True).encode(version))
    assert_works(pair, "shm")
    settle(before + 2, descriptors, pair[PS].pid, seconds=15)
    assert eventually(lambda: pair[PS].status()["links"] <= links)


# --- what a client is told by a server that is none -----------------------------------------------


def path_to(server: Scripted) -> str | None:
    """The fabric over which this process calls it."""
    fabric: str | None = ar_grpc.status()["paths"].get(f"ipv4:{server.address}")
    return fabric


def assert_over_tcp(
    backend: Cluster,
    capfd: Any,
    scripts: Sequence[Script],
    why: str,
    *,
    openings: list[str],
    waits: float = 0,
    anew: bool = False,
) -> None:
    """A step over such a server works over TCP, in time, and the log says why it is TCP.

    `anew`: for a reason that may pass, so that more connections may have been made by then.
    """
    with closing(Scripted(*scripts, backend=backend.spec["ps"][0])) as server:
        began = time.monotonic()
        assert summed(server.target) == SUM
        assert waits - 0.1 < time.monotonic() - began < waits + LATE
        seen = server.openings[: len(openings)] if anew else server.openings
        assert seen == openings
        assert path_to(server) in (None, "tcp")
        address = re.escape(server.address)
    log = capfd.readouterr().err
    assert re.search(rf"connected to ipv4:{address} over tcp: .*{why}", log), log


NO_AR = "it does not speak AR-gRPC"
CLOSED = "it closed the connection at the hello"
#: The server's behaviour, and what the client's log says of it.
RECONNECTS = {
    "garbage": (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), NO_AR),
    "HTTP/2": (says(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])), NO_AR),
    "a close": (says(), CLOSED),
    "a close in the answer": (says(Answer("shm").encode()[:30]), CLOSED),
    "a frame that is too long": (says(frame(ANSWER, bytes(MAX_FRAME))), NO_AR),
    "a hello": (says(hello("shm")), "a frame of kind 1 instead of 2"),
    "an attachment": (says(Attach(b"?").encode()), "a frame of kind 4 instead of 2"),
    "a verdict": (says(Verdict(True).encode()), "a frame of kind 3 instead of 2"),
    "an empty answer": (says(frame(ANSWER, b"")), "malformed answer"),
    "an answer without a node": (
        says(frame(ANSWER, Answer().encode()[HEADER + len(SAYS_NODE) :])),
        "malformed answer",
    ),
    "a fabric without a link": (
        says(frame(ANSWER, Answer().encode()[HEADER:] + part(FABRIC, b"shm"))),
        "malformed answer",
    ),
    "a field twice": (
        says(frame(ANSWER, Answer().encode()[HEADER:] + SAYS_NODE)),
        "malformed answer",
    ),
    "a length that lies": (
        says(frame(ANSWER, Answer().encode()[HEADER:] + part(900, b"", 7))),
        "malformed answer",
    ),
    "no attempt": (says(Answer("shm", attempt=0).encode()), "answers are out of order"),
    "an unknown fabric": (
        says(Answer("verbs").encode()),
        "a fabric that was not offered: verbs",
    ),
    "tcp as a fabric": (says(Answer("tcp").encode()), "a fabric that was not offered: tcp"),
    "version 0": (
        says(Answer("shm").encode(0)),
        "the peer speaks version 0, this end speaks 2",
    ),
    "a malformed answer of version 1": (
        says(frame(ANSWER, SOME_NODE + text("shm"), OLD_VERSION)),
        "malformed answer",
    ),
}


@pytest.mark.parametrize("name", RECONNECTS)
def test_server_that_is_none(stock: Cluster, capfd: Any, name: str) -> None:
    """The client connects anew without a hello, and works."""
    script, why = RECONNECTS[name]
    assert_over_tcp(stock, capfd, [script], why, openings=[HELLO_2, HTTP_2])


MUTE = {
    "from the start": falls_silent(),
    "in the answer": falls_silent(Answer("shm").encode()[:30]),
    "after frames of a newer server": falls_silent(frame(99, b"new")),
}


@pytest.mark.parametrize("name", few(MUTE, "from the start"))
def test_mute_server(stock: Cluster, capfd: Any, name: str) -> None:
    """It may have stood still for a while, so it is asked twice; then it is no server of ours."""
    assert_over_tcp(
        stock,
        capfd,
        [MUTE[name], MUTE[name]],
        "it did not answer the hello",
        openings=[HELLO_2, HELLO_2, HTTP_2],
        waits=2 * HANDSHAKE,
    )


@pytest.mark.parametrize(("name", "next_opening"), [("garbage", HTTP_2), ("a close", HELLO_2)])
def test_what_is_remembered(pair: Cluster, name: str, next_opening: str) -> None:
    """What answered otherwise is spared the hello; what only closed may have been a dying peer."""
    with closing(Scripted(RECONNECTS[name][0], backend=pair.spec["ps"][0])) as server:
        for _ in range(2):
            assert summed(server.target) == SUM
        assert server.openings == [HELLO_2, HTTP_2, next_opening]


def ends(*parts: bytes) -> Script:
    """Wants shared memory, says these, and then that there is none."""

    def script(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(invites(TokenFrame(NOWHERE)) + b"".join(parts))
        connection.sendall(Answer(attempt=2, reason="it is Sunday").encode())
        return skips_to_http2(connection)

    return script


def skips_to_http2(connection: socket.socket) -> bool:
    """Skips frames of the client's that crossed the last answer, as a server must."""
    while connection.recv(len(MAGIC), socket.MSG_PEEK | socket.MSG_WAITALL) == MAGIC:
        receive_frame(connection)
    return True


NOWHERE = "@ar-grpc." + "0" * 32
NEWER = Answer("shm").encode(7)
STAYS = {
    "another version": (goes_on(NEWER), "the peer speaks version 7, this end speaks 2"),
    "another version's body": (
        goes_on(frame(ANSWER, b"!", 65535)),
        "the peer speaks version 65535, this end speaks 2",
    ),
    "no fabric": (goes_on(Answer(reason="it is Sunday").encode()), "it is Sunday"),
    "unknown fields": (
        goes_on(frame(ANSWER, part(900, b"new") + Answer(reason="it is Sunday").encode()[HEADER:])),
        "it is Sunday",
    ),
    "unknown kinds": (
        goes_on(frame(99, b"new") * 3, Answer(reason="it is Sunday").encode()),
        "it is Sunday",
    ),
    "its own verdict": (ends(Verdict(False, 1, "no").encode()), "it is Sunday"),
    "frames of attempts that are over": (
        ends(Attach(b"?", 0).encode(), Verdict(True, 0).encode(), frame(99, b"new")),
        "it is Sunday",
    ),
    "nobody there": (attaches(TokenFrame(NOWHERE)), "connecting to @ar-grpc.0+: .*refused"),
    "no address": (attaches(TokenFrame("")), "not a shared-memory address"),
    "another address": (
        attaches(TokenFrame("/etc/passwd")),
        "not a shared-memory address: /etc/passwd",
    ),
    "a directory of the peer's": (
        attaches(TokenFrame(f"/nowhere/{NOWHERE[1:]}.1.sock")),
        "the peer can be met in a directory only: set AR_GRPC_SHM_DIR to it",
    ),
    "another version of shared memory": (
        attaches(TokenFrame(NOWHERE, version=9)),
        "the peer speaks version 9 of shared memory, this end version 2",
    ),
    "an empty frame": (attaches(b""), "a malformed frame with an attachment's token"),
    "a frame cut short": (attaches(TokenFrame(NOWHERE).encode()[:-1]), "a malformed frame"),
    "a frame of version 0": (attaches(TokenFrame(NOWHERE, version=0)), "a malformed frame"),
    "an address that is too long": (attaches(TokenFrame("@" * 901)), "a malformed frame"),
}


@pytest.mark.parametrize("name", STAYS)
def test_fabric_that_cannot_be_had(stock: Cluster, capfd: Any, name: str) -> None:
    """The same connection goes on as TCP."""
    script, why = STAYS[name]
    assert_over_tcp(stock, capfd, [script], why, openings=[HELLO_2])


def test_wrong_token(stock: Cluster, pair: Cluster, capfd: Any) -> None:
    """The address is a live server's, the token is not: the server refuses, TCP goes on."""
    with closing(connect(pair)) as connection:
        address = greet(connection).address
    why = "the peer refused: unknown token"
    for version in (VERSION, OLD_VERSION):
        script = attaches(TokenFrame(address, version=version))
        assert_over_tcp(stock, capfd, [script], why, openings=[HELLO_2])


def test_listener_that_is_mute(stock: Cluster, capfd: Any) -> None:
    """A Unix socket that accepts and says nothing costs the attempt's share of the time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as unix:
        address = f"@ar-grpc.{os.urandom(16).hex()}"
        unix.bind("\0" + address[1:])
        unix.listen()
        assert_over_tcp(
            stock,
            capfd,
            [attaches(TokenFrame(address))],
            OUT_OF_TIME,
            openings=[HELLO_2],
            waits=ATTEMPT,
        )


def breaks(*parts: bytes) -> Script:
    """Wants shared memory, says these, and waits for the client to go."""
    return falls_silent(invites(TokenFrame(NOWHERE)), *parts)


#: What no server says that has begun well.
BREAKS = {
    "garbage": breaks(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "HTTP/2": breaks(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])),
    "another version": breaks(Verdict(False).encode(3)),
    "version 1": breaks(OldAnswer("shm", NOWHERE).encode()),
    "a hello": breaks(hello("shm")),
    "the same attempt again": breaks(Answer("shm", 1).encode()),
    "a fabric that was not offered": breaks(Answer("verbs", 2).encode()),
    "a frame of an attempt to come": breaks(Attach(b"?", 2).encode()),
    "a verdict on an attempt to come": breaks(Verdict(False, 2).encode()),
    "established before the client is": breaks(Verdict(True).encode()),
    "a malformed verdict": breaks(frame(VERDICT, b"")),
    "a malformed frame": breaks(frame(ATTACH, b"")),
    "a frame that is too large": breaks(Attach(b"x" * (MAX_ATTACH_FRAME + 1)).encode()),
    "too many frames": breaks(Attach(b"?").encode() * (MAX_ATTACH_FRAMES + 1)),
    "a flood of unknown kinds": breaks(frame(99, b"") * 5000),
    "endless attempts": breaks(*(invites(TokenFrame(NOWHERE), i) for i in range(2, 12))),
}


#: All end in one error of the handshake's machine, and from there on in the same way.
EACH_RUN = ("garbage", "a malformed verdict", "too many frames", "endless attempts")


@pytest.mark.parametrize("name", few(BREAKS, *EACH_RUN))
def test_server_that_breaks_the_handshake(stock: Cluster, name: str) -> None:
    """It is no fallback but an error of the connection: gRPC connects again, and works."""
    with closing(Scripted(BREAKS[name], backend=stock.spec["ps"][0])) as server:
        began = time.monotonic()
        assert summed(server.target) == SUM
        assert time.monotonic() - began < RECONNECT + LATE
        assert server.openings == [HELLO_2, HELLO_2, HTTP_2]


def refuses_and(last: Script) -> Script:
    """As attaches(), but for what follows the client's verdict."""

    def script(connection: socket.socket, hello: bytes) -> bool:
        connection.sendall(invites(TokenFrame(NOWHERE)))
        refused(connection)
        return last(connection, hello)

    return script


DIES = {
    "after the answer": says(Answer("shm").encode()),
    "after the attachment's frame": says(invites(TokenFrame(NOWHERE))),
    "in a frame": says(invites(TokenFrame(NOWHERE))[:-3]),
    "after the client's verdict": refuses_and(says()),
    "after its own verdict": says(
        invites(TokenFrame(NOWHERE)), Verdict(False, transient=True).encode()
    ),
}


@pytest.mark.parametrize("name", DIES)
def test_server_dies_in_the_handshake(pair: Cluster, name: str) -> None:
    """The client says hello to its successor at once, and again has shared memory."""
    with closing(Scripted(DIES[name], backend=pair.spec["ps"][0])) as server:
        began = time.monotonic()
        assert summed(server.target) == SUM
        assert time.monotonic() - began < LATE
        assert server.openings == [HELLO_2, HELLO_2]
        assert path_to(server) == "shm"


def test_server_that_always_dies_in_the_handshake(stock: Cluster) -> None:
    """After the third hello the client does without."""
    scripts = list(DIES.values())[:3]
    with closing(Scripted(*scripts, backend=stock.spec["ps"][0])) as server:
        assert summed(server.target) == SUM
        assert server.openings == [HELLO_2, HELLO_2, HELLO_2, HTTP_2]


def test_server_that_always_closes() -> None:
    """There is nothing to fall back to: the session ends at its deadline."""
    with closing(Scripted(says(), backend=None)) as server:
        began = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError):
            summed(server.target, seconds=3)
        assert 3 <= time.monotonic() - began < 3 + LATE
        assert server.openings[:2] == [HELLO_2, HTTP_2]


# --- a server of version 1 ------------------------------------------------------------------------


def test_server_of_version_1(pair: Cluster, capfd: Any) -> None:
    """It does not know a hello of version 2: it is said again in its own, which is remembered.

    What follows the second hello is a real server's, to which the client is one of version 1.
    """
    with closing(Scripted(KNOWS_VERSION_1, backend=pair.spec["ps"][0])) as server:
        for connections in (2, 3):
            began = time.monotonic()
            assert summed(server.target) == SUM
            assert time.monotonic() - began < LATE
            assert server.openings == [HELLO_2, HELLO_1, HELLO_1][:connections]
            assert path_to(server) == "shm"
        with session_at(server.target) as session:
            # More than a ring has room for, each way.
            fed = tf.compat.v1.placeholder(tf.float64, [None])
            value = session.run(fed + 1.0, {fed: [1.0] * 2**20})
            assert (value == 2.0).all() and value.size == 2**20
        address = re.escape(server.address)
    assert re.search(rf"connected to ipv4:{address} over shm", capfd.readouterr().err)


#: What such a server answers to a hello of its own version.
OLD_STAYS = {
    "no fabric": (goes_on(OldAnswer(reason="it is Sunday").encode()), "it is Sunday"),
    "nobody there": (attaches_old(NOWHERE), "connecting to @ar-grpc.0+: .*refused"),
    "another address": (attaches_old("/etc/passwd"), "not a shared-memory address: /etc/passwd"),
    "another version": (goes_on(NEWER), "the peer speaks version 7, this end speaks 1"),
    "it was replaced": (
        goes_on(Answer(reason="it is Sunday").encode()),
        "the peer speaks version 2, this end speaks 1",
    ),
}


@pytest.mark.parametrize("name", OLD_STAYS)
def test_fabric_that_version_1_does_not_have(stock: Cluster, capfd: Any, name: str) -> None:
    script, why = OLD_STAYS[name]
    assert_over_tcp(
        stock,
        capfd,
        [KNOWS_VERSION_1, script],
        why,
        openings=[HELLO_2, HELLO_1],
        anew=name == "nobody there",
    )


OLD_RECONNECTS = {
    "garbage": (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), NO_AR),
    "a close": (says(), CLOSED),
    "a malformed answer": (
        says(frame(ANSWER, SOME_NODE + text("shm"), OLD_VERSION)),
        "malformed answer",
    ),
    "an unknown fabric": (says(OldAnswer("verbs").encode()), "not offered: verbs"),
    "a verdict": (says(Verdict(True).encode(OLD_VERSION)), "a frame of kind 3 instead of 2"),
}


@pytest.mark.parametrize("name", OLD_RECONNECTS)
def test_server_that_is_not_even_of_version_1(stock: Cluster, capfd: Any, name: str) -> None:
    script, why = OLD_RECONNECTS[name]
    scripts = [KNOWS_VERSION_1, script]
    assert_over_tcp(stock, capfd, scripts, why, openings=[HELLO_2, HELLO_1, HTTP_2])


def test_server_of_version_1_dies(pair: Cluster) -> None:
    """gRPC connects again, says hello in the version that it remembers, and has shared memory."""
    dies = says(OldAnswer("shm", NOWHERE, SOME_TOKEN).encode())
    with closing(Scripted(KNOWS_VERSION_1, dies, backend=pair.spec["ps"][0])) as server:
        began = time.monotonic()
        assert summed(server.target) == SUM
        assert time.monotonic() - began < RECONNECT + LATE
        assert server.openings == [HELLO_2, HELLO_1, HELLO_1]
        assert path_to(server) == "shm"


# --- either end stands still for as long as the handshake may take --------------------------------

AGAIN = 30.0  # seconds within which the path is shared memory again
RETIRED = 11.0  # a connection that is on TCP for now has been retired by then
AWAY = 20.0  # kAwayAfterRetirement of protocol/node.h


def warned(log: str, address: str) -> bool:
    """Whether a warning of ours names the peer."""
    return bool(re.search(rf": W [^\n]*AR-gRPC: [^\n]*{re.escape(address)}", log))


#: Where the server falls silent. What it says then it said too late, to a connection that is gone.
STALLS = {
    "at the hello": falls_silent(),
    "after the answer": falls_silent(Answer("shm").encode()),
    "in the attachment's frame": falls_silent(invites(TokenFrame(NOWHERE))[:-3]),
    "after the client's verdict": refuses_and(falls_silent()),
    "after its own verdict": falls_silent(
        invites(TokenFrame(NOWHERE)), Verdict(False, transient=True).encode()
    ),
}


@pytest.mark.parametrize("name", few(STALLS, "at the hello", "after the client's verdict"))
def test_server_stalls(pair: Cluster, capfd: Any, name: str) -> None:
    """The client waits five seconds, says so, and says hello again: no step fails."""
    with closing(Scripted(STALLS[name], backend=pair.spec["ps"][0])) as server:
        with session_at(server.target, seconds=60) as session:
            began = time.monotonic()
            loop = Loop(callable_of(session, tf.random.uniform([]) * 0.0))
            loop.wait_steps(3)
            assert time.monotonic() - began < HANDSHAKE + LATE
            assert path_to(server) == "shm"
            assert loop.finish() is None
        assert server.openings == [HELLO_2, HELLO_2]
        address = server.address
    log = capfd.readouterr().err
    assert warned(log, address), log


def test_server_that_stalls_for_good(stock: Cluster, capfd: Any) -> None:
    """Three times after its answer: then the client does without a hello."""
    stalls = STALLS["after the answer"]
    assert_over_tcp(
        stock,
        capfd,
        [stalls] * 3,
        "it fell silent in the handshake",
        openings=[HELLO_2, HELLO_2, HELLO_2, HTTP_2],
        waits=3 * HANDSHAKE,
    )


def test_fabric_that_cannot_be_had_for_now(pair: Cluster, capfd: Any) -> None:
    """A connection that is on TCP for a reason that passes is made anew, and no step fails."""
    backend = pair.spec["ps"][0]
    # Where the server waits is not told, so both run out of time.
    lossy = watched(backend, lambda _, frame: frame.kind != ATTACH)
    with closing(Scripted(lossy, backend=backend)) as server:
        with session_at(server.target, seconds=60) as session:
            loop = Loop(callable_of(session, tf.random.uniform([]) * 0.0))
            loop.wait_steps(3)
            assert path_to(server) == "tcp"
            assert eventually(lambda: path_to(server) == "shm", AGAIN), server.openings
            loop.wait_steps(3)
            assert loop.finish() is None
        assert server.openings == [HELLO_2, HELLO_2]
        address = server.address
    log = capfd.readouterr().err
    assert warned(log, address) and re.search(rf"{re.escape(address)} over tcp: .*no shm", log), log


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_huge_tensors_while_a_connection_is_retired(pair: Cluster, tmp_path: Path) -> None:
    """The rest of a tensor whose connection is retired comes over the next one: 2.5 GiB fit into no
    response, so the calls for its chunks span both connections."""
    backend = pair.spec["ps"][0]
    lossy = watched(backend, lambda _, frame: frame.kind != ATTACH)
    log = tmp_path / "retired.stderr"
    with closing(Scripted(lossy, backend=backend)) as server:
        spec = {"ps": [server.address], "worker": [own_address()]}
        worker = ServerProcess(spec, "worker", 0, AR, log)
        try:
            worker.wait_ready()

            def path() -> str | None:
                fabric: str | None = worker.status()["paths"].get(f"ipv4:{server.address}")
                return fabric

            with session_at(f"grpc://{spec['worker'][0]}", seconds=200) as session:
                step = callable_of(session, huge_transfer(PS, WORKER, 5 * 2**29 + 8))
                for _ in range(60):
                    there, here = step()
                    assert not difference(here, there)
                    if path() == "shm":
                        break
            assert path() == "shm" and server.openings == [HELLO_2, HELLO_2], server.openings
            assert warned(worker.tail(), server.address), worker.tail()
        finally:
            worker.kill()


@pytest.mark.slow
def test_client_dies_after_its_connection_was_retired(pair: Cluster, tmp_path: Path) -> None:
    """It might come back, so what it was offered is held on for a while, and for no longer."""
    backend = pair.spec["ps"][0]
    lossy = watched(backend, lambda _, frame: frame.kind != ATTACH)

    def held() -> int:
        offers: int = pair[PS].status()["offers_open"]
        return offers

    with closing(Scripted(lossy, backend=backend)) as server:
        spec = {"ps": [server.address], "worker": [own_address()]}
        worker = ServerProcess(spec, "worker", 0, AR, tmp_path / "retired.stderr")
        try:
            worker.wait_ready()
            with session_at(f"grpc://{spec['worker'][0]}", seconds=30) as session:
                # Of no response's size, so that it is fetched in chunks.
                loop = Loop(callable_of(session, huge_transfer(PS, WORKER, 5 * 2**29 + 8)))
                assert eventually(held, 30)
                # Stopped in the midst of a tensor, and past the age at which it is retired.
                worker.stand_still()
                time.sleep(RETIRED)
                assert held() == 1 and server.openings == [HELLO_2], server.openings
                worker.kill()
                killed = time.monotonic()
                assert eventually(lambda: not held(), AWAY + LATE)
                assert time.monotonic() - killed > AWAY - 1
                assert isinstance(loop.finish(), tf.errors.OpError)
        finally:
            worker.kill()


#: The frames of a handshake that goes well: who sends them, and their kinds.
UNDER_WAY = {
    "hello": (CLIENT, HELLO),
    "answer": (SERVER, ANSWER),
    "attachment": (SERVER, ATTACH),
    "client's verdict": (CLIENT, VERDICT),
    "server's verdict": (SERVER, VERDICT),
}
#: These in each run; the others with --run-slow.
TYPICAL_STOPS = {(SERVER, "hello"), (CLIENT, "answer"), (SERVER, "client's verdict")}


@pytest.mark.parametrize(
    ("stopped", "at"),
    [
        pytest.param(
            *case,
            marks=[] if case in TYPICAL_STOPS else [pytest.mark.slow],
            id=f"{case[0]}-{case[1]}",
        )
        for case in itertools.product((CLIENT, SERVER), UNDER_WAY)
    ],
)
def test_stopped_in_the_handshake(pair: Cluster, stopped: str, at: str) -> None:
    """SIGSTOP for five seconds once this frame is under way: then it is shared memory again."""
    pids = {SERVER: pair[PS].pid}
    stops: list[threading.Timer] = []

    def look(sender: str, frame: Frame) -> bool:
        if (sender, frame.kind) == UNDER_WAY[at] and not stops:
            pid = pids[stopped]
            stand_still(pid)
            stops.append(threading.Timer(HANDSHAKE, os.kill, (pid, signal.SIGCONT)))
            stops[0].start()
        return True

    backend = pair.spec["ps"][0]
    with closing(Scripted(watched(backend, look), backend=backend)) as server:
        settings = {"target": server.target, "seconds": AGAIN, "more": 5}
        program = Program(PROGRAMS / "until_shm.py", settings)
        pids[CLIENT] = program.pid
        try:
            outcome = program.wait(90)
        finally:
            for stop in stops:
                stop.join()
        result = outcome.result()
        assert stops, server.openings
        assert result["path"] == "shm" and result["wrong"] == [], result
        assert HANDSHAKE - 0.1 < result["seconds"] < AGAIN
        log = outcome.stderr + pair[PS].tail()
        # The client calls the script's address, and the server is called from its own host.
        assert warned(log, server.address) or warned(log, "127.0.0.1:"), log


@pytest.mark.parametrize(("sender", "receiver"), few([(PS, WORKER), (WORKER, PS)], (PS, WORKER)))
def test_stopped_while_the_worker_connects(
    new_ar_cluster: ClusterFactory, sender: str, receiver: str
) -> None:
    """The ps stands still when the worker first connects to it; no step fails for that."""
    cluster = new_ar_cluster(ps=1, worker=1)
    cluster[PS].stand_still()
    try:
        with tf.Graph().as_default():
            step = large_step((sender, receiver), 2)
            with tf.compat.v1.Session(cluster.target(), config=config(60)) as session:
                loop = Loop(callable_of(session, step))
                # Past the first hello's deadline.
                address = cluster.spec["ps"][0]
                assert eventually(lambda: warned(cluster[WORKER].tail(), address), AGAIN)
                cluster[PS].signal(signal.SIGCONT)
                loop.wait_steps(1, AGAIN)
                assert eventually(lambda: path_of(cluster, WORKER, PS) == "shm", AGAIN)
                loop.wait_steps(5)
                assert loop.finish() is None
    finally:
        cluster[PS].signal(signal.SIGCONT)
    assert_works(cluster, "shm")


@pytest.mark.parametrize("more", [0.0, 2.0])
def test_stopped_until_the_worker_gave_up(new_ar_cluster: ClusterFactory, more: float) -> None:
    """The ps stands still until the worker comes without a hello, and `more` seconds; then it finds
    the earlier hellos and ends what followed, so that the worker greets again. No step fails."""
    cluster = new_ar_cluster(ps=1, worker=1)
    address = cluster.spec["ps"][0]
    cluster[PS].stand_still()
    try:
        with tf.Graph().as_default():
            step = large_step((PS, WORKER), 2)
            with tf.compat.v1.Session(cluster.target(WORKER), config=config(60)) as session:
                loop = Loop(callable_of(session, step))
                gave_up = f"connected to ipv4:{address} over tcp: it did not answer the hello"
                assert eventually(lambda: gave_up in cluster[WORKER].tail(), 2 * HANDSHAKE + LATE)
                time.sleep(more)
                cluster[PS].signal(signal.SIGCONT)
                loop.wait_steps(1, AGAIN)
                assert path_of(cluster, WORKER, PS) != "shm"
                assert eventually(lambda: path_of(cluster, WORKER, PS) == "shm", AGAIN)
                loop.wait_steps(5)
                assert loop.finish() is None
    finally:
        cluster[PS].signal(signal.SIGCONT)
    assert "a hello from its host was found too late" in cluster[PS].tail()
    assert_works(cluster, "shm")
