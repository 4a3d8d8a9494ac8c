"""The frames of the handshake and of shared memory's attachment, in both versions.

Version 2 is ours, version 1 the first wheel's (third_party/ar_grpc/protocol/hello.h,
fabric/token_frame.h, fabric/shm/attach.h). What is encoded may be wrong, as a test wants it; what
is decoded must be right, else ValueError.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MAGIC = b"AR-gRPC\n"
VERSION, OLD_VERSION = 2, 1
HEADER = 16
MAX_FRAME = 8192
MAX_BROCHURES, MAX_NAME, MAX_BROCHURE = 8, 32, 512
MAX_ATTACH_FRAMES, MAX_ATTACH_FRAME = 64, 1024
HELLO, ANSWER, VERDICT, ATTACH = 1, 2, 3, 4
#: Identifiers of fields.
NODE, FEATURES, BROCHURE = 1, 2, 3  # of a hello; the first two of an answer, too
ATTEMPT, FABRIC, LINK, REASON, TRANSIENT = 3, 4, 5, 6, 7  # of an answer
FRAME_ATTEMPT, BYTES = 1, 2  # of an attachment's frame
VERDICT_ATTEMPT, ESTABLISHED, VERDICT_REASON, VERDICT_TRANSIENT = 1, 2, 3, 4

SOME_NODE = b"0123456789abcdef"
SOME_TOKEN = b"?" * 16


def text(value: str) -> bytes:
    return struct.pack("<H", len(value)) + value.encode()


def part(identifier: int, value: bytes, size: int | None = None) -> bytes:
    """A field of version 2; `size` is what it says of its length, where that is a lie."""
    return struct.pack("<HI", identifier, len(value) if size is None else size) + value


class _Reader:
    """Takes the front of some bytes; ValueError where they end too early, or too late."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def take(self, size: int) -> bytes:
        if size > len(self._rest):
            raise ValueError("cut short")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def rest(self) -> bytes:
        return self.take(len(self._rest))

    def end(self) -> None:
        if self._rest:
            raise ValueError(f"{len(self._rest)} bytes too many")


class _Fields:
    """Those of a body of version 2, by identifier; no known field comes twice."""

    def __init__(self, body: bytes) -> None:
        self._values: dict[int, list[bytes]] = {}
        reader = _Reader(body)
        while reader._rest:
            identifier, size = reader.number(2), reader.number(4)
            self._values.setdefault(identifier, []).append(reader.take(size))

    def all(self, identifier: int) -> list[bytes]:
        return self._values.get(identifier, [])

    def get(self, identifier: int, default: bytes | None = None) -> bytes:
        found = self.all(identifier)
        if len(found) > 1 or (not found and default is None):
            raise ValueError(f"field {identifier}: {len(found)} times")
        return found[0] if found else default or b""

    def number(self, identifier: int, size: int, default: int | None = None) -> int:
        absent = None if default is None else default.to_bytes(size, "little")
        value = self.get(identifier, absent)
        if len(value) != size:
            raise ValueError(f"field {identifier}: {len(value)} bytes")
        return int.from_bytes(value, "little")


@dataclass(frozen=True)
class Frame:
    """One as it is on the wire, whatever its body says."""

    version: int
    kind: int
    body: bytes

    def encode(self) -> bytes:
        return MAGIC + struct.pack("<HHI", self.version, self.kind, len(self.body)) + self.body

    def of(self, kind: int, version: int = VERSION) -> Frame:
        """Itself, if it is of this kind and version."""
        if (self.kind, self.version) != (kind, version):
            raise ValueError(f"not kind {kind} of version {version}: {self}")
        return self


def header(data: bytes) -> tuple[int, int, int]:
    """Version, kind and the length of the body that follow these HEADER bytes."""
    if len(data) != HEADER or data[: len(MAGIC)] != MAGIC:
        raise ValueError(f"no header of a frame: {data!r}")
    version, kind, size = struct.unpack("<HHI", data[len(MAGIC) :])
    return version, kind, size


def frame(kind: int, body: bytes, version: int = VERSION) -> bytes:
    return Frame(version, kind, body).encode()


def frames(data: bytes) -> Iterable[Frame]:
    """All of which these bytes consist."""
    reader = _Reader(data)
    while reader._rest:
        version, kind, size = header(reader.take(HEADER))
        yield Frame(version, kind, reader.take(size))


# --- who can meet whom ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a process runs: shared memory's brochure. An empty text is not compared."""

    user: int = field(default_factory=os.geteuid)
    boot_id: str = field(
        default_factory=lambda: Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    )
    network: str = field(default_factory=lambda: str(Path("/proc/self/ns/net").readlink()))
    directory: str = ""
    version: int = 1

    def encode(self) -> bytes:
        flag = bytes([bool(self.directory)])
        texts = b"".join(text(each) for each in (self.boot_id, self.network, self.directory))
        return struct.pack("<HI", self.version, self.user) + flag + texts


Brochures = tuple[tuple[str, bytes], ...]


def brochures(*fabrics: str) -> Brochures:
    """Of a client that can use these; shared memory's says that it runs here."""
    return tuple((name, Place().encode() if name == "shm" else b"") for name in fabrics)


# --- the handshake --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    """Version 1 has no features, and of a fabric only its name."""

    brochures: Brochures = ()
    node: bytes = SOME_NODE
    features: int = 0

    def encode(self, version: int = VERSION) -> bytes:
        if version == OLD_VERSION:
            names = b"".join(text(name) for name, _ in self.brochures)
            return frame(HELLO, self.node + bytes([len(self.brochures)]) + names, version)
        body = part(NODE, self.node) + part(FEATURES, struct.pack("<Q", self.features))
        for name, brochure in self.brochures:
            body += part(BROCHURE, text(name) + brochure)
        return frame(HELLO, body, version)

    @staticmethod
    def decode(frame: Frame) -> Hello:
        if frame.version == OLD_VERSION:
            reader = _Reader(frame.of(HELLO, OLD_VERSION).body)
            node, count = reader.take(16), reader.number(1)
            old = Hello(tuple((reader.text(), b"") for _ in range(count)), node)
            reader.end()
            return old
        fields = _Fields(frame.of(HELLO).body)
        offered = []
        for each in fields.all(BROCHURE):
            reader = _Reader(each)
            offered.append((reader.text(), reader.rest()))
        return Hello(tuple(offered), fields.get(NODE), fields.number(FEATURES, 8, 0))


def hello(*fabrics: str, version: int = VERSION, node: bytes = SOME_NODE) -> bytes:
    return Hello(brochures(*fabrics), node).encode(version)


@dataclass(frozen=True)
class Answer:
    """Of version 2."""

    fabric: str = ""
    attempt: int = 1
    reason: str = ""
    transient: bool = False
    link: bytes = SOME_TOKEN
    node: bytes = SOME_NODE
    features: int = 0

    def encode(self, version: int = VERSION) -> bytes:
        body = part(NODE, self.node) + part(FEATURES, struct.pack("<Q", self.features))
        body += part(ATTEMPT, struct.pack("<I", self.attempt))
        if self.fabric:
            body += part(FABRIC, self.fabric.encode()) + part(LINK, self.link)
        if self.reason:
            body += part(REASON, self.reason.encode())
        if self.transient:
            body += part(TRANSIENT, b"\1")
        return frame(ANSWER, body, version)

    @staticmethod
    def decode(frame: Frame) -> Answer:
        fields = _Fields(frame.of(ANSWER).body)
        fabric = fields.get(FABRIC, b"").decode()
        return Answer(
            fabric,
            fields.number(ATTEMPT, 4),
            fields.get(REASON, b"").decode(),
            bool(fields.number(TRANSIENT, 1, 0)),
            fields.get(LINK, None if fabric else b""),
            fields.get(NODE),
            fields.number(FEATURES, 8, 0),
        )


@dataclass(frozen=True)
class OldAnswer:
    """Of version 1: where to attach, too."""

    fabric: str = ""
    address: str = ""
    token: bytes = SOME_TOKEN
    reason: str = ""
    node: bytes = SOME_NODE

    def encode(self) -> bytes:
        body = self.node + text(self.fabric) + text(self.address) + self.token + text(self.reason)
        return frame(ANSWER, body, OLD_VERSION)

    @staticmethod
    def decode(frame: Frame) -> OldAnswer:
        reader = _Reader(frame.of(ANSWER, OLD_VERSION).body)
        node = reader.take(16)
        said = OldAnswer(reader.text(), reader.text(), reader.take(16), reader.text(), node)
        reader.end()
        return said


@dataclass(frozen=True)
class Attach:
    """A frame of a fabric's attachment, on its way over TCP; version 1 has none."""

    data: bytes
    attempt: int = 1

    def encode(self) -> bytes:
        attempt = part(FRAME_ATTEMPT, struct.pack("<I", self.attempt))
        return frame(ATTACH, attempt + part(BYTES, self.data))

    @staticmethod
    def decode(frame: Frame) -> Attach:
        fields = _Fields(frame.of(ATTACH).body)
        return Attach(fields.get(BYTES), fields.number(FRAME_ATTEMPT, 4))


@dataclass(frozen=True)
class Verdict:
    """Version 1 has no attempts, and nothing that may pass."""

    established: bool
    attempt: int = 1
    reason: str = ""
    transient: bool = False

    def encode(self, version: int = VERSION) -> bytes:
        if version == OLD_VERSION:
            return frame(VERDICT, bytes([self.established]) + text(self.reason), version)
        body = part(VERDICT_ATTEMPT, struct.pack("<I", self.attempt))
        body += part(ESTABLISHED, bytes([self.established]))
        if self.reason:
            body += part(VERDICT_REASON, self.reason.encode())
        if self.transient:
            body += part(VERDICT_TRANSIENT, b"\1")
        return frame(VERDICT, body, version)

    @staticmethod
    def decode(frame: Frame) -> Verdict:
        if frame.version == OLD_VERSION:
            reader = _Reader(frame.of(VERDICT, OLD_VERSION).body)
            old = Verdict(bool(reader.number(1)), reason=reader.text())
            reader.end()
            return old
        fields = _Fields(frame.of(VERDICT).body)
        return Verdict(
            bool(fields.number(ESTABLISHED, 1)),
            fields.number(VERDICT_ATTEMPT, 4),
            fields.get(VERDICT_REASON, b"").decode(),
            bool(fields.number(VERDICT_TRANSIENT, 1, 0)),
        )


# --- the attachment of shared memory --------------------------------------------------------------


@dataclass(frozen=True)
class TokenFrame:
    """The one frame of the attachment: where the server listens, and what to show there."""

    address: str
    token: bytes = SOME_TOKEN
    version: int = 2

    def encode(self) -> bytes:
        return struct.pack("<H", self.version) + text(self.address) + self.token

    @staticmethod
    def decode(data: bytes) -> TokenFrame:
        reader = _Reader(data)
        version = reader.number(2)
        said = TokenFrame(reader.text(), reader.take(16), version)
        reader.end()
        return said


_PACKET = b"ARSH"
REQUEST, REPLY = 1, 2


@dataclass(frozen=True)
class ShmRequest:
    """The connector's packet, which comes with three descriptors."""

    token: bytes = SOME_TOKEN
    ring_bytes: int = 2**20
    version: int = 2
    kind: int = REQUEST

    def encode(self) -> bytes:
        if self.version == OLD_VERSION:
            start, end = struct.pack("<H", self.version), struct.pack("<Q", 0)
        else:
            start, end = struct.pack("<HH", self.version, self.kind), b""
        return _PACKET + start + self.token + struct.pack("<Q", self.ring_bytes) + end


@dataclass(frozen=True)
class ShmReply:
    """The acceptor's: a status code (0: attached) and why not."""

    version: int
    code: int
    reason: str

    @staticmethod
    def decode(data: bytes) -> ShmReply:
        reader = _Reader(data)
        if reader.take(4) != _PACKET:
            raise ValueError(f"no packet of an attachment: {data!r}")
        version = reader.number(2)
        if version != OLD_VERSION and reader.number(2) != REPLY:
            raise ValueError(f"no answer: {data!r}")
        code = reader.number(4)
        if version == OLD_VERSION:
            reader.number(8)  # bytes of a region that may be read
        return ShmReply(version, code, reader.rest().decode())
