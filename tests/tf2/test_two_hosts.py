"""TensorFlow's strategies between two virtual hosts, over RDMA and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from common import two_hosts, virtual_host
from common.processes import run_program
from common.protocols import AR
from common.reduced_values import check_reduced
from common.two_hosts import ADDRESSES, OfHost

# Minutes long: all of TensorFlow on two slow processors.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

_PROGRAMS = Path(__file__).with_name("programs")
_MULTI_WORKER = str(_PROGRAMS / "multi_worker.py")
_STRATEGY = str(_PROGRAMS / "ps_strategy.py")
#: multi_worker.py's sums over a ring of two, in which each worker receives as many bytes as a
#: tensor has: of its largest size, of all its types.
_REDUCED_BYTES = (2**20 + 1) * (4 + 8 + 4 + 8 + 2)
#: ps_strategy.py's steps, each of which reads all of a variable and sends as much to be added.
_STEPS, _STEP_BYTES = 40, 1025 * 257 * 8
on_each_driver = pytest.mark.parametrize("driver", virtual_host.DRIVERS)


def check_bytes(where: str, counted: int, least: int, device: int, beside: int = 0) -> None:
    """Our counters have the payload, and so has the device, with all that they say but at most
    `beside`, which did not come through it."""
    print(f"{where}: payload {least}, counted {counted}, by the device {device} + {beside}")
    assert least <= counted <= device + beside, where
    assert least <= device, where


@on_each_driver
def test_workers_reduce_around_a_ring(tmp_path: Path, driver: str) -> None:
    """MultiWorkerMirroredStrategy, a worker on each host: values are exact, weights those of one
    process alone."""
    virtual_host.need(driver)
    alone = run_program(Path(_MULTI_WORKER), {"via": "local"}).result()["fit"]
    cluster = {"worker": [f"{address}:2222" for address in ADDRESSES]}
    settings = {"cluster": cluster, "protocol": AR, "via": "rpc_layer"}
    env = {"AR_GRPC_FABRICS": "verbs"}
    programs = [
        {f"worker:{index}": OfHost(_MULTI_WORKER, {**settings, "index": index}, env)}
        for index in range(2)
    ]
    hosts = two_hosts.run(tmp_path, driver, programs)
    for index, host in enumerate(hosts):
        said = json.loads(host.lines[f"worker:{index}"][-1])
        assert (said["rpc_layer"], said["replicas"]) == (AR, 2)
        check_reduced(said["reduced"])
        np.testing.assert_allclose(said["fit"]["weights"], alone["weights"], 1e-4)
        np.testing.assert_allclose(said["fit"]["loss"], alone["loss"], 1e-4)
        counters = said["counters"]
        other = f"worker:{1 - index}"
        assert two_hosts.paths_to(counters, cluster)[other] == "verbs"
        assert counters["offers_open"] == 0
        counted = two_hosts.payload(counters)
        check_bytes(f"worker:{index}", counted, _REDUCED_BYTES, host.device_bytes)


@on_each_driver
def test_a_coordinator_and_its_parameter_server(tmp_path: Path, driver: str) -> None:
    """ParameterServerStrategy: these two on one host, two workers on the other; sums are exact."""
    virtual_host.need(driver)
    first, second = ADDRESSES
    cluster = {
        "chief": [f"{first}:2222"],
        "ps": [f"{first}:2223"],
        "worker": [f"{second}:2224", f"{second}:2225"],
    }
    # TCP is not among them: a connection that RDMA does not carry fails.
    env = {"AR_GRPC_FABRICS": "shm,verbs"}
    settings = {"cluster": cluster, "protocol": AR, "via": "rpc_layer", "fit": False}
    workers = ("worker:0", "worker:1")
    programs = [
        {
            "ps:0": two_hosts.server(cluster, "ps:0", env),
            "chief:0": OfHost(_STRATEGY, settings, env),
        },
        {task: two_hosts.server(cluster, task, env) for task in workers},
    ]
    hosts = two_hosts.run(tmp_path, driver, programs)
    said = json.loads(hosts[0].lines["chief:0"][-1])
    loop = said["loop"]
    assert loop["results"] == [2 * number for number in range(1, _STEPS + 1)]
    assert (loop["total"], loop["big"]) == (820, [820.0])
    assert all("/job:ps/" in device for device in loop["devices"])

    paths = two_hosts.paths_to(said["counters"], cluster)
    assert {task: paths[task] for task in ("ps:0", *workers)} == {
        "ps:0": "shm",
        "worker:0": "verbs",
        "worker:1": "verbs",
    }
    counters = {task: one for host in hosts for task, one in host.counters.items()}
    paths = two_hosts.paths_to(counters["ps:0"], cluster)
    assert [paths[task] for task in workers] == ["verbs", "verbs"]
    for task in workers:
        assert two_hosts.paths_to(counters[task], cluster)["ps:0"] == "verbs"

    counted = sum(two_hosts.payload(counters[task]) for task in workers)
    check_bytes("the workers' host", counted, _STEPS * _STEP_BYTES, hosts[1].device_bytes)
    # The coordinator sends to the server, too, and not through the device.
    counted = two_hosts.payload(counters["ps:0"])
    beside = said["counters"]["stream_bytes_sent"]
    check_bytes("the server's host", counted, _STEPS * _STEP_BYTES, hosts[0].device_bytes, beside)
