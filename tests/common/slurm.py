"""A Slurm cluster of Debian's packages: a login node with the controller, and compute nodes."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from artf_cli import system
from artf_cli.errors import ArtfError
from artf_cli.supervise import Group
from common.ar import eventually
from common.lacking import cannot_be_had
from common.nodes import SCRATCH, Node, Nodes

#: A program of each package, and the package.
NEEDS = {
    "munged": "munge",
    "sbatch": "slurm-client",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "ip": "iproute2",
}
LOGIN = "login"
#: TensorFlow sorts these the other way round than Slurm does.
COMPUTE = ("n9", "n10")
#: An ordinary user: every machine has it, and it owns nothing.
USER = "nobody"
_READY_S = 60.0
#: Each node of a real cluster has more; what a job asks for is granted, not measured.
_CPUS, _MEMORY_MB = 4, 4096
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


def why_not() -> str:
    """Installs what is missing; empty, or why no cluster can be had here."""
    if os.geteuid() != 0:
        return "only root can make the nodes of a cluster"
    # What nodes are made of (tests/common/nodes.py); a container's root may not.
    kinds = ("--pid", "--fork", "--mount-proc", "--mount", "--net", "--uts", "--ipc")
    tried = subprocess.run(["unshare", *kinds, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no namespaces can be made here: {tried.stderr.strip()}"
    packages = system.missing(NEEDS)
    try:
        if packages:
            system.apt_install("a Slurm to test with", packages)
    except ArtfError as error:
        return str(error)
    return ""


def need() -> None:
    """Where no cluster can be made the test skips with the reason, and in CI it fails."""
    why = why_not()
    if why:
        cannot_be_had(why)


def _configuration(nodes: Sequence[Node]) -> str:
    login, *compute = nodes
    lines = [
        "ClusterName=test",
        f"SlurmctldHost={login.name}({login.address})",
        "SlurmUser=root",
        "AuthType=auth/munge",
        # Each node has a /run of its own.
        "StateSaveLocation=/run/slurmctld",
        "SlurmdSpoolDir=/run/slurmd",
        "SlurmctldPidFile=/run/slurmctld.pid",
        "SlurmdPidFile=/run/slurmd.pid",
        # No control groups: a node here is not a machine that has any of its own.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "SlurmdParameters=config_overrides",
        "MpiDefault=none",
        "ReturnToService=2",
        "SchedulerParameters=batch_sched_delay=0",
    ]
    lines += [
        f"NodeName={node.name} NodeAddr={node.address} CPUs={_CPUS} RealMemory={_MEMORY_MB}"
        for node in compute
    ]
    names = ",".join(node.name for node in compute)
    lines += [f"PartitionName=all Nodes={names} Default=YES MaxTime=60 State=UP"]
    return "\n".join(lines) + "\n"


class Slurm:
    """Services that run until the group ends; commands run on the login node as USER."""

    def __init__(self, group: Group, folder: Path, compute: Sequence[str]) -> None:
        self.nodes = Nodes(group, folder, [LOGIN, *compute])
        etc = folder / "etc-slurm"
        etc.mkdir()
        (etc / "slurm.conf").write_text(_configuration(self.nodes.all))
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        for node in self.nodes.all:
            node.bind(etc, Path("/etc/slurm"))
            self._start_munge(node, key)
        login = self.nodes[LOGIN]
        login.start("slurmctld", "slurmctld", "-D")
        for node in self.nodes.all[1:]:
            node.start("slurmd", "slurmd", "-D")
        self._group = group
        self._wait_idle(len(compute))

    def _start_munge(self, node: Node, key: Path) -> None:
        run = Path("/run/munge")
        node.run("mkdir", "-m", "755", run)
        files = {"key-file": key, "log-file": run / "log", "pid-file": run / "pid"}
        files["seed-file"] = run / "seed"
        words = [f"--{name}={path}" for name, path in files.items()]
        # --force: the key lies below a folder of pytest's.
        node.start("munged", "munged", "--foreground", "--force", *words)
        ready = lambda: node.run("munge", "--no-input", check=False).returncode == 0  # noqa: E731
        assert eventually(ready, _READY_S, every=0.1), f"no munge on {node.name}"

    def _wait_idle(self, count: int) -> None:
        def idle() -> bool:
            self._group.check()
            said = self.command("sinfo", "--noheader", "--Node", "--format=%T", check=False)
            return said.stdout.split() == ["idle"] * count

        assert eventually(idle, _READY_S, every=0.2), self.command("sinfo", "-Nl").stdout

    def command(
        self,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path = SCRATCH,
        seconds: float = 60,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command as a user of the cluster does."""
        own = {"HOME": str(SCRATCH), "SCRATCH": str(SCRATCH), **(env or {})}
        login = self.nodes[LOGIN]
        return login.run(*words, user=USER, env=own, cwd=cwd, seconds=seconds, check=check)

    def state(self, job: str) -> str:
        said = self.command("scontrol", "--oneliner", "show", "job", job).stdout
        fields = dict(word.partition("=")[::2] for word in said.split() if "=" in word)
        return fields["JobState"]

    def wait(self, job: str, seconds: float) -> str:
        """The state that a job ends in; after `seconds` the one it is in."""
        limit = time.monotonic() + seconds
        while (state := self.state(job)) not in _ENDED and time.monotonic() < limit:
            self._group.check()
            time.sleep(0.5)
        return state
