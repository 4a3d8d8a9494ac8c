"""How the virtual host's kernel is built: by a source tree of a few files, with the real tools."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from artf_cli import system
from artf_cli.errors import ArtfError
from common.lacking import cannot_be_had
from rdma_host import kernel

#: A tree that `make` configures and builds as it does the kernel's: `.config` is what is asked for
#: but for what LOST names, and each file that is made is told.
_MAKEFILE = r"""
LOST ?= none
allnoconfig:
	grep -v "$(LOST)" $(KCONFIG_ALLCONFIG) > $(O)/.config
linux:
	echo run >> $(TOLD)
	echo "  CC      init/main.o"
	$(COMPILE)
	cp /bin/true $(O)/linux
"""


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A line for each build."""
    return tmp_path / "told"


@pytest.fixture
def source(tmp_path: Path, told: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tree that archive() packs."""
    needed = system.missing({"make": "make", "strip": "binutils", "xz": "xz-utils"})
    if needed:
        try:
            system.apt_install("what the tests of the virtual host's kernel use", needed)
        except ArtfError as error:
            cannot_be_had(str(error))
    tree = tmp_path / "tree" / kernel.PACKAGE
    tree.mkdir(parents=True)
    for name, (before, _) in kernel._EDITS.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(f"{before}\n")
    (tree / "Makefile").write_text(_MAKEFILE)
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOLD", str(told))
    monkeypatch.setenv("COMPILE", "true")
    monkeypatch.setattr(kernel, "version", lambda: "6.1.1-1")
    monkeypatch.setattr(kernel, "_ARCHIVE", tmp_path / "source.tar.xz")
    return tree


@pytest.fixture
def archive(source: Path) -> Callable[[], None]:
    def pack() -> None:
        with tarfile.open(kernel._ARCHIVE, "w:xz") as packed:
            packed.add(source, kernel.PACKAGE)

    pack()
    return pack


def left(tmp_path: Path) -> list[str]:
    """What a build leaves in the cache, but for its lock and its logs."""
    folder = tmp_path / "cache/rdma-host"
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


@pytest.mark.usefixtures("archive")
def test_it_is_built_once(tmp_path: Path, told: Path) -> None:
    made = kernel.build()
    assert kernel.build() == made
    assert told.read_text() == "run\n"
    assert left(tmp_path) == [made.name]
    assert made.name.startswith("linux-6.1.1-1-")
    assert made.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.usefixtures("archive")
def test_all_that_it_is_made_of_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {kernel.build().name}
    monkeypatch.setattr(kernel, "version", lambda: "6.1.1-2")
    names.add(kernel.build().name)
    changed = tmp_path / "kernel.config"
    changed.write_text(kernel.CONFIG.read_text() + "# one more line\n")
    monkeypatch.setattr(kernel, "CONFIG", changed)
    names.add(kernel.build().name)
    monkeypatch.setattr(kernel, "_EDITS", dict(list(kernel._EDITS.items())[:1]))
    names.add(kernel.build().name)
    assert len(names) == 4
    assert left(tmp_path) == sorted(names)


@pytest.mark.usefixtures("archive")
def test_a_source_that_lacks_an_option_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [each for each in kernel.CONFIG.read_text().splitlines() if each.startswith("CONFIG")]
    monkeypatch.setenv("LOST", options[0])
    with pytest.raises(ArtfError, match="cannot be configured") as caught:
        kernel.build()
    assert options[0] in str(caught.value)
    assert caught.value.cure == "adapt kernel.config to this version"
    assert left(tmp_path) == []


def test_a_source_without_the_line_to_change_is_named(
    tmp_path: Path, source: Path, archive: Callable[[], None]
) -> None:
    name = next(iter(kernel._EDITS))
    (source / name).write_text("something else\n")
    archive()
    with pytest.raises(ArtfError, match=f"0 times in {name}, not once") as caught:
        kernel.build()
    assert caught.value.cure == "adapt _EDITS in kernel.py to this version"
    assert left(tmp_path) == []


@pytest.mark.usefixtures("archive")
def test_the_compilers_first_error_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILE", "echo 'warned' >&2; echo 'main.c:7: error: no x' >&2; false")
    with pytest.raises(ArtfError, match=r"does not compile: main\.c:7: error: no x") as caught:
        kernel.build()
    log = Path(str(caught.value.cure).removeprefix("read its log "))
    assert "warned" in log.read_text()
    assert left(tmp_path) == []
    monkeypatch.setenv("COMPILE", "true")
    assert left(tmp_path) == [] and kernel.build().exists()


@pytest.mark.usefixtures("archive")
def test_a_full_disk_is_told_before_anything_is_unpacked(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 << 20))
    with pytest.raises(ArtfError, match="has 5 MiB free, a kernel needs 2048") as caught:
        kernel.build()
    assert caught.value.cure == "make room, or set ARTF_CACHE elsewhere"
    assert not told.exists()


def test_a_broken_archive_is_told(tmp_path: Path, source: Path) -> None:
    kernel._ARCHIVE.write_bytes(b"no archive")
    with pytest.raises(ArtfError, match=f"unpacking {kernel._ARCHIVE} failed: "):
        kernel.build()
    assert left(tmp_path) == []


def test_a_source_of_no_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "missing", lambda _: [])
    monkeypatch.setattr(kernel, "PACKAGE", "no-such-package")
    with pytest.raises(ArtfError, match="belongs to no package") as caught:
        kernel.version()
    assert caught.value.cure == "install Debian's no-such-package"
