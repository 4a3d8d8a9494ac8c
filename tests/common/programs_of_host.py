"""The programs that one of two virtual hosts runs, one process each: common/two_hosts.py.

Its argument is JSON: this host's `number`, its `programs` and the `folder` that both hosts see,
which gets what they said and what this host's RDMA devices received meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common.devices import device_bytes
from common.processes import child_env

_TAIL = 3000
_POLL_S = 0.2
_HOSTS = (0, 1)


class _Programs:
    """Those of this host. When one ends badly, so does this host, and says why: the others, of
    both hosts, would wait for it for ever."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, program: dict[str, Any]) -> None:
        words = [] if program["argument"] is None else [json.dumps(program["argument"])]
        with self._out(name).open("wb") as out, self._log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, program["script"], *words],
                env=child_env(program["env"]),
                stdin=subprocess.PIPE if program["serves"] else subprocess.DEVNULL,
                stdout=out,
                stderr=log,
            )

    def said(self, name: str) -> list[str]:
        """The whole lines of its standard output so far."""
        return [line for line in self._out(name).read_text().splitlines(True) if line[-1] == "\n"]

    def ask(self, name: str, word: str) -> str:
        """What a server answers."""
        before = len(self.said(name))
        pipe = self._running[name].stdin
        assert pipe is not None
        pipe.write(f"{word}\n".encode())
        pipe.flush()
        while len(self.said(name)) == before:
            self.look()
            time.sleep(_POLL_S)
        return self.said(name)[-1]

    def ended(self, name: str) -> bool:
        return self._running[name].poll() == 0

    def look(self) -> None:
        for name, process in self._running.items():
            if process.poll():
                log = self._log(name).read_text(errors="replace")
                print(f"{name} ended with {process.poll()}\n{log[-_TAIL:]}", file=sys.stderr)
                sys.stderr.flush()
                os._exit(1)

    def end(self, name: str) -> None:
        """Ends a server."""
        process = self._running[name]
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    def _out(self, name: str) -> Path:
        return self._folder / f"{name}.out"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.err"


class _Meetings:
    """Files in the folder of both hosts: where one waits for the other."""

    def __init__(self, folder: Path, number: int, programs: _Programs) -> None:
        self._folder = folder
        self._number = number
        self._programs = programs

    def tell(self, what: str, text: str = "") -> None:
        # In one step: the other host may look at any time.
        partial = self._folder / f".{what}{self._number}"
        partial.write_text(text)
        partial.replace(self._folder / f"{what}{self._number}")

    def wait(self, what: str) -> None:
        while not all((self._folder / f"{what}{number}").exists() for number in _HOSTS):
            self._programs.look()
            time.sleep(_POLL_S)


def main() -> None:
    settings = json.loads(sys.argv[1])
    before = device_bytes()
    with tempfile.TemporaryDirectory() as name:
        programs = _Programs(Path(name))
        meetings = _Meetings(Path(settings["folder"]), settings["number"], programs)
        servers, others = (
            {name: each for name, each in settings["programs"].items() if each["serves"] is serves}
            for serves in (True, False)
        )
        for name, program in servers.items():
            programs.start(name, program)
        while not all(programs.said(name) for name in servers):
            programs.look()
            time.sleep(_POLL_S)
        meetings.tell("ready")
        meetings.wait("ready")
        for name, program in others.items():
            programs.start(name, program)
        while not all(map(programs.ended, others)):
            programs.look()
            time.sleep(_POLL_S)
        meetings.tell("ended")
        meetings.wait("ended")
        said = {
            "said": {name: programs.said(name) for name in others},
            "counters": {name: json.loads(programs.ask(name, "counters")) for name in servers},
            "device_bytes": device_bytes() - before,
        }
        meetings.tell("result", json.dumps(said))
        # Not while the other host counts: with this one's servers its connections would end.
        meetings.wait("result")
        for name in servers:
            programs.end(name)


if __name__ == "__main__":
    main()
