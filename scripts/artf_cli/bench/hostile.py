"""The `hostile` suite: what attacks over plain HTTP/2 cost a server in CPU time and memory.

The attacks are those of `runtime/hostile_peer.py`, on one warm parameter server of each protocol in
each round; after each of them a worker must get right values from the server.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import psutil
from rich.table import Table

from artf_cli.cluster import PS, Cluster, leave_all
from artf_cli.console import out
from artf_cli.errors import ArtfError
from artf_cli.progress import Meter
from artf_cli.supervise import Group, log_folder

_PEER = Path(__file__).parents[1] / "runtime" / "hostile_peer.py"
_WORKER = "worker:0"
_MIB = 1 << 20
_ATTACK_S = 600.0
_SETTLE_S = 1.0
DEFAULT_ROUNDS = 5


@dataclass(frozen=True)
class Attack:
    """An attack of `runtime/hostile_peer.py`, its size there, and what it is in words."""

    name: str
    size: int
    text: str


#: In this order: memory that one left to malloc would hide what a later one takes.
ATTACKS = (
    Attack("control", 16 * _MIB, "16 MiB of frames to skip (control)"),
    Attack("header", 16 * _MIB, "a header of 16 MiB"),
    Attack("padding", 4 * _MIB, "an integer with 4 MiB of padding"),
    Attack("resets", 20_000, "20,000 calls begun and reset"),
    Attack("fragments", 1_000_000, "10^6 DATA frames of one byte"),
    Attack("continuation", 64 * _MIB, "64 MiB of CONTINUATION"),
    Attack("bomb", 3 << 30, "a message that inflates to 3 GiB"),
)


class Row(TypedDict):
    """What one attack cost the server of one protocol in one round.

    `cpu_s` are CPU seconds; `peak_bytes` the most memory above what was in use before, `kept_bytes`
    what was still in use a second after the peer had gone. `sent` are bytes, `closed` whether the
    server ended the connection, `status` what it answered the call with.
    """

    bench: str
    protocol: str
    round: int
    attack: str
    size: int
    sent: int
    closed: bool
    status: int | None
    cpu_s: float
    peak_bytes: int
    kept_bytes: int
    seconds: float


def _memory(pid: int, field: str) -> int:
    """Bytes by a field of /proc/PID/status: VmRSS, or VmHWM, the peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _measure(cluster: Cluster, attack: Attack, number: int) -> Row:
    pid = cluster.pid(PS)
    # Makes the peak begin again (proc_pid_clear_refs).
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    before, began = _memory(pid, "VmRSS"), cluster.cpu_seconds_of(PS)
    settings = {"address": cluster.addresses[PS], "attack": attack.name, "size": attack.size}
    done = subprocess.run(
        [sys.executable, _PEER, json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=_ATTACK_S,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ArtfError(
            f"the attack {attack.name!r} on {cluster.variant.label} failed: {last}",
            "run it again; when it fails again, mend runtime/hostile_peer.py",
        )
    outcome = json.loads(done.stdout)
    cpu_s, peak = cluster.cpu_seconds_of(PS) - began, _memory(pid, "VmHWM")
    time.sleep(_SETTLE_S)
    return Row(
        bench="hostile",
        protocol=cluster.variant.label,
        round=number,
        attack=attack.name,
        size=attack.size,
        sent=outcome["sent"],
        closed=outcome["closed"],
        status=outcome["status"],
        cpu_s=round(cpu_s, 4),
        peak_bytes=max(peak - before, 0),
        kept_bytes=max(_memory(pid, "VmRSS") - before, 0),
        seconds=round(outcome["seconds"], 3),
    )


def run(
    pythons: Mapping[str, Path],
    attacks: Sequence[Attack] = ATTACKS,
    rounds: int = DEFAULT_ROUNDS,
    progress: bool = True,
) -> list[Row]:
    """Attacks one server of each protocol (`grpc+ar`, `grpc+ar@against`) with each of `attacks`.

    `pythons` says for each protocol which environment's wheel serves it; they take turns in
    `rounds` rounds, each with servers of its own. Raises ArtfError when a server does not outlive
    an attack, or says something wrong afterwards.
    """
    need = 2 * max(attack.size for attack in attacks)
    have = psutil.virtual_memory().available
    if need > have:
        raise ArtfError(
            f"these attacks need {need >> 20} MiB of memory and {have >> 20} MiB are free",
            "end other programs",
        )
    rows: list[Row] = []
    turns = [(number, *each) for number in range(rounds) for each in pythons.items()]
    with Meter("hostile", len(turns) * len(attacks), progress) as meter:
        for number, protocol, python in turns:
            with log_folder("hostile") as logs, Group(logs) as group:
                cluster = Cluster(group, python, "recv_worker.py", protocol, workers=1)
                cluster.serve()
                cluster.ask([_WORKER], "case", size=_MIB, tensors=1, seed=0)
                _measure(cluster, ATTACKS[0], number)  # what only the first one takes
                for attack in attacks:
                    meter.show(len(rows), f"{attack.text}, {protocol}")
                    rows.append(_measure(cluster, attack, number))
                    cluster.ask([_WORKER], "check", case=0)
                leave_all(group, [cluster])
    return rows


def cost(rows: Sequence[Mapping[str, Any]]) -> str:
    """`9.13 s, 69 MiB (16)`: CPU time, peak of memory, what of it was kept, medians of rounds."""

    def middle(name: str) -> float:
        return float(statistics.median(row[name] for row in rows))

    peak, kept = (round(middle(name) / _MIB) for name in ("peak_bytes", "kept_bytes"))
    return f"{middle('cpu_s'):.2f} s, {peak} MiB ({kept})"


def lines(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The protocols, and for each attack its text and what it cost each of them."""
    protocols = list(dict.fromkeys(row["protocol"] for row in rows))

    def cell(attack: Attack, protocol: str) -> str:
        key = (attack.name, protocol)
        rounds = [row for row in rows if (row["attack"], row["protocol"]) == key]
        return cost(rounds) if rounds else ""

    seen = {row["attack"] for row in rows}
    return protocols, [
        [attack.text, *(cell(attack, protocol) for protocol in protocols)]
        for attack in ATTACKS
        if attack.name in seen
    ]


def render(rows: Sequence[Row]) -> None:
    """Prints the rows as a table on standard output."""
    table = Table(title="What an attack costs the server: CPU time, peak of memory (kept)")
    protocols, cells = lines(rows)
    for name in ("attack", *protocols):
        table.add_column(name)
    for line in cells:
        table.add_row(*line)
    out.print(table)
