"""The doctor's look at RDMA: what it reads from sysfs and pyverbs, and what it says is wrong."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from artf_cli import rdma, rdma_probe, system
from artf_cli.rdma import Device, Gid, Port, Probe, Rdma

V2 = Gid(index=1, gid="::ffff:10.77.0.1", type="RoCE v2")
V1 = Gid(index=0, gid="fe80::1", type="RoCE v1")
WORKS = Probe(ok=True, bytes=4096, error="")


def port(**changes: object) -> Port:
    whole = Port(
        port=1,
        state="ACTIVE",
        link_layer="Ethernet",
        active_mtu=1024,
        max_mtu=4096,
        gids=[V1, V2],
        pkeys=["0xffff"],
        probe=WORKS,
    )
    whole.update(changes)  # type: ignore[typeddict-item]
    return whole


def found(*ports: Port, error: str = "", source: str = "pyverbs", missing: str = "") -> Rdma:
    devices = [Device(name="rxe0", ports=list(ports), error=error)]
    return Rdma(
        source=source,
        missing=missing,
        devices=devices,
        memlock={"soft": 65536, "hard": None},
        problems=rdma.problems(devices),
    )


def test_gids_are_written_as_people_write_them() -> None:
    assert rdma_probe.gid_text("0000:0000:0000:0000:0000:ffff:0a4d:0001") == "::ffff:10.77.0.1"
    assert rdma_probe.gid_text("fe80:0000:0000:0000:5c4f:26ff:febe:3043") == (
        "fe80::5c4f:26ff:febe:3043"
    )
    assert [rdma_probe.mtu_bytes(n) for n in range(7)] == [None, 256, 512, 1024, 2048, 4096, None]


def test_the_probe_takes_the_name_that_the_fabric_prefers() -> None:
    link_local = {"index": 2, "gid": "fe80::1", "type": "RoCE v2"}
    ipv6 = {"index": 3, "gid": "fd00::1", "type": "RoCE v2"}
    ipv4 = {"index": 4, "gid": "::ffff:10.0.0.1", "type": "RoCE v2"}
    v1 = {"index": 5, "gid": "::ffff:10.0.0.1", "type": "RoCE v1"}
    assert rdma_probe.best_gid([v1, link_local, ipv6, ipv4]) == 4
    assert rdma_probe.best_gid([v1, link_local, ipv6]) == 3
    assert rdma_probe.best_gid([v1, link_local]) == 2
    assert rdma_probe.best_gid([v1]) == 5


def sysfs(folder: Path, layer: str = "Ethernet") -> Path:
    files = {
        "state": "4: ACTIVE\n",
        "link_layer": f"{layer}\n",
        "gids/0": "fe80:0000:0000:0000:5c4f:26ff:febe:3043\n",
        "gids/1": "0000:0000:0000:0000:0000:ffff:0a4d:0001\n",
        "gids/2": "0000:0000:0000:0000:0000:0000:0000:0000\n",
        "gids/10": "0000:0000:0000:0000:0000:ffff:0a4d:0002\n",
        "gid_attrs/types/0": "IB/RoCE v1\n",
        "gid_attrs/types/1": "RoCE v2\n",
        "gid_attrs/types/2": "RoCE v2\n",
        "gid_attrs/types/10": "RoCE v2\n",
        "pkeys/0": "0xffff\n",
        "pkeys/1": "0x0000\n",
        "pkeys/2": "0x8001\n",
    }
    for name, text in files.items():
        path = folder / "mlx5_0/ports/1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_sysfs_tells_ports_gids_and_keys(tmp_path: Path) -> None:
    gids = [
        Gid(index=0, gid="fe80::5c4f:26ff:febe:3043", type="RoCE v1"),
        Gid(index=1, gid="::ffff:10.77.0.1", type="RoCE v2"),
        Gid(index=10, gid="::ffff:10.77.0.2", type="RoCE v2"),
    ]
    shown = port(gids=gids, pkeys=["0xffff", "0x8001"], active_mtu=None, max_mtu=None, probe=None)
    devices = rdma.from_sysfs(sysfs(tmp_path))
    assert devices == [Device(name="mlx5_0", ports=[shown], error="")]
    assert rdma.from_sysfs(tmp_path / "none") == []
    (device,) = rdma.from_sysfs(sysfs(tmp_path, "InfiniBand"))
    assert device["ports"][0]["gids"][0]["type"] == "InfiniBand"


def python(folder: Path, says: str, status: int = 0) -> Path:
    """A Python whose pyverbs says this."""
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\necho '{says}'\necho why >&2\nexit {status}\n")
    path.chmod(0o755)
    return path


def test_without_pyverbs_it_is_sysfs_and_the_package_is_named(tmp_path: Path) -> None:
    root = sysfs(tmp_path / "sys")
    none = python(tmp_path, json.dumps({"missing": "No module named pyverbs"}))
    looked = rdma.look(none, root)
    assert (looked["source"], looked["devices"]) == ("sysfs", rdma.from_sysfs(root))
    assert looked["missing"] == f"{none} has no pyverbs (No module named pyverbs)"
    check = rdma.probe_check(looked)
    assert (check["status"], check["detail"]) == ("warn", f"not probed: {looked['missing']}")
    assert check["cure"] == system.cure("pyverbs")
    looked = rdma.look(python(tmp_path, "", 139), root)
    assert looked["missing"].endswith("rdma_probe.py ended with status 139: why")
    assert rdma.look(tmp_path / "nothing", root)["source"] == "sysfs"


def test_a_device_that_libibverbs_does_not_know_is_shown(tmp_path: Path) -> None:
    root = sysfs(tmp_path / "sys")
    looked = rdma.look(python(tmp_path, json.dumps({"devices": []})), root)
    assert (looked["source"], looked["missing"]) == ("pyverbs", "")
    (device,) = looked["devices"]
    assert device["error"] == "libibverbs does not list it"
    (problem,) = looked["problems"]
    assert problem["what"] == "mlx5_0: libibverbs does not list it"
    assert problem["cure"].endswith(system.cure("rdma"))
    assert rdma.devices_check(looked)["status"] == "warn"


@pytest.mark.parametrize(
    ("wrong", "what", "cure"),
    [
        (port(), None, ""),
        (port(state="DOWN", probe=None), "rxe0/1 is DOWN", "ip link set NAME up"),
        (port(state="INIT", link_layer="InfiniBand"), "rxe0/1 is INIT", "opensm"),
        (port(gids=[]), "rxe0/1 has no RoCE GID", "ip address add"),
        (port(gids=[V1]), "rxe0/1 has RoCE v1 GIDs only", "ip address add"),
        (port(gids=[], link_layer="InfiniBand"), "rxe0/1 has no GID", "opensm"),
        (port(pkeys=[]), "rxe0/1 is in no partition", "subnet manager"),
        (
            port(probe=Probe(ok=False, bytes=0, error="Failed to register a MR. Errno: 12")),
            "rxe0/1: Failed to register a MR. Errno: 12",
            "ulimit -l unlimited",
        ),
    ],
)
def test_what_is_wrong_with_a_port_has_a_cure(wrong: Port, what: str | None, cure: str) -> None:
    problems = found(wrong)["problems"]
    if what is None:
        assert problems == []
        return
    (problem,) = problems
    assert problem["what"].startswith(what)
    assert cure in problem["cure"]


def test_a_device_that_cannot_be_opened() -> None:
    (problem,) = found(error="Failed to open device rxe0. Errno: 13")["problems"]
    assert problem["what"] == "rxe0: Failed to open device rxe0. Errno: 13"
    assert "--device /dev/infiniband" in problem["cure"]


def test_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rdma.devices_check(found(port()))["detail"] == "rxe0/1 active (Ethernet)"
    assert rdma.devices_check(found(port()))["status"] == "ok"
    assert rdma.devices_check(found(port(state="DOWN")))["status"] == "warn"
    nothing = Rdma(source="pyverbs", missing="", devices=[], memlock={"soft": 65536}, problems=[])
    assert rdma.devices_check(nothing)["detail"] == "none in /sys/class/infiniband"
    assert rdma.probe_check(nothing)["detail"] == "no active port to probe"
    works = rdma.probe_check(found(port()))
    assert works["detail"] == "rxe0/1: RDMA WRITE and READ of 4096 bytes came back right"
    assert works["status"] == "ok"
    failed = rdma.probe_check(found(port(probe=Probe(ok=False, bytes=0, error="no luck"))))
    assert (failed["status"], failed["detail"]) == ("warn", "rxe0/1: no luck")


@pytest.mark.parametrize(
    ("user", "limits", "devices", "status", "detail"),
    [
        (1000, (65536, 65536), True, "warn", "soft 64 KiB, hard 64 KiB"),
        (1000, (65536, 65536), False, "ok", "soft 64 KiB, hard 64 KiB"),
        (0, (65536, 65536), True, "ok", "soft 64 KiB, hard 64 KiB"),
        (1000, (resource.RLIM_INFINITY,) * 2, True, "ok", "soft unlimited, hard unlimited"),
    ],
)
def test_the_memlock_limit(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    user: int,
    limits: tuple[int, int],
    devices: bool,
    status: str,
    detail: str,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    ask: Callable[[int], tuple[int, int]] = lambda kind: limits  # noqa: E731
    monkeypatch.setattr(resource, "getrlimit", ask)
    root = sysfs(tmp_path) if devices else tmp_path
    check = rdma.memlock_check(rdma.look(Path("/nonexistent"), root))
    assert (check["status"], check["detail"]) == (status, detail)
    assert ("ulimit -l unlimited" in check["cure"]) == (status == "warn")
