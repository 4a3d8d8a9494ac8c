"""What the tests of faults allow an outcome to take, on machines that others use, too."""

from __future__ import annotations

#: Seconds that an outcome may take beyond the limit that it waits for: less than a handshake's 5.
LATE = 4.5
SEEN = 1.0  # seconds within which a peer's death ends the steps that need it, where cores are free


def seen(slowest: float) -> float:
    """Twice SEEN and twice the slowest step before the death, which took `slowest` seconds; the
    first one, which connects, does not count.

    Other suites and builds take cores for a second at times, and what has come of the step in
    flight is still handled. That SEEN itself is kept is shown of several deaths (their median).
    """
    return 2 * (SEEN + slowest)
