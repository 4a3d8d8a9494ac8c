"""How the C++ that needs no TensorFlow is compiled for its tests: once, by ninja, in the cache.

An object stays until a file that it includes, a flag or the compiler changes, and the suites share
the objects of the layers.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock
from ninja import BIN_DIR

from artf_cli.paths import REPO, cache_dir

LAYERS = REPO / "third_party/ar_grpc"
PLAIN = "plain"
# ASan and UBSan see no less without the optimizer, which takes twice as long over what they add.
VARIANTS = {
    PLAIN: ["-O1"],
    "asan+ubsan": ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-O1", "-fsanitize=thread"],
}
#: Parsed once for each variant but the plain one, which shows that each source names what it uses.
_PARSED_ONCE = REPO / "tests/common/standard.h"
_FABRICS = ["base/*.cc", "memory/s*.cc", "fabric/*.cc", "fabric/loopback/*.cc", "fabric/shm/*.cc"]
_TRANSFER = [*_FABRICS, "protocol/*.cc", "tests/conformance/hostile.cc"]
#: Test program, without its `.cc` → what it is linked with, below third_party/ar_grpc or, where it
#: begins with `tests/`, below the repository.
UNITS = {
    "block_cache_test": ["grpc/block_cache.cc"],
    "chunks_test": ["protocol/chunks.cc", "protocol/write_gate.cc"],
    "cost_model_test": _TRANSFER,
    "extent_allocator_test": ["memory/extent_allocator.cc"],
    "handshake_attachment_test": [*_TRANSFER, "grpc/handshake_attachment.cc"],
    "handshake_test": ["base/random.cc", "protocol/handshake*.cc", "protocol/hello*.cc"],
    "hello_test": ["base/random.cc", "protocol/hello*.cc"],
    "limits_test": ["base/limits.cc"],
    "log_test": ["base/log.cc"],
    "node_test": _TRANSFER,
    "rendezvous_messages_test": ["protocol/rendezvous_messages.cc"],
    "transfer_cancel_test": _TRANSFER,
    "transfer_release_test": _TRANSFER,
    "transfer_test": _TRANSFER,
    "unique_id_test": ["base/random.cc", "tensorflow/unique_id.cc"],
}
CONFORMANCE = {
    "base_test": _FABRICS,
    "parts_test": _FABRICS,
    "fabric_conformance_test": [
        *_FABRICS,
        "tests/conformance/hostile.cc",
        "tests/conformance/subjects.cc",
        "tests/conformance/suite_*.cc",
    ],
    "shm_test": [*_FABRICS, "tests/conformance/shm_*.cc"],
}
_VERBS = ["base/*.cc", "memory/s*.cc", "fabric/verbs/*.cc"]
#: Those that have a device run in virtual RDMA hosts, and are built in the variant `plain` only.
VERBS = {
    "abi_test": [],
    "conformance_test": [
        "tests/conformance/fabric_conformance_test.cc",
        *CONFORMANCE["fabric_conformance_test"],
        "fabric/verbs/*.cc",
    ],
    "failures_test": _VERBS,
    "frame_test": [f"fabric/verbs/{name}.cc" for name in ("address", "frame", "remote_key")],
    "read_test": _VERBS,
    "send_queue_test": ["fabric/verbs/send_queue.cc"],
    "transfer_program": _VERBS,
}
_PROGRAMS = {
    **{f"tests/units/{name}": sources for name, sources in UNITS.items()},
    **{f"tests/conformance/{name}": sources for name, sources in CONFORMANCE.items()},
    **{f"tests/verbs/{name}": sources for name, sources in VERBS.items()},
}
# A stack needs lines and functions; the rest of -g takes a third of the compiler's time.
_FLAGS = ["-std=c++17", "-g1", "-Wall", "-Wextra", "-Werror", f"-I{REPO}", "-pthread"]


def _keep(path: Path, text: str) -> Path:
    """Writes a file; one that says the same already keeps its time."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def _escaped(*paths: str | Path) -> str:
    """Paths as build.ninja has them."""
    return " ".join(re.sub(r"([$ :])", r"$\1", str(path)) for path in paths)


def _rules(folder: Path) -> None:
    """Writes build.ninja, which has every program in every variant."""
    compiler = shutil.which("g++")
    assert compiler, "no g++: scripts/artf build installs it, or says how"
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    version = _keep(folder / "compiler", f"{compiler}\n{said.stdout}")
    command = f"{shlex.join([compiler, *_FLAGS]).replace('$', '$$')} $flags"
    lines = [
        f"rule compile\n command = {command} $first -MD -MF $out.d -c $in -o $out",
        " depfile = $out.d\n deps = gcc",
        f"rule parse\n command = {command} -x c++-header $in -o $out",
        f"rule link\n command = {command} $in -o $out -ldl",
    ]
    for variant, flags in VARIANTS.items():
        setting = f" flags = {shlex.join(flags)}"
        needs, first = str(version), ""
        if variant != PLAIN:
            # The compiler looks for it under this name with `.gch` behind it.
            parsed = f"{variant}/{_PARSED_ONCE.name}"
            lines += [f"build {parsed}.gch: parse {_escaped(_PARSED_ONCE)} | {_escaped(version)}"]
            lines += [setting]
            needs = f"{parsed}.gch"
            # It is used, or the source fails to compile.
            first = f"\n first = -Winvalid-pch -include {parsed}"
        made: set[str] = set()
        for program, layers in _PROGRAMS.items():
            sources = [REPO / f"{program}.cc"]
            for files in layers:
                folder_of = REPO if files.startswith("tests/") else LAYERS
                sources += [path for path in sorted(folder_of.glob(files)) if path not in sources]
            objects = [f"{variant}/{path.relative_to(REPO)}.o" for path in sources]
            for name, source in zip(objects, sources):
                if name not in made:
                    made.add(name)
                    lines += [f"build {name}: compile {_escaped(source)} | {_escaped(needs)}"]
                    lines += [setting + first]
            lines += [f"build {variant}/{program}: link {_escaped(*objects)}", setting]
    (folder / "build.ninja").write_text("\n".join(lines) + "\n")


def build(suite: str, names: Iterable[str], variants: Iterable[str] = VARIANTS) -> Path:
    """The folder with `VARIANT/tests/SUITE/NAME` of each name, compiled where it is not yet.

    Raises AssertionError with the compiler's words.
    """
    tree = hashlib.sha256(str(REPO).encode()).hexdigest()[:12]
    folder = cache_dir() / "cpp" / tree
    folder.mkdir(parents=True, exist_ok=True)
    targets = [f"{variant}/tests/{suite}/{name}" for variant in variants for name in names]
    # Suites that run side by side; what one compiles the other finds.
    with FileLock(folder / "lock"):
        _rules(folder)
        ninja(folder, f"-j{len(os.sched_getaffinity(0))}", *targets)
    return folder


def ninja(folder: Path, *words: str) -> str:
    """What ninja says; raises AssertionError with it when it fails."""
    command = [str(Path(BIN_DIR) / "ninja"), "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(folder: Path, variant: str, program: str, seconds: float) -> str:
    """What a program of `build` says; raises AssertionError unless it ends with status 0."""
    done = subprocess.run(
        [str(folder / variant / program)], capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
