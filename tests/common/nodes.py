"""Hosts of a cluster on one machine: namespaces of their own, a network between them, a scratch.

Each has its own host name, network, processes, mounts and `/run`; they share a scratch folder, as
the nodes of a cluster do, and nothing of the machine is changed. When one is closed the kernel
ends every process that it has, also those that have left their session.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from artf_cli.supervise import Child, Group

#: Where each node has the scratch; a folder that every machine has, and a cluster may use so.
SCRATCH = Path("/mnt")
#: What can have made programs unusable outside of the machine's own network.
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy")
_NSENTER, _UNSHARE = "/usr/bin/nsenter", "/usr/bin/unshare"
_START_S = 20.0


class Node:
    """One host: what it starts lives in its namespaces."""

    def __init__(self, group: Group, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self._group = group
        spaces = ["--pid", "--fork", "--kill-child", "--mount-proc", "--mount"]
        spaces += ["--net", "--uts", "--ipc"]
        child = group.start(f"init-{name}", [_UNSHARE, *spaces, "/usr/bin/sleep", "infinity"])
        self._init = _only_child(child)

    @property
    def init(self) -> int:
        """The process whose namespaces these are."""
        return self._init

    def words(self, *words: str | Path, user: str = "") -> list[str]:
        """The command that runs a command here, as root or as `user`."""
        enter = [_NSENTER, f"--target={self._init}", "--pid", "--mount", "--net", "--uts", "--ipc"]
        become = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"]
        return [*enter, "--", *(become if user else []), *map(str, words)]

    def run(
        self,
        *words: str | Path,
        user: str = "",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        seconds: float = 60,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; AssertionError with what it said if `check` and it fails."""
        # After entering: it is a folder of the node's.
        there = ["env", f"--chdir={cwd}"] if cwd else []
        done = subprocess.run(
            self.words(*there, *words, user=user),
            env={**_environment(), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def start(self, name: str, *words: str | Path) -> Child:
        """Starts a service, which stays in the foreground until the node is closed."""
        return self._group.start(f"{name}-{self.name}", self.words(*words), env=_environment())

    def bind(self, source: Path, target: Path) -> None:
        self.run("mount", "--bind", source, target)

    def expose(self, folder: Path) -> None:
        """Lets users here reach a folder that may lie below one which only root can enter.

        Of such a one, as `/root` is, nothing but this folder is left on this node.
        """
        closed = [each for each in folder.parents if not each.stat().st_mode & 0o001]
        if closed:
            kept = Path("/run/exposed")
            self.run("mkdir", kept)
            self.bind(folder, kept)
            self.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", closed[-1])
            self.run("mkdir", "-p", folder)
            self.bind(kept, folder)


class Nodes:
    """Some nodes, the first of which has the switch that connects them all."""

    def __init__(self, group: Group, folder: Path, names: Sequence[str]) -> None:
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        # The cluster's users write here.
        self.scratch.chmod(0o1777)
        hosts = folder / "hosts"
        self.all = [
            Node(group, name, f"10.78.0.{number}") for number, name in enumerate(names, start=1)
        ]
        lines = ["127.0.0.1 localhost", *(f"{each.address} {each.name}" for each in self.all)]
        hosts.write_text("\n".join(lines) + "\n")
        for node in self.all:
            node.run("hostname", node.name)
            node.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
            node.bind(hosts, Path("/etc/hosts"))
            node.bind(self.scratch, SCRATCH)
        self._connect()

    def _connect(self) -> None:
        first, *others = self.all
        first.run("ip", "link", "add", "eth0", "type", "bridge")
        for node in others:
            # `netns` takes a process's number as the command sees it, so this one runs outside.
            link = ["ip", "link", "add", f"to-{node.name}", "type", "veth", "peer", "name", "eth0"]
            inside = [_NSENTER, f"--target={first.init}", "--net", "--"]
            subprocess.run([*inside, *link, "netns", str(node.init)], check=True)
            first.run("ip", "link", "set", f"to-{node.name}", "master", "eth0", "up")
        for node in self.all:
            node.run("ip", "link", "set", "lo", "up")
            node.run("ip", "address", "add", f"{node.address}/24", "dev", "eth0")
            node.run("ip", "link", "set", "eth0", "up")

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.all if node.name == name)


def _environment() -> dict[str, str]:
    names = {name for each in _PROXIES for name in (each, each.upper())} | {"TF_CONFIG"}
    return {key: value for key, value in os.environ.items() if key not in names}


def _only_child(parent: Child) -> int:
    """The process that another one has started, which does nothing else."""
    limit = time.monotonic() + _START_S
    while True:
        for task in Path(f"/proc/{parent.pid}/task").glob("*/children"):
            for pid in task.read_text().split():
                # Before it has replaced itself its mounts are not all there yet.
                if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep":
                    return int(pid)
        if parent.status() is not None or time.monotonic() > limit:
            raise parent.failure("made no namespaces")
        time.sleep(0.01)
