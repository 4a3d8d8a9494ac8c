"""A step on a parameter server that comes to refuse every call.

Each call's connection is drained as if no stream had been looked at. Prints how a step ended, after
how many seconds, and how often each call was made.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
from collections import Counter
from concurrent import futures
from contextlib import suppress

import grpc
import tensorflow as tf

from common.grpcio_worker import WorkerService
from common.processes import own_address
from common.protocols import AR
from common.scripted import PREFACE, receive

PS = "/job:ps/replica:0/task:0"
HEADERS = 1
HEADER = 9  # bytes before each frame's payload
EMPTY_SETTINGS = PREFACE[-HEADER:]
#: The last stream that was looked at is 0: none.
GOAWAY = bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + bytes(8)


class Proxy(threading.Thread):
    """Relays connections to the server, until it refuses the calls of all that come."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._refuses = False
        #: By method.
        self.refused: Counter[str] = Counter()
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def refuse(self) -> None:
        self._refuses = True
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        while True:
            client, _ = self._listening.accept()
            if self._refuses:
                threading.Thread(target=self._refuse, args=(client,), daemon=True).start()
                continue
            server = socket.create_connection(("127.0.0.1", self._port))
            self._open += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._relay, args=ends, daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while some := source.recv(65536):
                sink.sendall(some)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _refuse(self, client: socket.socket) -> None:
        client.sendall(EMPTY_SETTINGS)
        receive(client, len(PREFACE) - HEADER)
        while len(head := receive(client, HEADER)) == HEADER:
            payload = receive(client, int.from_bytes(head[:3], "big"))
            if head[3] == HEADERS:
                # As they are a connection's first, the path is written out.
                called = re.search(rb"WorkerService/(\w+)", payload)
                assert called, payload
                self.refused[called[1].decode()] += 1
                client.sendall(GOAWAY)
        client.close()


def main() -> None:
    settings = json.loads(sys.argv[1])
    ps = grpc.server(futures.ThreadPoolExecutor(2))
    ps.add_generic_rpc_handlers((WorkerService(PS),))
    port = ps.add_insecure_port("127.0.0.1:0")
    ps.start()
    proxy = Proxy(port)
    spec = {"ps": [proxy.address], "worker": [own_address()]}
    server = tf.distribute.Server(spec, job_name="worker", task_index=0, protocol=AR)
    with tf.Graph().as_default():
        with tf.device(PS):
            step = tf.group(tf.constant(1.0))
        session = tf.compat.v1.Session(server.target)
        session.run(step)
        proxy.refuse()
        # The channel sees the end of its connection.
        time.sleep(1)
        began = time.monotonic()
        options = tf.compat.v1.RunOptions(timeout_in_ms=settings["timeout_ms"])
        try:
            session.run(step, options=options)
            error = None
        except tf.errors.OpError as raised:
            error = [type(raised).__name__, str(raised)]
    seconds = time.monotonic() - began
    # What was still to be made again would be by now.
    time.sleep(2)
    print(json.dumps({"error": error, "seconds": seconds, "refused": proxy.refused}), flush=True)
    # A server has no way to be stopped.
    os._exit(0)


if __name__ == "__main__":
    main()
