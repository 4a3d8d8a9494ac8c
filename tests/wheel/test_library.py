"""The AR library inside the wheel: what it links, exports and imports."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from artf_cli import fetch, pins
from common.elf import symbols
from common.repeated import few

FRAMEWORK, CC = "libtensorflow_framework.so.2", "libtensorflow_cc.so.2"
SYSTEM = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2"}


@pytest.fixture(scope="session")
def library(unpacked: Path) -> Path:
    return unpacked / "tensorflow/libtensorflow_ar.so"


def dynamic(path: Path, tag: str) -> list[str]:
    key = {"DT_NEEDED": "needed", "DT_RUNPATH": "runpath", "DT_SONAME": "soname"}[tag]
    with path.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".dynamic")
        assert isinstance(section, DynamicSection)
        return [getattr(t, key) for t in section.iter_tags() if t.entry.d_tag == tag]


def demangled(names: list[str]) -> list[str]:
    done = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def mentions_grpc(name: str) -> bool:
    """A type or function of gRPC itself; TensorFlow's protobuf messages may be called Grpc…."""
    return re.search(r"\bgrpc(_core|_impl|_event_engine)?::|\bgrpc_|\bgpr_", name) is not None


def test_framework_is_needed_before_cc(library: Path) -> None:
    needed = dynamic(library, "DT_NEEDED")
    assert needed[:2] == [FRAMEWORK, CC]
    assert set(needed[2:]) <= SYSTEM, "MPI and ibverbs are opened at run time, never linked"


def test_it_finds_its_neighbours_and_nothing_else(library: Path) -> None:
    assert dynamic(library, "DT_RUNPATH") == ["$ORIGIN"]
    assert dynamic(library, "DT_SONAME") == ["libtensorflow_ar.so"]


def test_nothing_leaks(library: Path) -> None:
    assert set(symbols(library, defined=True)) == {
        "ar_grpc_status",
        "ar_grpc_has_master",
        "ar_grpc_check_server",
    }


def test_no_imported_symbol_mentions_grpc(library: Path) -> None:
    wanted = demangled(list(symbols(library, defined=False)))
    assert len(wanted) > 500
    assert [name for name in wanted if mentions_grpc(name)] == []


def test_the_grpc_pattern_would_see_the_traps() -> None:
    names = (
        "tsl::profiler::CreateProfilerService[abi:cxx11](grpc::ServerBuilder*)",
        "TLS init function for grpc_core::ExecCtx::exec_ctx_",
        "grpc_channel_create",
    )
    assert all(mentions_grpc(name) for name in names)
    assert not mentions_grpc("tensorflow::distributed_runtime::GrpcPayloadContainer::Clear()")


def test_the_profiler_service_is_our_own(library: Path) -> None:
    """The wheel exports it too and would link silently, but of an older gRPC."""
    wanted = demangled(list(symbols(library, defined=False)))
    assert [name for name in wanted if "CreateProfilerService" in name] == []


def unsatisfied(library: Path, providers: list[Path]) -> list[str]:
    provided = set().union(*(symbols(path, defined=True) for path in providers))
    wanted = symbols(library, defined=False)
    # A weak one (w, v) may be missing.
    return [name for name, letter in wanted.items() if letter == "U" and name not in provided]


def system_libraries(path: Path) -> list[Path]:
    shown = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"=> (/\S+)", shown) + re.findall(r"^\s+(/\S+) \(", shown, re.M)
    return [Path(name) for name in found]


def test_nothing_is_undefined(library: Path) -> None:
    neighbours = [library.with_name(FRAMEWORK), library.with_name(CC)]
    assert unsatisfied(library, neighbours + system_libraries(library)) == []
    assert unsatisfied(library, system_libraries(library)[:0]) != []


@pytest.mark.parametrize("python", few(["cp39", "cp310", "cp311"], "cp39"))
def test_every_pinned_wheel_has_what_the_library_wants(
    library: Path, python: str, tmp_path: Path
) -> None:
    """Statically, for the Pythons that have no interpreter here as well.

    The wheel that the library was linked with is looked at above.
    """
    manifest = pins.load()
    pin = manifest.wheel("tensorflow-cpu", python)
    with zipfile.ZipFile(fetch.wheel(pin, manifest.sources["tensorflow"].version)) as archive:
        names = [f"tensorflow/{FRAMEWORK}", f"tensorflow/{CC}"]
        found = [Path(archive.extract(name, tmp_path)) for name in names]
    assert unsatisfied(library, found + system_libraries(library)) == []
