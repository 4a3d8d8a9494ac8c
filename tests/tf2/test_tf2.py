"""TensorFlow 2 over each protocol: strategies, TF_CONFIG, Keras, helpers, eager remote, exit.

Every case is a program of `programs/` in a process of its own, which must end with status 0.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.fixtures import ClusterFactory
from common.processes import (
    Cluster,
    Outcome,
    Program,
    own_address,
    run_program,
    tf_config,
    wait_together,
)
from common.protocols import AR
from common.reduced_values import check_reduced
from common.repeated import few

pytestmark = pytest.mark.timeout(180)

PROGRAMS = Path(__file__).with_name("programs")
#: Seconds that a program may sleep from its last word to its end. It must catch a wait for a
#: time-out; the handshake's is 5 s.
SLEPT = 3.0
VIA = ["rpc_layer", "TF_CONFIG"]
NOISE = re.compile(
    r"terminate called|pure virtual|core dumped|Segmentation|Aborted \(|Check failed|: F |"
    r"(?i:assertion failed)|Fatal Python|double free|corrupt|Exception ignored|Traceback"
)


def assert_clean(outcome: Outcome, status: int = 0) -> None:
    """Left with this status, promptly after its last word, and without a noise."""
    noise = [line for line in outcome.stderr.splitlines() if NOISE.search(line)]
    assert outcome.status == status, f"status {outcome.status}\n{outcome.stderr[-4000:]}"
    assert not noise, "\n".join(noise)
    assert outcome.slept is not None, "it said no last word to count from"
    assert outcome.slept < SLEPT, f"slept for {outcome.slept:.1f} s after its last output"


@pytest.mark.parametrize("via", few(VIA, "TF_CONFIG"))
def test_parameter_server_strategy(new_cluster: ClusterFactory, protocol: str, via: str) -> None:
    """A custom loop with exact sums, and Keras fit; the variables live on the ps."""
    cluster = new_cluster(ps=1, worker=2)
    spec = {**cluster.spec, "chief": [own_address()]}
    env = tf_config(spec, protocol, "chief", 0) if via == "TF_CONFIG" else None
    settings = {"cluster": spec, "protocol": protocol, "via": via}
    outcome = run_program(PROGRAMS / "ps_strategy.py", settings, 120, env)
    result = outcome.result()
    assert result["rpc_layer"] == protocol
    loop, fit = result["loop"], result["fit"]
    assert loop["results"] == [2 * number for number in range(1, 41)]
    assert (loop["total"], loop["big"]) == (820, [820.0])
    assert all("/job:ps/" in device for device in loop["devices"] + fit["devices"])
    assert fit["loss"][-1] < fit["loss"][0] / 2
    assert_clean(outcome)


@pytest.fixture(scope="session")
def trained_locally() -> Any:
    return run_program(PROGRAMS / "multi_worker.py", {"via": "local"}).result()["fit"]


@pytest.mark.parametrize("via", few(VIA, "rpc_layer"))
def test_multi_worker_mirrored(protocol: str, via: str, trained_locally: Any) -> None:
    """Reduced values are exact on both workers; Keras fit ends where one process alone ends.

    With freed memory overwritten (`artf test`) this is also what watches RecvBuf's closures, which
    end in one thread while another may still run them.
    """
    spec = {"worker": [own_address(), own_address()]}
    workers = [
        Program(
            PROGRAMS / "multi_worker.py",
            {"cluster": spec, "protocol": protocol, "via": via, "index": index},
            tf_config(spec, protocol, "worker", index) if via == "TF_CONFIG" else None,
        )
        for index in range(2)
    ]
    outcomes = wait_together(workers, 120)
    for result in [outcome.result() for outcome in outcomes]:
        assert (result["rpc_layer"], result["replicas"]) == (protocol, 2)
        check_reduced(result["reduced"])
        np.testing.assert_allclose(result["fit"]["weights"], trained_locally["weights"], 1e-4)
        np.testing.assert_allclose(result["fit"]["loss"], trained_locally["loss"], 1e-4)
    for outcome in outcomes:
        assert_clean(outcome)


MAKERS = ["create_local_cluster", "create_in_process_cluster", "create_multi_process_cluster"]


@pytest.mark.parametrize("maker", few(MAKERS, "create_local_cluster"))
def test_local_cluster(protocol: str, maker: str) -> None:
    """TensorFlow's own makers of test clusters take the protocol."""
    if maker == "create_multi_process_cluster" and not importlib.util.find_spec("dill"):
        pytest.skip("TensorFlow's multi_process_runner needs the package dill")
    settings = {"maker": maker, "protocol": protocol}
    # Four imports of TensorFlow, which three suites at a time make slow.
    outcome = run_program(PROGRAMS / "local_cluster.py", settings, 150)
    assert outcome.result() == [1.0, 2049.0]
    assert_clean(outcome)


@pytest.mark.parametrize("send_tensor_rpc", ["0", "1"])
def test_eager_remote(cluster: Cluster, protocol: str, send_tensor_rpc: str) -> None:
    """Copies both ways and between servers, functions, variables, strings, variants, errors."""
    outcome = run_program(
        PROGRAMS / "eager_remote.py",
        {"cluster": cluster.spec, "protocol": protocol},
        env={"TF_EAGER_REMOTE_USE_SEND_TENSOR_RPC": send_tensor_rpc},
    )
    result = outcome.result()
    assert len(result) > 30
    assert not {name: why for name, why in result.items() if why}
    assert_clean(outcome)


@pytest.mark.parametrize(
    ("asked", "env", "error", "text"),
    [
        ("grpc+nope", {}, "NotFoundError", "No server factory registered for the given ServerDef"),
        (AR, {"AR_GRPC_FABRICS": "nope"}, "InvalidArgumentError", "no fabric is called 'nope'"),
    ],
    ids=["protocol", "setting"],
)
def test_eager_context_whose_server_cannot_start(
    asked: str, env: dict[str, str], error: str, text: str
) -> None:
    """An error, before anything is made; without it this TensorFlow's process dies."""
    settings = {"cluster": {"worker": [own_address()]}, "protocol": asked}
    said = run_program(PROGRAMS / "eager_refused.py", settings, env=env).result()
    assert said["error"] == error
    assert text in said["text"]


LEAVERS = ["own_server", "closed_session", "deleted_server", "unused_server", "client_only"]
LEAVERS += ["eager_context"]


@pytest.mark.parametrize(
    "how", few([*LEAVERS, "raises"], "own_server", "client_only", "eager_context")
)
def test_clean_exit(cluster: Cluster, protocol: str, how: str) -> None:
    """A process that used a server leaves promptly, quietly, and with the right status."""
    settings = {
        "cluster": cluster.spec,
        "protocol": protocol,
        "how": how,
        "own": own_address(),
    }
    outcome = run_program(PROGRAMS / "leaves.py", settings)
    if how == "raises":
        assert "ValueError: on purpose" in outcome.stderr
        outcome.stderr = re.sub(r"Traceback[^\0]*ValueError: on purpose.*\n", "", outcome.stderr)
        assert_clean(outcome, status=1)
    else:
        assert_clean(outcome)


def test_server_leaves_cluster(new_cluster: ClusterFactory) -> None:
    """A serving process with live connections returns from main(); its peers live on."""
    cluster = new_cluster(ps=1, worker=2)
    settings = {"cluster": cluster.spec, "protocol": cluster.protocol, "how": "client_only"}
    assert_clean(run_program(PROGRAMS / "leaves.py", settings))
    for task in ("worker:0", "ps:0"):
        assert cluster[task].leave(seconds=10) == 0
        noise = [line for line in cluster[task].tail().splitlines() if NOISE.search(line)]
        assert not noise, "\n".join(noise)
    assert cluster.dead() == ["ps:0", "worker:0"]
