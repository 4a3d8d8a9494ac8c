"""How long a process did nothing: its waits for time-outs, whatever else the machine does."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

#: Of a stretch in which so little of it was a thread's, the process slept.
_LEAST_SHARE = 0.2


def _busy(pid: int) -> dict[str, float]:
    """Seconds that each thread has run or waited for a processor."""
    busy = {}
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                ran, waited, _ = (task / "schedstat").read_text().split()
                busy[task.name] = (int(ran) + int(waited)) / 1e9
    return busy


class Asleep:
    """Adds up, from look to look, the time in which no thread ran or waited for a processor."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.restart()

    def restart(self) -> None:
        """What was before this does not count."""
        self.seconds = 0.0
        self._at, self._busy = time.monotonic(), _busy(self._pid)

    def look(self) -> None:
        at, busy = time.monotonic(), _busy(self._pid)
        worked = sum(now - self._busy.get(thread, 0.0) for thread, now in busy.items())
        if worked < _LEAST_SHARE * (at - self._at):
            self.seconds += at - self._at
        self._at, self._busy = at, busy
