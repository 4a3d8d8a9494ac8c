"""Steps on a parameter server that drains each of its connections within milliseconds.

Prints the errors of the steps, and how many connections they took.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from concurrent import futures

import grpc
import numpy as np
import tensorflow as tf

from common.grpcio_worker import WorkerService
from common.processes import own_address

PS = "/job:ps/replica:0/task:0"
AGE_MS = 5
THREADS = 4


def main() -> None:
    settings = json.loads(sys.argv[1])
    options = [
        ("grpc.max_connection_age_ms", AGE_MS),
        ("grpc.max_connection_age_grace_ms", 2**31 - 1),
        ("grpc.max_receive_message_length", -1),
    ]
    ps = grpc.server(futures.ThreadPoolExecutor(THREADS), options=options)
    service = WorkerService(PS)
    ps.add_generic_rpc_handlers((service,))
    port = ps.add_insecure_port("127.0.0.1:0")
    ps.start()
    spec = {"ps": [f"127.0.0.1:{port}"], "worker": [own_address()]}
    server = tf.distribute.Server(
        spec, job_name="worker", task_index=0, protocol=settings["protocol"]
    )
    errors: Counter[str] = Counter()
    with tf.Graph().as_default():
        with tf.device(PS):
            fed = tf.compat.v1.placeholder(tf.float32, [settings["values"]])
            step = tf.group(fed)
        session = tf.compat.v1.Session(server.target)
        call = session.make_callable(step, [fed])
        value = np.zeros(settings["values"], np.float32)

        def steps() -> None:
            for _ in range(settings["steps"] // THREADS):
                try:
                    call(value)
                except tf.errors.OpError as error:
                    errors[f"{type(error).__name__}: {error}"] += 1

        with futures.ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(steps) for _ in range(THREADS)]:
                done.result()
    print(json.dumps({"errors": errors, "connections": len(service.peers)}), flush=True)
    # A server has no way to be stopped.
    os._exit(0)


if __name__ == "__main__":
    main()
