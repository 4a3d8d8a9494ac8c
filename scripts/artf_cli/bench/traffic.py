"""Which fabric carried the tensors of a burst, by what the tasks counted before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from artf_cli.cluster import Answer, classic_channel

#: The fabric of a burst that moves nothing.
NOTHING = "none"
UNKNOWN = "unknown"


def carrier(
    before: Mapping[str, Answer],
    after: Mapping[str, Answer],
    pairs: Sequence[tuple[str, str]],
    payload: int,
) -> str:
    """The fabric of `pairs` of tasks, each (sender, receiver), that moved `payload` bytes in all.

    `before` and `after` are the answers to `report` of all tasks. A fabric counts when every
    receiver is connected to its sender over it and the receivers got that many bytes over fabrics;
    a classic channel ("mpi", "verbs") when they got as many by it;
    "tcp", when the senders sent that many over connections whose both ends are theirs.
    """
    if payload == 0:
        return NOTHING
    receivers = sorted({receiver for _, receiver in pairs})
    if classic := classic_channel(before, after, receivers, payload):
        return classic
    fabrics = {after[receiver]["fabrics"].get(sender, "tcp") for sender, receiver in pairs}
    if len(fabrics) != 1:
        return UNKNOWN
    (fabric,) = fabrics
    if fabric == "tcp":
        moved = sum(_sent(before, after, *pair) for pair in pairs)
    else:
        moved = sum(
            after[task]["fabric_bytes_received"] - before[task]["fabric_bytes_received"]
            for task in receivers
        )
    return fabric if moved >= payload else UNKNOWN


def _sent(
    before: Mapping[str, Answer], after: Mapping[str, Answer], sender: str, receiver: str
) -> int:
    """Bytes that one task sent to another over TCP connections between the two."""
    ends = {(each["remote"], each["local"]) for each in after[receiver]["connections"]}
    earlier = {each["inode"]: each["bytes_sent"] for each in before[sender]["connections"]}
    return sum(
        each["bytes_sent"] - earlier.get(each["inode"], 0)
        for each in after[sender]["connections"]
        if (each["local"], each["remote"]) in ends
    )


def agreed(fabrics: Sequence[str]) -> str:
    """The fabric of all rounds; those of single rounds, joined by commas, where they differ."""
    return ",".join(sorted(set(fabrics)))
