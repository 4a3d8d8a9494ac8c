"""What a program needs that loads a library with sanitizers (`build/bazelrc`), and what they said.

Python itself has none, so their run-time libraries come before all others by LD_PRELOAD; so do
malloc and free, and with them the memory that TensorFlow's own libraries hand to ours or take.
Tensors in the arena are pages of a file to them, whose bounds and lifetimes they do not know.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from artf_cli.errors import ArtfError

_RUNTIMES = ("libasan.so", "libubsan.so")


def environment(reports: Path) -> dict[str, str]:
    """Variables for a program; what the sanitizers find, and aborts, are told in `reports`.

    Raises ArtfError when the compiler has no sanitizers.
    """
    libraries = [_runtime(name) for name in _RUNTIMES]
    # UBSan sets the path for both when it starts; its own line goes to standard error all the same,
    # so it is told to abort, and AddressSanitizer to report that.
    both = {"log_path": reports / "report"}
    # Python and TensorFlow keep until the end what they made at the start.
    # Where there is no memory they are told so, as by malloc itself.
    address = {**both, "detect_leaks": 0, "handle_abort": 1, "allocator_may_return_null": 1}
    undefined = {**both, "abort_on_error": 1, "print_stacktrace": 1}
    return {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": ":".join(f"{name}={value}" for name, value in address.items()),
        "UBSAN_OPTIONS": ":".join(f"{name}={value}" for name, value in undefined.items()),
    }


def _runtime(name: str) -> str:
    compiler = os.environ.get("CC", "gcc")
    asked = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True)
    path = Path(asked.stdout.strip())
    # A compiler that has none says the name alone.
    if not path.is_absolute():
        raise ArtfError(f"{compiler} has no {name}", "install gcc with its sanitizers")
    return str(path.resolve())


def reported(reports: Path) -> list[str]:
    """The reports so far, one for each process that ended with one."""
    return [path.read_text(errors="replace") for path in sorted(reports.iterdir())]
