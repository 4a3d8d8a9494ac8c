"""How the C++ that needs no TensorFlow is compiled for its tests."""

from __future__ import annotations

import shutil
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
VARIANTS = {
    "plain": [],
    "asan+ubsan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-fsanitize=thread"],
}
_FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{REPO}", "-pthread"]


def compiler(variant: str) -> list[str]:
    """The compiler and its flags for one of VARIANTS."""
    path = shutil.which("g++")
    assert path, "no g++: scripts/artf build installs it, or says how"
    return [path, *_FLAGS, *VARIANTS[variant]]
