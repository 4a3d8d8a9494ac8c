"""The suites of the installed wheel once more, with AddressSanitizer and UBSan in our library."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from artf_cli import build, sanitizers, venv
from artf_cli.paths import REPO
from common.elf import symbols

BROKEN = """
#include <limits>
extern "C" int use_after_free(int n) {
  int* freed = new int[n];
  int* volatile kept = freed;
  delete[] freed;
  return kept[1];
}
extern "C" int overflow(int n) { return std::numeric_limits<int>::max() + n; }
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("use_after_free", r"AddressSanitizer: heap-use-after-free (.*\n)+.*broken\.cc:7"),
        ("overflow", r"AddressSanitizer: ABRT (.*\n)+.* in overflow .*broken\.cc:9"),
    ],
)
def test_what_a_library_does_wrong_in_python_is_reported(
    tmp_path: Path, function: str, said: str
) -> None:
    source, library = tmp_path / "broken.cc", tmp_path / "broken.so"
    source.write_text(BROKEN)
    bazelrc = (REPO / "build" / "bazelrc").read_text()
    flags = re.findall(r"^build:sanitized.* --copt=(-f\S+)", bazelrc, re.MULTILINE)
    assert "-fsanitize=address,undefined" in flags
    subprocess.run(
        ["g++", *flags, "-O1", "-g1", "-shared", "-fPIC", source, "-o", library], check=True
    )
    reports = tmp_path / "reports"
    reports.mkdir()
    env = {**os.environ, **sanitizers.environment(reports)}

    def load(call: str) -> int:
        code = f"import ctypes\nlib = ctypes.CDLL({str(library)!r})\n{call}"
        return subprocess.run([sys.executable, "-c", code], env=env).returncode

    assert load("print(lib)") == 0
    assert sanitizers.reported(reports) == []
    assert load(f"lib.{function}(5)") != 0
    (found,) = sanitizers.reported(reports)
    assert re.search(said, found), found


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("suite", ["recv", "tf2", "faults"])
def test_nothing_is_reported_in_a_suite(suite: str, tmp_path: Path) -> None:
    wheel = build.sanitized()
    with zipfile.ZipFile(wheel) as archive:
        library = Path(archive.extract("tensorflow/libtensorflow_ar.so", tmp_path / "wheel"))
    # Else nothing would be reported, whatever is wrong.
    called = symbols(library, defined=False)
    assert {"__asan_init", "__asan_report_load8", "__asan_report_store8"} <= set(called)
    assert any(name.startswith("__ubsan_handle_") for name in called)
    python = venv.make(wheel, "runtime-tests")
    reports = tmp_path / "reports"
    reports.mkdir()
    env = {**os.environ, "PYTHONPATH": "", **sanitizers.environment(reports)}
    command = [str(python), "-m", "pytest", f"tests/{suite}", "-p", "no:cacheprovider"]
    # A virtual host has no room for AddressSanitizer's shadow.
    command += ["-m", "not virtual_host"]
    done = subprocess.run(command, cwd=REPO, env=env)
    found = sanitizers.reported(reports)
    assert not found, "\n\n".join(found)
    assert done.returncode == 0
