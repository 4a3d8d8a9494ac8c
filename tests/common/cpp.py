"""How the C++ that needs no TensorFlow is compiled for its tests: once, by ninja, in the cache.

An object stays until a file that it includes, a flag or the compiler changes, and the suites share
the objects of the layers. An object has some files of a folder, since what they all include takes
the compiler as long as they do.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock
from ninja import BIN_DIR

from artf_cli.paths import REPO, cache_dir

LAYERS = REPO / "third_party/ar_grpc"
PLAIN = "plain"
#: Beside the folders of the variants: libraries that a program opens.
SHARED_FOLDER = "shared"
# ASan and UBSan see no less without the optimizer, which takes twice as long over what they add.
VARIANTS = {
    PLAIN: ["-O1"],
    "asan+ubsan": ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-O1", "-fsanitize=thread"],
}
UBSAN = "ubsan"
SANITIZED = tuple(variant for variant in VARIANTS if variant != PLAIN)
#: Of programs that run in virtual RDMA hosts, whose address space has no room for the shadow of
#: AddressSanitizer or of ThreadSanitizer.
IN_A_HOST = {UBSAN: ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]}
#: Parsed once for each variant. The wheel's build shows that each source names what it uses.
_PARSED_ONCE = REPO / "tests/common/standard.h"
#: Folders of the layers whose files share objects, so many at most.
_FOLDERS = ("base", "fabric", "fabric/shm", "fabric/verbs", "protocol", "verbs", "mpi")
_TOGETHER = 8
#: Of these folders, what has an object of its own: files that name something of theirs as another
#: file of the folder names something of its own. All other files of a folder go together.
_ALONE = {
    "fabric/verbs/connection_manager.cc",
    "fabric/verbs/device_events.cc",
    "fabric/verbs/iwarp_attachment.cc",
    "fabric/verbs/port_names.cc",
    "fabric/verbs/rdmacm_library.cc",
    "fabric/verbs/stream_frame.cc",
    "protocol/receiver.cc",
    "protocol/rendezvous_messages.cc",
    "protocol/self_connection.cc",
}
_FABRICS = [
    "base/*.cc",
    "memory/s*.cc",
    "fabric/*.cc",
    *(f"fabric/{name}/*.cc" for name in ("loopback", "shm", "verbs")),
]
_TRANSFER = [
    *_FABRICS,
    "memory/extent_allocator.cc",
    "protocol/*.cc",
    "tests/conformance/hostile.cc",
]
#: Test program, without its `.cc` → what it is linked with, below third_party/ar_grpc or, where it
#: begins with `tests/`, below the repository.
UNITS = {
    "block_cache_test": ["grpc/block_cache.cc"],
    "chunks_test": ["protocol/chunks.cc", "protocol/write_gate.cc"],
    "cost_model_test": _TRANSFER,
    "extent_allocator_test": ["memory/extent_allocator.cc"],
    "handshake_attachment_test": [*_TRANSFER, "grpc/handshake_attachment.cc"],
    "handshake_orders_test": ["base/random.cc", "protocol/handshake*.cc", "protocol/hello*.cc"],
    "handshake_test": ["base/random.cc", "protocol/handshake*.cc", "protocol/hello*.cc"],
    "hello_test": ["base/random.cc", "protocol/hello*.cc"],
    "limits_test": ["base/limits.cc"],
    "log_test": ["base/log.cc"],
    "mpi_messages_test": ["mpi/messages.cc"],
    "node_test": _TRANSFER,
    "pinned_ranges_test": _TRANSFER,
    "rendezvous_messages_test": ["protocol/rendezvous_messages.cc"],
    "step_cleanups_test": ["base/*.cc", "protocol/step_cleanups.cc"],
    "transfer_cancel_test": [*_TRANSFER, "tests/units/transfer_scenarios.cc"],
    "transfer_release_test": _TRANSFER,
    "transfer_test": [*_TRANSFER, "tests/units/transfer_scenarios.cc"],
    "unique_id_test": ["base/random.cc", "tensorflow/unique_id.cc"],
    "verbs_messages_test": ["verbs/messages.cc"],
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
#: Those that have a device run in virtual RDMA hosts, plain or in a variant of IN_A_HOST.
VERBS = {
    "abi_test": [],
    "rdmacm_abi_test": [],
    "conformance_test": [
        "tests/conformance/fabric_conformance_test.cc",
        *CONFORMANCE["fabric_conformance_test"],
    ],
    "completions_test": _VERBS,
    "device_choice_test": [
        f"fabric/verbs/{name}.cc" for name in ("device_choice", "numa", "settings")
    ],
    "dying_program": _VERBS,
    "events_test": _VERBS,
    "failures_test": _VERBS,
    "forking_program": _VERBS,
    "hostile_peer_test": _VERBS,
    "impaired_program": _VERBS,
    "iwarp_frame_test": [f"fabric/verbs/{name}.cc" for name in ("address", "frame", "iwarp_frame")],
    "frame_test": [f"fabric/verbs/{name}.cc" for name in ("address", "frame", "remote_key")],
    "frame_stream_test": ["fabric/verbs/frame_stream.cc", "fabric/verbs/stream_frame.cc"],
    "iwarp_test": _VERBS,
    "bounce_test": _VERBS,
    # The subject of conformance_test, and others of tests/conformance.
    "link_test": [
        "tests/verbs/conformance_test.cc",
        "tests/conformance/subjects.cc",
        *_TRANSFER,
        "verbs/*.cc",
    ],
    "port_names_test": [f"fabric/verbs/{name}.cc" for name in ("port_names", "settings")],
    "read_depth_test": _VERBS,
    "read_test": _VERBS,
    "receiver_test": [*_TRANSFER, "tests/units/transfer_scenarios.cc"],
    "removal_program": _VERBS,
    "scale_program": _VERBS,
    "send_queue_test": ["fabric/verbs/send_queue.cc"],
    "settings_test": ["fabric/verbs/settings.cc"],
    "tcp_beside_program": _VERBS,
    "told_test": _VERBS,
    "transfer_program": _TRANSFER,
    "writes_program": [*_VERBS, "memory/extent_allocator.cc", "verbs/*.cc"],
    "wrong_program": [],
}
_MPI = ["base/*.cc", "mpi/*.cc", "tests/mpi/scenarios.cc"]
#: A rank of a job under mpirun, and what runs over a fake MPI, sanitized.
MPI = {
    "channel_program": _MPI,
    "channel_test": [*_MPI, "tests/mpi/fake_calls.cc"],
    "parts_test": [*_MPI, "tests/mpi/fake_calls.cc"],
}
_PROGRAMS = {
    **{f"tests/units/{name}": sources for name, sources in UNITS.items()},
    **{f"tests/conformance/{name}": sources for name, sources in CONFORMANCE.items()},
    **{f"tests/verbs/{name}": sources for name, sources in VERBS.items()},
    **{f"tests/mpi/{name}": sources for name, sources in MPI.items()},
}
#: Library of a suite → the script of its symbols' versions and what it is linked with.
SHARED = {"tests/verbs/counting_verbs": ("tests/verbs/counting_verbs.map", "libibverbs.so.1")}
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


def _groups(folder: Path) -> dict[Path, list[Path]]:
    """Source that includes a group of files, which have one object → these files."""
    together = folder / "together"
    together.mkdir(exist_ok=True)
    assert all((LAYERS / name).exists() for name in _ALONE), "_ALONE names a file that has gone"
    found = {}
    for name in _FOLDERS:
        files = sorted(LAYERS.glob(f"{name}/*.cc"))
        files = [path for path in files if str(path.relative_to(LAYERS)) not in _ALONE]
        count = -(-len(files) // _TOGETHER)
        for i in range(count):
            part = files[i::count]
            source = together / f"{name.replace('/', '_')}_{i}.cc"
            lines = [f'#include "{path.relative_to(REPO)}"\n' for path in part]
            found[_keep(source, "".join(lines))] = part
    return found


def _sources(program: str, layers: Iterable[str], groups: Mapping[Path, list[Path]]) -> list[Path]:
    """What a program is compiled from: where it has all files of a group, that one's."""
    files = [REPO / f"{program}.cc"]
    for pattern in layers:
        below = REPO if pattern.startswith("tests/") else LAYERS
        files += [path for path in sorted(below.glob(pattern)) if path not in files]
    for source, parts in groups.items():
        if set(parts) <= set(files):
            files = [source, *(path for path in files if path not in parts)]
    return files


def _rules(folder: Path) -> None:
    """Writes build.ninja, which has every program in every variant."""
    compiler = shutil.which("g++")
    assert compiler, "no g++: scripts/artf build installs it, or says how"
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    version = _keep(folder / "compiler", f"{compiler}\n{said.stdout}")
    command = f"{shlex.join([compiler, *_FLAGS]).replace('$', '$$')} $flags"
    lines = [
        # It is used, or the source fails to compile.
        f"rule compile\n command = {command} -Winvalid-pch -include $parsed"
        " -MD -MF $out.d -c $in -o $out",
        " depfile = $out.d\n deps = gcc",
        f"rule parse\n command = {command} -x c++-header $in -o $out",
        f"rule link\n command = {command} $in -o $out -ldl",
        # With what it does not use itself: others find that through it.
        f"rule share\n command = {command} -O1 -shared -fPIC -MD -MF $out.d $in -o $out"
        " -Wl,--version-script=$versions -Wl,--no-as-needed -l:$with -ldl",
        " depfile = $out.d\n deps = gcc",
    ]
    for name, (versions, linked) in SHARED.items():
        needs = _escaped(REPO / versions, version)
        lines += [f"build {SHARED_FOLDER}/{name}.so: share {_escaped(REPO / name)}.cc | {needs}"]
        lines += [f" versions = {_escaped(REPO / versions)}\n with = {linked}"]
    groups = _groups(folder)
    for variant, flags in {**VARIANTS, **IN_A_HOST}.items():
        setting = f" flags = {shlex.join(flags)}"
        # The compiler looks for it under this name with `.gch` behind it.
        parsed = f"{variant}/{_PARSED_ONCE.name}"
        lines += [f"build {parsed}.gch: parse {_escaped(_PARSED_ONCE)} | {_escaped(version)}"]
        lines += [setting]
        made: set[str] = set()
        for program, layers in _PROGRAMS.items():
            objects = []
            for source in _sources(program, layers, groups):
                root = folder if source in groups else REPO
                name = f"{variant}/{source.relative_to(root)}.o"
                objects.append(name)
                if name not in made:
                    made.add(name)
                    lines += [f"build {name}: compile {_escaped(source)} | {_escaped(parsed)}.gch"]
                    lines += [f"{setting}\n parsed = {parsed}"]
            lines += [f"build {variant}/{program}: link {_escaped(*objects)}", setting]
    (folder / "build.ninja").write_text("\n".join(lines) + "\n")


def tree_folder() -> Path:
    """What is compiled of this tree lies here."""
    return cache_dir() / "cpp" / hashlib.sha256(str(REPO).encode()).hexdigest()[:12]


def build(suite: str, names: Iterable[str], variants: Iterable[str] = VARIANTS) -> Path:
    """The folder with `VARIANT/tests/SUITE/NAME` of each name, compiled where it is not yet.

    Raises AssertionError with the compiler's words.
    """
    targets = [f"{variant}/tests/{suite}/{name}" for variant in variants for name in names]
    return _make(targets)


def shared(name: str) -> Path:
    """The library of one of SHARED, compiled where it is not yet."""
    return _make([f"{SHARED_FOLDER}/{name}.so"]) / SHARED_FOLDER / f"{name}.so"


def _make(targets: Sequence[str]) -> Path:
    """The folder with these, which ninja has made."""
    folder = tree_folder()
    folder.mkdir(parents=True, exist_ok=True)
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
