"""The suites of `artf test`: what each needs, where it runs, and its part of `--full`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from artf_cli.paths import REPO

#: What a suite can need built first.
NOTHING, WHEEL, GRPC_SUITES = "nothing", "wheel", "grpc-suites"


@dataclass(frozen=True)
class Suite:
    """A folder of tests, `tests/NAME` with `_` for `-`."""

    name: str
    needs: str = WHEEL
    #: It runs on the installed wheel, the others beside artf, whose modules they test.
    installed: bool = False
    #: Freed memory is overwritten, so that what still looks at it fails at once (glibc's manual).
    perturbed: bool = False
    #: Neighbours in the table with the same word here run side by side.
    together: str = ""
    #: The parts of `--full` that have its tests; those without a marker `part` are in the first.
    parts: tuple[str, ...] = ("base",)

    @property
    def folder(self) -> str:
        return f"tests/{self.name.replace('-', '_')}"


# In this order. The cheap ones come first, since they fail soonest. Of those that run side by side
# the short ones come last, so that no long one runs alone at the end.
SUITES = (
    # The longest of the cheap ones.
    Suite("units", NOTHING, together="cheap"),
    Suite("lint", NOTHING, together="cheap"),
    Suite("patches", NOTHING, together="cheap"),
    Suite("conformance", NOTHING, together="cheap"),
    # Each rank polls: beside others it would only wait.
    Suite("mpi", NOTHING),
    # In virtual hosts, whose kernel it builds first: others need it, too. The longest one.
    Suite("verbs", NOTHING, together="built", parts=("verbs",)),
    Suite(
        "containers",
        together="built",
        # Each but the first builds wheels from empty caches.
        parts=("containers", "clean-root", "clean-user", "systems", "two-bazels"),
    ),
    Suite("wheel", together="built"),
    # By the path of the tensors, and the long hunts (tests/recv/conftest.py): all are too long for
    # one part.
    Suite(
        "recv",
        installed=True,
        perturbed=True,
        together="built",
        parts=("recv", "recv-hunts", "recv-mpi", "recv-verbs", "recv-two-hosts"),
    ),
    # It waits for time limits most of the time. The virtual hosts' kernel is there by then.
    Suite("faults", installed=True, perturbed=True, together="built", parts=("servers",)),
    Suite("mpi-servers", installed=True, perturbed=True, together="built", parts=("servers",)),
    # In virtual hosts, too.
    Suite("matrix", installed=True, perturbed=True, together="built", parts=("matrix",)),
    Suite("tf2", installed=True, perturbed=True, together="built", parts=("servers",)),
    Suite("grpc-suites", GRPC_SUITES, perturbed=True, together="built"),
    Suite("clusters", together="built"),
    # It builds its own wheel.
    Suite("sanitized", NOTHING, parts=("sanitized",)),
)
NAMES = tuple(suite.name for suite in SUITES)
#: The parts of `--full`, each of which ends within PART_MINUTES.
PARTS = tuple(dict.fromkeys(part for suite in SUITES for part in suite.parts))
PART_MINUTES = 90


def chosen(names: Sequence[str], part: str = "") -> list[Suite]:
    """The suites of these names (none: all) that have tests in `part` (empty: any), in order."""
    return [
        suite
        for suite in SUITES
        if (not names or suite.name in names) and (not part or part in suite.parts)
    ]


def batches(suites: Sequence[Suite]) -> list[list[Suite]]:
    """Those that run at the same time, in one list each."""
    found: list[list[Suite]] = []
    for suite in suites:
        if found and suite.together and found[-1][0].together == suite.together:
            found[-1].append(suite)
        else:
            found.append([suite])
    return found


def without_tests() -> list[str]:
    """Folders of tests/ that hold tests and are no suite."""
    known = {REPO / suite.folder for suite in SUITES}
    holding = {path.parent for path in (REPO / "tests").glob("*/test_*.py")}
    return sorted(path.name for path in holding - known)
