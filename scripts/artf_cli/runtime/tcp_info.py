"""What the kernel counted on this process's own TCP sockets (Linux TCP_INFO)."""

from __future__ import annotations

import os
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

_ESTABLISHED = 1  # TCP_ESTABLISHED in netinet/tcp.h
_LISTEN = 10


# offsetof() in `struct tcp_info` of linux/tcp.h. It is kernel ABI and only ever grows at its end;
# the kernel copies what it has, so a shorter answer means that the later fields do not exist.
_BYTES_ACKED = 120  # Linux 4.1
_BYTES_RECEIVED = 128  # Linux 4.1
_BYTES_SENT = 200  # Linux 4.19; every retransmission counts in it
_BYTES_RETRANSMITTED = 208  # Linux 4.19


@dataclass(frozen=True)
class TcpSocket:
    """One TCP socket of this process; addresses are `host:port`, counts are bytes of payload."""

    inode: int
    local: str
    remote: str
    established: bool
    bytes_sent: int
    bytes_received: int


def counters(raw: bytes) -> tuple[int, int, int]:
    """(state, bytes sent, bytes received) of an answer to getsockopt(TCP_INFO).

    Each byte sent counts once, however often it was retransmitted. Sent falls back to what the
    peer acknowledged on kernels before 4.19. Raises OSError when the kernel counts no bytes at
    all (before 4.1).
    """
    if len(raw) < _BYTES_RECEIVED + 8:
        raise OSError(f"this kernel's TCP_INFO has {len(raw)} bytes and counts no payload")
    if len(raw) >= _BYTES_RETRANSMITTED + 8:
        total, again = struct.unpack_from("=QQ", raw, _BYTES_SENT)
        sent = total - again
    else:
        (sent,) = struct.unpack_from("=Q", raw, _BYTES_ACKED)
    (received,) = struct.unpack_from("=Q", raw, _BYTES_RECEIVED)
    return raw[0], sent, received


def _address(name: tuple[str, int]) -> str:
    host = name[0]
    # gRPC's sockets are dual-stack: the same connection is ::ffff:127.0.0.1 on one of its ends.
    return f"{host[7:] if host.startswith('::ffff:') else host}:{name[1]}"


def _examine(fd: int) -> TcpSocket | None:
    """The TCP socket at `fd`; None when there is none, or it was closed under our hands."""
    try:
        copy = os.dup(fd)
    except OSError:
        return None
    try:
        state = os.fstat(copy)
        if not stat.S_ISSOCK(state.st_mode):
            return None
        # fromfd duplicates once more, and closing a duplicate does not shut the connection down.
        with socket.fromfd(copy, socket.AF_INET, socket.SOCK_STREAM) as plain:
            family = plain.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)
            protocol = plain.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
        if family not in (socket.AF_INET, socket.AF_INET6) or protocol != socket.IPPROTO_TCP:
            return None
        with socket.fromfd(copy, family, socket.SOCK_STREAM) as own:
            raw = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1024)
            code, sent, received = counters(raw)
            if code == _LISTEN:
                return None
            local = _address(own.getsockname())
            try:
                remote = _address(own.getpeername())
            except OSError:  # no longer, or not yet, connected: its bytes still count
                remote = ""
        return TcpSocket(state.st_ino, local, remote, code == _ESTABLISHED, sent, received)
    finally:
        os.close(copy)


def tcp_sockets() -> list[TcpSocket]:
    """The TCP sockets that this process holds now (listeners left out), each once.

    Bytes of connections that are already closed are not in it: the kernel forgets them.
    """
    found: dict[int, TcpSocket] = {}
    for path in Path("/proc/self/fd").iterdir():
        try:
            link = path.readlink().name
        except OSError:
            continue
        if link.startswith("socket:"):
            tcp = _examine(int(path.name))
            if tcp is not None:
                found[tcp.inode] = tcp
    return list(found.values())


def bytes_sent() -> int:
    """The payload bytes that this process sent over the TCP sockets that it holds now."""
    return sum(tcp.bytes_sent for tcp in tcp_sockets())
