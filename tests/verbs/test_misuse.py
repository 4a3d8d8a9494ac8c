"""What UBSan and Valgrind see of verbs on a device, in virtual hosts: nothing.

AddressSanitizer's shadow does not fit into these; of what it would find Valgrind finds what is
wrong with malloc's memory.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artf_cli import system
from artf_cli.errors import ArtfError
from common import cpp
from common.lacking import cannot_be_had
from rdma_host import machine
from rdma_host.machine import Guest, Link, Outcome

# The first one waits until all is compiled.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: Program → its arguments, its drivers, and how often it says what when all is well.
PROGRAMS = {
    "bounce_test": ((), ("rxe",), 1, "ok bounce\n"),
    "completions_test": ((), ("rxe",), 9, "ok completions: "),
    "conformance_test": (("verbs",), machine.DRIVERS, 1, "\n42 cases over verbs\n"),
    "failures_test": ((), machine.DRIVERS, 1, " calls failed\n"),
    "iwarp_test": ((), ("siw",), 4, "ok iwarp: "),
    "read_test": ((), machine.DRIVERS, 17, "ok verbs: "),
}
#: Of those, what runs under Valgrind, too, which takes up to three minutes each.
UNDER_VALGRIND = ("conformance_test", "bounce_test", "read_test")
CASES = [(name, driver) for name, (_, drivers, _, _) in PROGRAMS.items() for driver in drivers]
#: It tells of each error, and its program then ends with this status.
MEMCHECK = ("valgrind", "--quiet", "--error-exitcode=99", "--num-callers=30")
#: What must be told of wrong_program.cc, so that silence elsewhere says something.
UNDEFINED = "runtime error: shift exponent 40 is too large for 32-bit type 'int'"
FREED = "Invalid read of size 4"


def in_a_host(driver: str, *words: str | Path) -> Outcome:
    environment = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1:color=never"}
    guest = Guest([str(word) for word in words], environment)
    (done,) = machine.run([guest], Link(driver), timeout_s=900)
    print(done.stdout)
    return done


def run_well(driver: str, name: str, *words: str | Path) -> Outcome:
    """Runs one of PROGRAMS, which `words` begins with, in a host of its own."""
    arguments, _, times, says = PROGRAMS[name]
    done = in_a_host(driver, *words, *arguments)
    assert done.status == 0, done.stdout + done.stderr
    assert done.stdout.count(says) == times
    return done


@pytest.fixture(scope="module")
def with_ubsan() -> Path:
    names = [*PROGRAMS, "wrong_program"]
    return cpp.build("verbs", names, [cpp.UBSAN]) / cpp.UBSAN / "tests/verbs"


def test_ubsan_tells(with_ubsan: Path) -> None:
    done = in_a_host("rxe", with_ubsan / "wrong_program", "undefined")
    assert done.status == 1
    assert UNDEFINED in done.stderr
    assert "unseen" not in done.stdout


@pytest.mark.parametrize(("name", "driver"), CASES)
def test_ubsan(with_ubsan: Path, name: str, driver: str) -> None:
    """It ends the program at the first thing that it finds."""
    done = run_well(driver, name, with_ubsan / name)
    assert "runtime error" not in done.stderr


@pytest.fixture(scope="module")
def plain() -> Path:
    """Programs for Valgrind, which is installed where it can be; else the tests skip with the
    reason, but in CI."""
    if missing := system.missing({"valgrind": "valgrind"}):
        try:
            system.apt_install("what looks for misuse of memory in virtual hosts", missing)
        except ArtfError as error:
            cannot_be_had(str(error))
    names = [*UNDER_VALGRIND, "wrong_program"]
    return cpp.build("verbs", names, [cpp.PLAIN]) / cpp.PLAIN / "tests/verbs"


def test_valgrind_tells(plain: Path) -> None:
    done = in_a_host("rxe", *MEMCHECK, plain / "wrong_program", "freed")
    assert done.status == 99
    assert FREED in done.stderr


@pytest.mark.parametrize(("name", "driver"), [case for case in CASES if case[0] in UNDER_VALGRIND])
def test_valgrind(plain: Path, name: str, driver: str) -> None:
    """Nothing is suppressed: libibverbs and its drivers make no noise either."""
    done = run_well(driver, name, *MEMCHECK, plain / name)
    assert "==" not in done.stderr, done.stderr
