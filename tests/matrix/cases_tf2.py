"""tf2: what TensorFlow 2's users write, as programs in processes of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from common.processes import Cluster, own_address, wait_together
from matrix.cases import case
from matrix.meter import Counters, Payload

TESTS = Path(__file__).parents[1]
SECONDS = 90.0

tf2 = partial(case, "tf2")


def _settings(cluster: Cluster) -> dict[str, Any]:
    return {"cluster": cluster.spec, "protocol": cluster.protocol}


#: ps_strategy.py reads and updates a variable of 1025 x 257 float64 in each of 40 steps.
STRATEGY = Payload(large=2 * 40 * 1025 * 257 * 8)


@tf2(
    "parameter server strategy",
    "a coordinator's functions on the workers read and update variables of the ps; exact sums",
    STRATEGY,
)
def parameter_server_strategy(cluster: Cluster) -> None:
    settings = _settings(cluster)
    settings["cluster"] = {**cluster.spec, "chief": [own_address()]}
    settings.update(via="rpc_layer", fit=False)
    program = TESTS / "tf2/programs/ps_strategy.py"
    result = cluster.client(program, settings).wait(SECONDS).result()
    loop = result["loop"]
    assert result["rpc_layer"] == cluster.protocol
    assert loop["results"] == [2 * number for number in range(1, 41)]
    assert (loop["total"], loop["big"]) == (820, [820.0])
    assert all("/job:ps/" in device for device in loop["devices"])


#: In a ring of two each worker receives as many bytes as the tensor has, half of it at a time.
REDUCED, REDUCE_ROUNDS = 4 * 2**20, 3


@tf2(
    "all-reduce",
    "MultiWorkerMirroredStrategy sums 16 MiB over a ring of two workers, three times",
    Payload(large=2 * REDUCE_ROUNDS * 4 * REDUCED),
)
def all_reduce(cluster: Cluster) -> Mapping[str, Counters]:
    settings = _settings(cluster)
    settings["cluster"] = {"worker": [own_address() for _ in range(2)]}
    settings.update(size=REDUCED, rounds=REDUCE_ROUNDS)
    program = TESTS / "recv/programs/all_reduce.py"
    workers = cluster.programs(program, [{**settings, "index": index} for index in range(2)])
    results = [outcome.result() for outcome in wait_together(workers, SECONDS)]
    for result in results:
        assert result["wrong"] == [0] * REDUCE_ROUNDS
    return dict(zip(settings["cluster"]["worker"], results))


#: The sizes that eager_remote.py brings from one worker to the other: the last one is large.
EAGER = Payload(small=2**20 + 65537, large=16 * 2**20)


@tf2(
    "eager remote",
    "copies between client, workers and ps, functions over three devices, variables, errors",
    EAGER,
)
def eager_remote(cluster: Cluster) -> None:
    program = TESTS / "tf2/programs/eager_remote.py"
    result = cluster.client(program, _settings(cluster)).wait(SECONDS).result()
    assert len(result) > 30
    assert not {name: why for name, why in result.items() if why}
