"""A rank of an MPI job that runs a program later: it has a server of grpc+mpi, and waits.

All ranks of a job start at once, so the program cannot join it later; what it does with a cluster
of grpc+mpi it does in this process, as what a launcher starts would. One line of JSON on standard
input names it; without a line this ends. Nothing of MPI is finalized: that would wait for the
servers.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path


def run(order: dict[str, str]) -> int:
    """Runs the program as `python SCRIPT SETTINGS`; its exit status."""
    sys.argv = [order["script"], order["settings"]]
    sys.path[0] = str(Path(order["script"]).parent)
    try:
        runpy.run_path(order["script"], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    settings = json.loads(sys.argv[1])
    import tensorflow as tf

    server = tf.distribute.Server({"client": [settings["address"]]}, protocol="grpc+mpi")
    assert server.target  # and it serves until this process ends
    line = sys.stdin.readline()
    status = run(json.loads(line)) if line else 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
