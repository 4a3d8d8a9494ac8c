"""What the tests of faults allow an outcome to take, on machines that others use, too."""

from __future__ import annotations

#: Seconds that an outcome may take beyond the limit that it waits for: less than a handshake's 5.
LATE = 4.5
SEEN = 1.0  # seconds within which a peer's death ends the steps that need it, where cores are free


def seen(slowest: float) -> float:
    """SEEN on this machine, where the slowest step before the death took `slowest` seconds: not
    counting the first one, which connects.

    Beside a build both take longer: what has come of the step in flight is still handled.
    """
    return SEEN + 2 * slowest
