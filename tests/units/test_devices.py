"""What RDMA devices counted, read from a folder as the kernel makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.devices import device_bytes


def a_device(classes: Path, name: str, interface: str, mtu: int, packets: int | None) -> None:
    port, network = classes / "infiniband" / name / "ports/1", classes / "net" / interface
    for folder in (port / "hw_counters", port / "gid_attrs/ndevs", port / "gids"):
        folder.mkdir(parents=True)
    (network / "statistics").mkdir(parents=True)
    number = f"{len(list((classes / 'net').iterdir())):02x}"
    (network / "address").write_text(f"32:58:0d:f4:e3:{number}\n")
    (port / "gids/0").write_text(f"3258:0df4:e3{number}:0000:0000:0000:0000:0000\n")
    (network / "mtu").write_text(f"{mtu}\n")
    (network / "statistics/rx_bytes").write_text("777\n")
    if packets is not None:
        (port / "gid_attrs/ndevs/0").write_text(f"{interface}\n")
        (port / "hw_counters/rcvd_pkts").write_text(f"{packets}\n")


@pytest.mark.parametrize(
    ("mtu", "payload"), [(1500, 1024), (9000, 4096), (4175, 2048), (4176, 4096)]
)
def test_soft_roce_counts_packets_of_its_mtu(tmp_path: Path, mtu: int, payload: int) -> None:
    a_device(tmp_path, "rxe0", "veth0", mtu, 100)
    assert device_bytes(tmp_path) == 100 * payload


def test_soft_iwarp_has_the_bytes_of_its_network(tmp_path: Path) -> None:
    a_device(tmp_path, "siw0", "vec0", 1500, None)
    assert device_bytes(tmp_path) == 777
    (tmp_path / "net/lo/statistics").mkdir(parents=True)
    (tmp_path / "net/lo/address").write_text("00:00:00:00:00:00\n")
    (tmp_path / "net/lo/statistics/rx_bytes").write_text("1000\n")
    assert device_bytes(tmp_path) == 777
    assert device_bytes(tmp_path, within_host=True) == 1777


def test_devices_add_up_and_none_is_nothing(tmp_path: Path) -> None:
    assert device_bytes(tmp_path) == 0
    a_device(tmp_path, "rxe0", "veth0", 1500, 3)
    a_device(tmp_path, "siw0", "vec0", 1500, None)
    assert device_bytes(tmp_path) == 3 * 1024 + 777


def test_a_device_without_a_network_is_named(tmp_path: Path) -> None:
    a_device(tmp_path, "siw0", "vec0", 1500, None)
    (tmp_path / "net/vec0/address").write_text("00:00:00:00:00:00\n")
    with pytest.raises(FileNotFoundError, match="siw0/ports/1 has the address 32:58:0d:f4:e3:01"):
        device_bytes(tmp_path)
