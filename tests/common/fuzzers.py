"""libFuzzer's targets of tests/fuzz: compiled once, in the cache, and run over their corpora.

A corpus is a text file of the tree, `tests/fuzz/corpus/TARGET.hex`: an input a line.
`python -m common.fuzzers [TARGET…]`, in tests/, gives each target 10^6 inputs and keeps there what
reaches more code than what was kept before.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from artf_cli import system
from artf_cli.paths import REPO
from common import cpp

FOLDER = REPO / "tests/fuzz"
#: Debian's clang; its sanitizers and libFuzzer are a package of their own.
COMPILER = "clang++-14"
PACKAGES = ("clang-14", "libclang-rt-14-dev")
#: Target → what it is linked with, as in cpp.py.
TARGETS: dict[str, Sequence[str]] = {
    "frame_stream": ["fabric/verbs/frame_stream.cc", "fabric/verbs/stream_frame.cc"],
    "handshake": ["base/random.cc", "protocol/handshake*.cc", "protocol/hello*.cc"],
    "hello": ["base/random.cc", "protocol/hello*.cc"],
    "iwarp_frames": [f"fabric/verbs/{name}.cc" for name in ("address", "frame", "iwarp_frame")],
    "mpi_messages": ["mpi/messages.cc"],
    "rendezvous": ["protocol/rendezvous_messages.cc"],
    "ring": ["fabric/ring.cc"],
    "shm_frames": [
        "base/*.cc",
        *(f"fabric/shm/{name}.cc" for name in ("attach", "meeting_socket", "peer_socket", "place")),
    ],
    "verbs_frames": [f"fabric/verbs/{name}.cc" for name in ("address", "frame", "remote_key")],
    "verbs_messages": ["verbs/messages.cc"],
}
MANY = 1_000_000
# Longer than anything that a parser takes whole, but a few frames in a row.
_LONGEST = 2048
# Bytes of an input that is kept: longer ones are made of these again.
_LONGEST_KEPT = 256
_FLAGS = ["-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", f"-I{REPO}", "-pthread"]
_FLAGS += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]


def need_compiler() -> None:
    """Installs clang where it is missing; ArtfError when that cannot be."""
    if shutil.which(COMPILER) is None:
        system.apt_install("the compiler of the fuzz targets", PACKAGES)


def build(targets: Sequence[str] = tuple(TARGETS)) -> Path:
    """The folder with the programs of these targets; AssertionError with the compiler's words."""
    folder = cpp.tree_folder() / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    command = " ".join([COMPILER, *_FLAGS])
    lines = [
        f"rule compile\n command = {command} -MD -MF $out.d -c $in -o $out",
        " depfile = $out.d\n deps = gcc",
        f"rule link\n command = {command} $in -o $out",
    ]
    made: set[str] = set()
    for target, layers in TARGETS.items():
        sources = [FOLDER / f"{target}_fuzz.cc"]
        for files in layers:
            sources += [path for path in sorted(cpp.LAYERS.glob(files)) if path not in sources]
        objects = {f"{path.relative_to(REPO)}.o": path for path in sources}
        for name, source in objects.items():
            if name not in made:
                made.add(name)
                lines.append(f"build {name}: compile {source}")
        lines.append(f"build {target}: link {' '.join(objects)}")
    with FileLock(folder / "lock"):
        (folder / "build.ninja").write_text("\n".join(lines) + "\n")
        cpp.ninja(folder, f"-j{len(os.sched_getaffinity(0))}", *targets)
    return folder


def corpus(target: str) -> list[bytes]:
    lines = (FOLDER / f"corpus/{target}.hex").read_text().splitlines()
    return [bytes.fromhex(line) for line in lines]


def _lay(inputs: Sequence[bytes], folder: Path) -> Path:
    folder.mkdir()
    for number, each in enumerate(inputs):
        (folder / f"{number:04}").write_bytes(each)
    return folder


def run(program: Path, folder: Path, *arguments: str) -> str:
    """What libFuzzer says; AssertionError with it, and with the input, for one that breaks it."""
    found = folder / "found-"
    command = [str(program), f"-max_len={_LONGEST}", "-timeout=10", "-rss_limit_mb=1024"]
    command += [f"-artifact_prefix={found}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    broken = [f"{path.name}: {path.read_bytes().hex()}" for path in folder.glob("found-*")]
    assert done.returncode == 0, "\n".join([done.stderr[-6000:], *broken])
    return done.stderr


def give(built: Path, target: str, inputs: int, seed: int, folder: Path) -> int:
    """Gives a target so many inputs, made of its corpus; how many it took."""
    seeds = _lay(corpus(target), folder / "corpus")
    fresh = _lay([], folder / "fresh")
    said = run(built / target, folder, f"-runs={inputs}", f"-seed={seed}", str(fresh), str(seeds))
    took = re.search(r"Done (\d+) runs in", said)
    assert took, said
    return int(took[1])


def keep(built: Path, target: str, inputs: int, seed: int) -> tuple[int, int]:
    """The same, and adds to the corpus what reaches more; inputs kept before, and after."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = corpus(target)
        give(built, target, inputs, seed, folder)
        kept = _lay([], folder / "kept")
        run(built / target, folder, "-merge=1", str(kept), str(folder / "corpus"), "fresh")
        found = sorted((path.read_bytes() for path in kept.iterdir()), key=lambda each: each.hex())
        found = [each for each in found if 0 < len(each) <= _LONGEST_KEPT]
        lines = "".join(f"{each.hex()}\n" for each in found)
        (FOLDER / f"corpus/{target}.hex").write_text(lines)
        return len(before), len(found)


def main() -> None:
    targets = sys.argv[1:] or list(TARGETS)
    need_compiler()
    built = build(targets)
    for target in targets:
        before, after = keep(built, target, MANY, seed=1)
        print(f"{target}: {before} inputs kept before, {after} now", flush=True)


if __name__ == "__main__":
    main()
