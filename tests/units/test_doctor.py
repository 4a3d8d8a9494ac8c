"""The doctor: a finding for each thing, a cure wherever something is amiss, never a crash."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artf_cli import bazel, doctor, interpreters, rdma, system
from artf_cli.bazel import BazelChoice
from artf_cli.console import out

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real ones ask every Python and Bazel of the machine: seconds, and not ours to test.
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "DIST", tmp_path / "dist")
    found = {"cp311": Path("/usr/bin/python3.11")}
    monkeypatch.setattr(interpreters, "here", lambda: found)
    choice = BazelChoice(Path("/usr/bin/bazel"), "6.5.0", "bazel on PATH")
    monkeypatch.setattr(bazel, "find", lambda: choice)


def by_name(examination: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in examination["checks"]}


def test_the_object_is_json_with_a_cure_for_all_that_is_not_well() -> None:
    examination = doctor.examine()
    assert json.loads(json.dumps(examination)) == examination
    assert set(examination) == {"ok", "checks", "rdma"}
    names = [check["name"] for check in examination["checks"]]
    assert len(names) == len(set(names)) == 16
    for check in examination["checks"]:
        assert set(check) == {"name", "status", "detail", "cure"}
        assert check["status"] in ("ok", "warn", "missing")
        assert check["detail"]
        assert bool(check["cure"]) == (check["status"] != "ok")
    missing = [check for check in examination["checks"] if check["status"] == "missing"]
    assert examination["ok"] == (not missing)


def test_what_a_build_needs_is_missing_on_an_empty_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(interpreters, "here", dict)
    monkeypatch.setattr(bazel, "find", lambda: None)
    examination = doctor.examine()
    assert not examination["ok"]
    checks = by_name(examination)
    for name, need in {
        "c++ compiler": "compiler",
        "git": "git",
    }.items():
        assert checks[name]["status"] == "missing", name
        assert system.needs()[need].way in checks[name]["cure"], name
    for name, fetched in {"python": "one is fetched", "bazel": "fetches bazelisk"}.items():
        assert checks[name]["status"] == "warn"
        assert fetched in checks[name]["detail"]


def test_a_program_that_does_not_run_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "git"
    shim.write_text("#!/bin/sh\necho 'git: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._program("git")["status"] == "missing"


def test_a_compiler_that_cannot_compile_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old-c++"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo old-c++ 4.4\n')
    old.chmod(0o755)
    monkeypatch.setenv("CC", str(old))
    compiler = doctor._compiler()
    assert compiler == old
    check = doctor._compilers(compiler)
    assert check["status"] == "missing"
    assert "old-c++ 4.4: no C++17" in check["detail"]


def test_a_full_disk_stops_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100 << 30, 99 << 30, 1 << 30))
    checks = by_name(doctor.examine())
    assert checks["disk for the cache"]["status"] == "missing"
    assert "ARTF_CACHE" in checks["disk for the cache"]["cure"]
    assert checks["disk for dist"]["status"] == "missing"


def test_a_cache_in_the_way_of_a_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "file" / "cache"))
    check = doctor._cache()
    assert check["status"] == "missing"
    assert "ARTF_CACHE" in check["cure"]


def test_wheels_are_listed(tmp_path: Path) -> None:
    assert doctor._wheel()["cure"] == "make it: scripts/artf build"
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "tensorflow_cpu-2.14.1+ar.1-cp311-cp311-manylinux_2_34_x86_64.whl").touch()
    assert doctor._wheel()["detail"] == "tensorflow_cpu-2.14.1+ar.1-cp311-cp311"


def test_render_shows_details_and_cures() -> None:
    checks = [
        {"name": "git", "status": "missing", "detail": "no git [x]", "cure": "install it"},
        {"name": "cores", "status": "ok", "detail": "2 usable", "cure": ""},
    ]
    found = rdma.look(Path("/nonexistent/python3"), Path("/nonexistent/infiniband"))
    found["problems"] = [{"what": "rxe0/1 is DOWN", "cure": "ip link"}]
    with out.capture() as capture:
        doctor.render({"ok": False, "checks": checks, "rdma": found})
    text = capture.get()
    for word in (
        "rxe0/1 is DOWN",
        "→ ip link",
        "git",
        "missing",
        "no git [x]",
        "→ install it",
        "2 usable",
    ):
        assert word in text


def test_the_compiler_is_the_one_that_cc_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for scripts/preflight and for Bazel."""
    named = tmp_path / "conda-gcc"
    named.symlink_to(str(shutil.which("g++")))
    monkeypatch.setenv("CC", str(named))
    assert doctor._compiler() == named
    # A build does not take clang by itself.
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "clang++").symlink_to(named)
    assert doctor._compilers(doctor._compiler())["status"] == "missing"


def test_certificates_are_wanted_as_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert doctor._certificates()["detail"] == str(bundle)
    table = {**system.needs(), "certificates": replace(system.needs()["certificates"], probes=())}
    monkeypatch.setattr(system, "needs", lambda: table)
    check = doctor._certificates()
    assert check["status"] == "missing"
    assert "SSL_CERT_FILE" in check["cure"]


def test_debians_mpich_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_loads", lambda library: library == "libmpich.so.12")
    assert doctor._mpi()["detail"] == "libmpich.so.12 (MPICH, as Debian names it)"
