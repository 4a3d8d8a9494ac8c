"""A worker of gRPC's own Python package, which answers what a session's master asks of a task."""

from __future__ import annotations

from typing import Any

import grpc
from tensorflow.core.framework.device_attributes_pb2 import DeviceAttributes


class WorkerService:
    """Answers in the encoding of tensorflow/core/protobuf/worker.proto; most answers are empty."""

    def __init__(self, task: str) -> None:
        """`task` as in `/job:ps/replica:0/task:0`."""
        #: Each connection has a port of its own.
        self.peers: set[str] = set()
        device = DeviceAttributes(
            name=f"{task}/device:CPU:0", device_type="CPU", memory_limit=2**28, incarnation=1
        ).SerializeToString()
        self._answers = {
            # device_attributes
            "GetStatus": bytes([0x0A, len(device)]) + device,
            # graph_handle
            "RegisterGraph": b"\x0a\x01g",
        }

    def service(self, details: Any) -> Any:
        answer = self._answers.get(details.method.rsplit("/", 1)[1], b"")

        def handle(request: bytes, context: Any) -> Any:
            self.peers.add(context.peer())
            return answer

        return grpc.unary_unary_rpc_method_handler(handle)
