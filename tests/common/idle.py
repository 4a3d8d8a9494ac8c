"""What the servers of a cluster take of a core while nothing is asked of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil

from common.processes import Cluster


def percent_of_a_core(
    cluster: Cluster, seconds: float, limit: float, among: Sequence[str] = ()
) -> dict[str, float]:
    """By task, `among` these, else all, over so long a time: the least of up to three such times,
    until all take less than `limit`.

    Whoever burns a core does so in each of them. Others' load adds to one: a virtual host counts
    for a process also the time in which its machine does something else.
    """
    tasks = {task: psutil.Process(cluster[task].pid) for task in among or cluster.tasks}

    def used() -> dict[str, float]:
        times = {task: process.cpu_times() for task, process in tasks.items()}
        return {task: each.user + each.system for task, each in times.items()}

    least = dict.fromkeys(tasks, 100.0)
    for _ in range(3):
        before, began = used(), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        for task, now in used().items():
            least[task] = min(least[task], 100 * (now - before[task]) / took)
        print(least)
        if max(least.values()) < limit:
            break
    return least
