"""Says AR-gRPC's hello to a server, and tells from the answer what that is.

The bytes are those of third_party/ar_grpc/protocol/hello.h, which tests compare with this. The
hello has no brochure: it asks whether the server speaks AR-gRPC, and offers no fabric to attach.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from dataclasses import dataclass

MAGIC = b"AR-gRPC\n"
VERSION = 2
_HELLO, _ANSWER = 1, 2
# Of hello.h: kHelloNode; kAnswerNode, kAnswerFabric and kAnswerReason.
_HELLO_NODE = 1
_ANSWER_NODE, _ANSWER_FABRIC, _ANSWER_REASON = 1, 4, 6
_HEADER = len(MAGIC) + 8
_LARGEST = 8192
_NODE_BYTES = 16
_WAIT_S = 5.0

#: What a server can be.
AR, GRPC, TLS, OTHER, SILENT, CLOSED, UNREACHABLE = (
    "grpc+ar",
    "grpc",
    "tls",
    "other",
    "silent",
    "closed",
    "unreachable",
)


@dataclass(frozen=True)
class Found:
    """What answers at an address: one of the words above, and what it said or why it did not."""

    kind: str
    detail: str


def _frame(kind: int, body: bytes) -> bytes:
    return MAGIC + struct.pack("<HHI", VERSION, kind, len(body)) + body


def _field(number: int, data: bytes) -> bytes:
    return struct.pack("<HI", number, len(data)) + data


def encode_hello(node: bytes) -> bytes:
    """The hello of a client that offers no fabric."""
    return _frame(_HELLO, _field(_HELLO_NODE, node))


def _fields(body: bytes) -> dict[int, bytes] | None:
    """The fields of a body; None where it is cut short."""
    found: dict[int, bytes] = {}
    while body:
        if len(body) < 6:
            return None
        number, size = struct.unpack_from("<HI", body)
        if size > len(body) - 6:
            return None
        found[number] = body[6 : 6 + size]
        body = body[6 + size :]
    return found


def classify(heard: bytes) -> Found | None:
    """What the first bytes from a server say of it; None: more of them are needed."""
    if not heard:
        return None
    if MAGIC.startswith(heard[: len(MAGIC)]):
        return _classify_frame(heard)
    # HTTP/2: a server begins with SETTINGS (4) of stream 0, or goes with GOAWAY (7).
    if len(heard) < 9 and heard[0] == 0:
        return None
    if len(heard) >= 9 and heard[0] == 0 and heard[3] in (4, 7) and heard[5:9] == bytes(4):
        return Found(GRPC, "it speaks HTTP/2 and no AR-gRPC")
    if heard[0] in (0x15, 0x16):
        if len(heard) < 2:
            return None
        if heard[1] == 3:
            return Found(TLS, "it speaks TLS and no AR-gRPC before it")
    shown = heard[:24].decode("ascii", "backslashreplace")
    return Found(OTHER, f"it begins with {shown!r}")


def _classify_frame(heard: bytes) -> Found | None:
    if len(heard) < _HEADER:
        return None
    version, kind, size = struct.unpack_from("<HHI", heard, len(MAGIC))
    if size > _LARGEST - _HEADER:
        return Found(OTHER, "it answers with an AR-gRPC frame that is too long")
    if len(heard) < _HEADER + size:
        return None
    if version != VERSION:
        return Found(AR, f"it speaks version {version} of the handshake, this artf {VERSION}")
    fields = _fields(heard[_HEADER : _HEADER + size])
    if kind != _ANSWER or fields is None or len(fields.get(_ANSWER_NODE, b"")) != _NODE_BYTES:
        return Found(OTHER, "it answers with an AR-gRPC frame that is no answer")
    if _ANSWER_FABRIC in fields:
        return Found(OTHER, "it chooses a fabric that was not offered")
    return Found(AR, fields.get(_ANSWER_REASON, b"").decode("utf-8", "backslashreplace"))


def ask(host: str, port: int, wait_s: float = _WAIT_S) -> Found:
    """What answers there, within some `wait_s` seconds; nothing stays open."""
    limit = time.monotonic() + wait_s
    try:
        connection = socket.create_connection((host, port), timeout=wait_s)
    except OSError as error:
        return Found(UNREACHABLE, error.strerror or str(error))
    heard = b""
    with connection:
        try:
            connection.sendall(encode_hello(secrets.token_bytes(_NODE_BYTES)))
            while (found := classify(heard)) is None:
                connection.settimeout(max(limit - time.monotonic(), 0.001))
                piece = connection.recv(_LARGEST)
                if not piece:
                    return Found(CLOSED, _after(heard, "it closes the connection"))
                heard += piece
        except socket.timeout:
            return Found(SILENT, _after(heard, f"it says nothing more in {wait_s:g} s"))
        except OSError as error:
            return Found(CLOSED, _after(heard, error.strerror or str(error)))
    return found


def _after(heard: bytes, what: str) -> str:
    return f"{what}, after {len(heard)} bytes" if heard else what.replace("nothing more", "nothing")
