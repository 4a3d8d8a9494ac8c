"""at rest: a path that carries nothing costs nothing."""

from __future__ import annotations

import time

from common.idle import percent_of_a_core
from common.interrupted import PS, WORKER, long_transfer, session_on
from common.processes import Cluster
from matrix.cases import case
from matrix.cases_steps import transfer

#: Of one core, for each server.
PERCENT = 1.0
#: Until the arena has given back what was idle for ten seconds, which a virtual host's device takes
#: long to deregister.
SETTLED_S = 25


@case(
    "at rest",
    "idle",
    f"after tensors both ways each server takes less than {PERCENT:g} % of a core",
    transfer(16) * 2,
    quick_on=(),
    limit=180,
)
def idle(cluster: Cluster) -> None:
    for way in ((PS, WORKER), (WORKER, PS)):
        with session_on(cluster) as session:
            assert session.run(long_transfer(*way, mib=16)) == 0.0
    time.sleep(SETTLED_S)
    taken = percent_of_a_core(cluster, 20, PERCENT)
    assert max(taken.values()) < PERCENT, taken
