"""Stands for a task on another host: hands lines on between its own pipes and a connection.

`relay.py DESCRIPTOR`: a connection on which a task has been asked for. Ends as the task ends, with
what that wrote to its standard error.
"""

from __future__ import annotations

import json
import socket
import sys
import threading


def _hand_on(connection: socket.socket) -> None:
    for line in sys.stdin:
        connection.sendall(line.encode())
    connection.shutdown(socket.SHUT_WR)


def main() -> None:
    """Runs until the task has ended, or the connection has."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_hand_on, args=(connection,), daemon=True).start()
    for line in connection.makefile("r"):
        if json.loads(line)["event"] == "ended":
            said = json.loads(line)
            sys.stderr.write(said["said"])
            # A signal's number is negative.
            sys.exit(said["status"] if said["status"] >= 0 else 128 - said["status"])
        sys.stdout.write(line)
        sys.stdout.flush()
    sys.exit("the other host ended the connection")


if __name__ == "__main__":
    main()
