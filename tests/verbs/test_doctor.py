"""The doctor in a virtual RDMA host: what it says of a device that is there, and that it works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from artf_cli import rdma, system
from artf_cli.errors import ArtfError
from common.lacking import cannot_be_had
from rdma_host import machine
from rdma_host.machine import Guest, Link

pytestmark = pytest.mark.timeout(300)

COMMAND = [sys.executable, "-m", "artf_cli", "doctor", "--json"]


@pytest.fixture(scope="module", autouse=True)
def pyverbs() -> None:
    """Installed where it can be; else the tests skip with the reason, but in CI."""
    done = subprocess.run([rdma.SYSTEM_PYTHON, "-c", "import pyverbs.device"], capture_output=True)
    if done.returncode == 0:
        return
    try:
        system.apt_install("pyverbs for the system's Python", ["python3-pyverbs"])
    except ArtfError as error:
        cannot_be_had(str(error))


def doctor(before: str = "", driver: str = "rxe") -> dict[str, Any]:
    """What it says on one of two hosts, after a line of shell."""
    words = ["bash", "-c", f'{before}\nexec "$@"', "doctor", *COMMAND]
    done = machine.run([Guest(words), Guest(["true"])], Link(driver), timeout_s=200)[0]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    # 1: something that a build needs is missing, such as the place on the disk of this host.
    assert done.status == (0 if said["ok"] else 1), done
    return said


def check(said: dict[str, Any], name: str) -> dict[str, str]:
    (found,) = [each for each in said["checks"] if each["name"] == name]
    return dict(found)


def test_a_device_that_works() -> None:
    said = doctor()
    found = said["rdma"]
    assert (found["source"], found["missing"], found["problems"]) == ("pyverbs", "", [])
    assert found["memlock"] == {"soft": None, "hard": None}
    (device,) = found["devices"]
    assert (device["name"], device["error"]) == ("rxe0", "")
    (port,) = device["ports"]
    assert (port["port"], port["state"], port["link_layer"]) == (1, "ACTIVE", "Ethernet")
    # On an Ethernet of 1500 bytes.
    assert (port["active_mtu"], port["max_mtu"]) == (1024, 4096)
    assert port["pkeys"] == ["0xffff"]
    mapped = f"::ffff:{machine.ADDRESSES[0]}"
    assert {"index": machine.GID_INDEX, "gid": mapped, "type": "RoCE v2"} in port["gids"]
    assert port["probe"] == {"ok": True, "bytes": 4096, "error": ""}
    assert check(said, "rdma devices")["detail"] == "rxe0/1 active (Ethernet)"
    assert check(said, "rdma probe") == {
        "name": "rdma probe",
        "status": "ok",
        "detail": "rxe0/1: RDMA WRITE and READ of 4096 bytes came back right",
        "cure": "",
    }


@pytest.mark.slow
def test_a_port_that_is_down() -> None:
    found = doctor("ip link set vec0 down")["rdma"]
    (port,) = found["devices"][0]["ports"]
    assert (port["state"], port["probe"]) == ("DOWN", None)
    assert found["problems"] == [
        {
            "what": "rxe0/1 is DOWN",
            "cure": "plug its cable in, or bring its network device up: ip link set NAME up",
        }
    ]


@pytest.mark.slow
def test_a_device_without_its_file() -> None:
    """As in a container that was not given it; sysfs still shows what is there."""
    said = doctor("rm -r /dev/infiniband")
    (device,) = said["rdma"]["devices"]
    assert (device["name"], device["error"]) == ("rxe0", "libibverbs does not list it")
    assert device["ports"][0]["state"] == "ACTIVE"
    (problem,) = said["rdma"]["problems"]
    assert problem["what"] == "rxe0: libibverbs does not list it"
    assert "--device /dev/infiniband" in problem["cure"]
    assert check(said, "rdma devices")["status"] == "warn"


@pytest.mark.slow
def test_without_pyverbs_sysfs_tells(tmp_path: Path) -> None:
    hides = f"mount -t tmpfs t {Path('/usr/lib/python3/dist-packages/pyverbs')}"
    said = doctor(hides)
    found = said["rdma"]
    assert found["source"] == "sysfs"
    assert found["missing"].startswith("/usr/bin/python3 has no pyverbs (")
    (port,) = found["devices"][0]["ports"]
    assert (port["state"], port["active_mtu"], port["probe"]) == ("ACTIVE", None, None)
    mapped = f"::ffff:{machine.ADDRESSES[0]}"
    assert {"index": machine.GID_INDEX, "gid": mapped, "type": "RoCE v2"} in port["gids"]
    assert check(said, "rdma probe")["cure"].endswith(" python3-pyverbs")


@pytest.mark.slow
def test_what_the_probe_does_not_do() -> None:
    """Soft-iWARP: its queue pairs are connected by librdmacm alone."""
    said = doctor(driver="siw")
    (device,) = said["rdma"]["devices"]
    assert device["name"] == "siw0"
    assert device["ports"][0]["probe"]["error"].startswith("not probed: iWARP")
    # Which is nothing wrong, nor are its missing GIDs.
    assert said["rdma"]["problems"] == []
    assert (check(said, "rdma probe")["status"], check(said, "rdma probe")["cure"]) == ("ok", "")
