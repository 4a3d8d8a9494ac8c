"""What two tasks tell their RDMA device for one tensor, by size; runs in a virtual host.

Its argument is JSON: the wheel's `python`, the `library` that counts, the `protocols`, `sizes` in
bytes (0: a step without a tensor), `steps` of each, and the file `result` that gets the rows.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from artf_cli import variants
from artf_cli.cluster import PS, Cluster, leave_all
from artf_cli.supervise import Group

_TASK = Path(__file__).with_name("counted_task.py")
_WORKER = "worker:0"
#: Steps until two rounds of them in a row moved the same bytes by READ and WRITE, and registered as
#: much: memory is registered aside, and what is not yet goes another way.
_WARM_STEPS, _WARM_ROUNDS = 5, 20
#: Steps whose tensors' addresses are looked at.
_LOOKS = 3
# Credits and releases follow a step that has ended.
_QUIET_S = 0.5
# libibverbs' opcodes, the fabric's frames (fabric/verbs/stream_frame.h) and HTTP/2's.
_WRITE, _READ = "0", "4"
_OPCODES = {
    _WRITE: "write",
    "1": "write_with_imm",
    "2": "send",
    "3": "send_with_imm",
    _READ: "read",
}
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
        "registrations": after["registrations"] - before["registrations"],
        "frames": _less(after["frames"], before["frames"], _FRAMES),
        "http2": _less(after["http2"], before["http2"], _HTTP2),
    }


def _looks(cluster: Cluster, size: int, source: int) -> dict[str, int]:
    """Of the bytes that the device moved in some steps: how many READs and WRITEs took, of these
    how many from the variable's own bytes, and how many of the READs' to their place in the tensor
    that the step gave."""
    found = {"looks": _LOOKS, "read": 0, "written": 0, "from_source": 0, "direct": 0}
    for _ in range(_LOOKS):
        before = _counts(cluster)
        target = cluster.ask([_WORKER], "where", size=size)[_WORKER]["address"]
        after = _counts(cluster)
        for local, count, remote in after[_WORKER]["reads"][len(before[_WORKER]["reads"]) :]:
            found["read"] += count
            found["from_source"] += count if source <= remote <= source + size - count else 0
            inside = target <= local and local + count <= target + size
            if inside and remote - source == local - target:
                found["direct"] += count
        for local, count, _remote in after[PS]["writes"][len(before[PS]["writes"]) :]:
            found["written"] += count
            found["from_source"] += count if source <= local <= source + size - count else 0
    return found


def _moved(counts: dict[str, Counts]) -> tuple[int, int, int]:
    """All bytes so far of the worker's READs and of the server's WRITEs, and all registrations."""
    return (
        _flat(counts[_WORKER], "bytes").get(_READ, 0),
        _flat(counts[PS], "bytes").get(_WRITE, 0),
        sum(task["registrations"] for task in counts.values()),
    )


def _warm(cluster: Cluster, size: int) -> None:
    found: list[tuple[int, ...]] = []
    moved = _moved(_counts(cluster))
    while len(found) < 2 or found[-1] != found[-2]:
        if len(found) == _WARM_ROUNDS:
            raise RuntimeError(f"steps of {size} bytes go now this way and now that: {found}")
        cluster.ask([_WORKER], "steps", size=size, steps=_WARM_STEPS)
        before, moved = moved, _moved(_counts(cluster))
        found.append(tuple(now - then for now, then in zip(moved, before)))


def _case(cluster: Cluster, protocol: str, size: int, steps: int) -> dict[str, Any]:
    cluster.ask([_WORKER], "case", size=size)
    _warm(cluster, size)
    before = _counts(cluster)
    cluster.ask([_WORKER], "steps", size=size, steps=steps)
    after = _counts(cluster)
    row: dict[str, Any] = {"bench": "requests", "bytes": size, "tensors": 1 if size else 0}
    row.update(protocol=protocol, steps=steps)
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
    rows = []
    with tempfile.TemporaryDirectory() as logs, Group(Path(logs)) as group:
        python = Path(settings["python"])
        for label in settings["protocols"]:
            cluster = Cluster(group, python, str(_TASK), label, workers=1)
            cluster.serve()
            protocol = variants.parse(label).protocol
            rows += [
                _case(cluster, protocol, size, settings["steps"]) for size in settings["sizes"]
            ]
            if protocol == variants.AR:
                assert cluster.report()[_WORKER]["fabrics"][PS] == "verbs", cluster.report()
            leave_all(group, [cluster])
    Path(settings["result"]).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
