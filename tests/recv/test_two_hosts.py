"""Between two virtual hosts: LeNet, the parameter server on one and two workers on the other; and
what is chosen where they are far from each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common import two_hosts, virtual_host
from common.two_hosts import ADDRESSES, OfHost, Said

# Minutes long: all of TensorFlow on two slow processors.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.part("recv-two-hosts"),
]

_REPLICA = Path(__file__).parents[2] / "scripts/artf_cli/runtime/replica.py"
_TASKS = (("ps:0",), ("worker:0", "worker:1"))
_CLUSTER = "ps={0}:2222 worker={1}:2223,{1}:2224".format(*ADDRESSES)
#: Of both workers together; after half as many a run had learned 93 % of the digits. Each worker's
#: first ones, replica.py's _WARM_STEPS, count, too.
STEPS, _WARM_STEPS = 600, 5
#: What LeNet's parameters are, each of which every step reads, and whose gradients it sends.
_PARAMETER_BYTES = 4 * (520 + 25050 + 100500 + 5010)


def train(folder: Path, driver: str, protocol: str, fabric: str = "") -> list[Said]:
    """A process of replica.py for each task; `fabric` is the only one of grpc+ar's."""
    env = {
        "CLUSTER": _CLUSTER,
        "STEPS": str(STEPS // 2 - _WARM_STEPS),
        "PROTOCOL": protocol,
    }
    if fabric:
        env["AR_GRPC_FABRICS"] = fabric
    hosts = [
        {task: OfHost(str(_REPLICA), env={**env, "TASK": task}) for task in tasks}
        for tasks in _TASKS
    ]
    return two_hosts.run(folder, driver, hosts)


def result(lines: list[str]) -> dict[str, Any]:
    """A task's last word but `late`."""
    said = [json.loads(line) for line in lines]
    (found,) = (one for one in said if one["event"] == "result")
    return dict(found)


def learned(hosts: list[Said]) -> tuple[dict[str, dict[str, Any]], int]:
    """The tasks' results, and the steps of both workers; asserts that they have learned."""
    tasks = {task: result(lines) for host in hosts for task, lines in host.lines.items()}
    workers = [tasks["worker:0"], tasks["worker:1"]]
    print(f"accuracy {workers[0]['accuracy']:.3f}")
    assert workers[0]["accuracy"] >= 0.95
    steps = sum(worker["steps"] + _WARM_STEPS for worker in workers)
    # A worker reads the count while the other's update is under way: a few more than wanted.
    assert STEPS <= steps <= STEPS + 20
    return tasks, steps


def check_bytes(host: Said, counted: int, steps: int) -> None:
    """The workers' parameters, or the server's gradients."""
    print(f"{counted} bytes by our counters, at most {host.device_bytes} by the device's")
    assert steps * _PARAMETER_BYTES <= counted <= host.device_bytes


@pytest.mark.parametrize(
    ("driver", "fabric"),
    [
        # The control: the device counts nothing of what goes over TCP.
        ("rxe", "tcp"),
        ("rxe", "verbs"),
        ("siw", "verbs"),
    ],
)
def test_lenet_learns_between_two_hosts(tmp_path: Path, driver: str, fabric: str) -> None:
    """Over this fabric and no other: each peer's path, our counters and the device's say so."""
    virtual_host.need(driver)
    hosts = train(tmp_path, driver, "grpc+ar", fabric)
    tasks, steps = learned(hosts)
    fabrics = {task: said["report"]["fabrics"] for task, said in tasks.items()}
    assert fabrics["ps:0"] == {"worker:0": fabric, "worker:1": fabric}
    assert [fabrics[f"worker:{index}"]["ps:0"] for index in (0, 1)] == [fabric] * 2

    for host, names in zip(hosts, _TASKS):
        counted = sum(tasks[task]["report"]["fabric_bytes_received"] for task in names)
        if fabric == "tcp":
            assert (counted, host.device_bytes) == (0, 0)
        else:
            check_bytes(host, counted, steps)


@pytest.mark.parametrize("driver", virtual_host.DRIVERS)
def test_lenet_learns_by_writes_between_two_hosts(tmp_path: Path, driver: str) -> None:
    """grpc+verbs: what was written is what our counters and the device's say."""
    virtual_host.need(driver)
    hosts = train(tmp_path, driver, "grpc+verbs")
    tasks, steps = learned(hosts)
    for host, names in zip(hosts, _TASKS):
        reports = [tasks[task]["report"] for task in names]
        counted = sum(report["classic_bytes_received"]["verbs"] for report in reports)
        check_bytes(host, counted, steps)
        assert not any(report["fabric_bytes_received"] for report in reports)


@pytest.mark.parametrize("delay_ms", [0, 20])
def test_a_far_peer_gets_small_tensors_at_once(tmp_path: Path, delay_ms: int) -> None:
    """A READ takes a round trip more, and so does each further window of the stream's."""
    virtual_host.need()
    cluster = {job: [f"{address}:2222"] for job, address in zip(("ps", "worker"), ADDRESSES)}
    settings = {"cluster": cluster, "steps": 9, "cases": [(1, 96 << 10), (24, 64 << 10)]}
    far = str(Path(__file__).with_name("programs") / "far_reads.py")
    programs = [{"ps:0": two_hosts.server(cluster, "ps:0", {})}, {"far": OfHost(far, settings)}]
    (_, host) = two_hosts.run(tmp_path, "rxe", programs, delay_ms)
    said = json.loads(host.lines["far"][-1])
    print(said)
    (server,) = cluster["ps"]
    assert said["paths"][f"ipv4:{server}"] == "verbs"
    alone, many = said["cases"].values()
    if not delay_ms:
        # Two kernels on one slow machine may take a little longer than one does with itself.
        assert said["far_us"].get(f"ipv4:{server}", 0) < 10000
        return
    # And what TCP takes beside it.
    assert list(said["far_us"]) == [f"ipv4:{server}"]
    assert 40000 <= said["far_us"][f"ipv4:{server}"] < 80000
    assert alone["read"] == 0
    # A READ would have taken a second round trip.
    assert min(alone["all_ms"]) < 80
    # The window of 128 KiB holds two at once, and some more of those that come later.
    assert 8 <= many["read"] < 24
