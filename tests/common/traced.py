"""What TensorFlow's trace of a step says."""

from __future__ import annotations

from typing import Any


def bytes_received(metadata: Any, call: str) -> list[int]:
    """What each call of this kind, RecvTensor or RecvBuf, brought from task to task."""
    return [
        node.output[0].tensor_description.allocation_description.requested_bytes
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if node.node_name == call
    ]
