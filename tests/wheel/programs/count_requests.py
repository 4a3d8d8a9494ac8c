"""What two tasks tell their RDMA device for one tensor, by size; runs in a virtual host.

Its argument is JSON: the wheel's `python`, the `library` that counts, `sizes` in bytes (0: a step
without a tensor), `steps` of each, and the file `result` that gets the rows.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from artf_cli.cluster import PS, Cluster, leave_all
from artf_cli.supervise import Group

_TASK = Path(__file__).with_name("counted_task.py")
_WORKER = "worker:0"
#: Steps until two rounds of them in a row brought the same bytes by READ: memory is registered
#: aside, and what is not yet goes in the stream.
_WARM_STEPS, _WARM_ROUNDS = 5, 20
#: Steps whose tensors' addresses are looked at.
_LOOKS = 3
# Credits and releases follow a step that has ended.
_QUIET_S = 0.5
# libibverbs' opcodes, the fabric's frames (fabric/verbs/stream_frame.h) and HTTP/2's.
_OPCODES = {"0": "write", "1": "write_with_imm", "2": "send", "3": "send_with_imm"}
_READ = "4"
_OPCODES[_READ] = "read"
_FRAMES = {"1": "data", "2": "message", "3": "credits", "4": "close"}
_HTTP2 = {"0": "DATA", "1": "HEADERS", "3": "RST_STREAM", "4": "SETTINGS", "6": "PING"}
_HTTP2 |= {"7": "GOAWAY", "8": "WINDOW_UPDATE", "9": "CONTINUATION"}

Counts = dict[str, Any]


def _counts(cluster: Cluster) -> dict[str, Counts]:
    """Of both tasks, once all is quiet."""
    time.sleep(_QUIET_S)
    return {task: answer["counts"] for task, answer in cluster.ask(cluster.tasks, "counts").items()}


def _less(after: dict[str, int], before: dict[str, int], names: dict[str, str]) -> dict[str, int]:
    """What was counted between two looks, by name; what was not is left out."""
    grown = {names.get(key, key): count - before.get(key, 0) for key, count in after.items()}
    return {name: count for name, count in grown.items() if count}


def _flat(counts: Counts, field: str) -> dict[str, int]:
    return {opcode: each[field] for opcode, each in counts["requests"].items()}


def _between(before: Counts, after: Counts) -> dict[str, Any]:
    """What one task told its device between two looks."""
    return {
        **{
            field: _less(_flat(after, field), _flat(before, field), _OPCODES)
            for field in ("requests", "bytes", "inline", "signaled")
        },
        "receives": after["receives"] - before["receives"],
        "completions": after["completions"] - before["completions"],
        "frames": _less(after["frames"], before["frames"], _FRAMES),
        "http2": _less(after["http2"], before["http2"], _HTTP2),
    }


def _looks(cluster: Cluster, size: int, source: int) -> dict[str, int]:
    """Of the bytes that READs brought in some steps: all, and those that went from the variable's
    own bytes to their place in the tensor that the step gave."""
    found = {"looks": _LOOKS, "read": 0, "direct": 0}
    for _ in range(_LOOKS):
        before = len(_counts(cluster)[_WORKER]["reads"])
        target = cluster.ask([_WORKER], "where", size=size)[_WORKER]["address"]
        for local, count, remote in _counts(cluster)[_WORKER]["reads"][before:]:
            found["read"] += count
            inside = target <= local and local + count <= target + size
            if inside and remote - source == local - target:
                found["direct"] += count
    return found


def _warm(cluster: Cluster, size: int) -> None:
    found: list[int] = []
    counted = _flat(_counts(cluster)[_WORKER], "bytes").get(_READ, 0)
    while len(found) < 2 or found[-1] != found[-2]:
        if len(found) == _WARM_ROUNDS:
            raise RuntimeError(f"steps of {size} bytes go now this way and now that: {found}")
        cluster.ask([_WORKER], "steps", size=size, steps=_WARM_STEPS)
        before, counted = counted, _flat(_counts(cluster)[_WORKER], "bytes").get(_READ, 0)
        found.append(counted - before)


def _case(cluster: Cluster, size: int, steps: int) -> dict[str, Any]:
    cluster.ask([_WORKER], "case", size=size)
    _warm(cluster, size)
    before = _counts(cluster)
    cluster.ask([_WORKER], "steps", size=size, steps=steps)
    after = _counts(cluster)
    row: dict[str, Any] = {"bench": "requests", "bytes": size, "tensors": 1 if size else 0}
    row.update(protocol="grpc+ar", fabric=cluster.report()[_WORKER]["fabrics"][PS], steps=steps)
    row["worker"] = _between(before[_WORKER], after[_WORKER])
    row["ps"] = _between(before[PS], after[PS])
    if size:
        source = cluster.ask([PS], "source", size=size)[PS]["address"]
        row["looked_at"] = _looks(cluster, size, source)
        cluster.ask([_WORKER], "check", size=size)
    return row


def main() -> None:
    """Writes the rows."""
    settings = json.loads(sys.argv[1])
    os.environ["AR_IBVERBS_LIB"] = settings["library"]
    with tempfile.TemporaryDirectory() as logs, Group(Path(logs)) as group:
        python = Path(settings["python"])
        cluster = Cluster(group, python, str(_TASK), "grpc+ar/verbs", workers=1)
        cluster.serve()
        rows = [_case(cluster, size, settings["steps"]) for size in settings["sizes"]]
        leave_all(group, [cluster])
    Path(settings["result"]).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
