"""Repacks a pinned base wheel as ours: the AR library and patched Python files added.

Bazel's `//build:wheel` calls `python -m artf_cli.wheel`. Same inputs, same bytes: entries keep
the base's order and dates, ours come last with a fixed date. What is the base's stays compressed.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import click
from auditwheel.architecture import Architecture
from auditwheel.elfutils import elf_find_versioned_symbols
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies
from elftools.elf.elffile import ELFFile
from wheel.wheelfile import WheelFile

from artf_cli import patches, pins
from artf_cli.errors import ArtfError
from artf_cli.paths import PINS, REPO
from artf_cli.pins import BaseWheel, Manifest

LIBRARY = "tensorflow/libtensorflow_ar.so"
_DATE = (1980, 1, 1, 0, 0, 0)
# Level 9 doubles the time for 1% of the size.
_DEFLATE_LEVEL = 6


# A local header's fixed part (APPNOTE.TXT 4.3.7): its last fields are the lengths of what follows.
_LOCAL_HEADER, _LENGTHS = 30, "<26x2H"


class _Deflated:
    """In the place of a compressor: bytes that are compressed already."""

    def __init__(self, deflated: bytes) -> None:
        self._rest = deflated

    def compress(self, _: bytes) -> bytes:
        return b""

    def flush(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest


class _Repacked(WheelFile):
    """A wheel that takes entries of another one without compressing them again."""

    deflated: bytes | None = None

    def open(self, name: Any, mode: str = "r", *arguments: Any, **settings: Any) -> IO[bytes]:
        stream = super().open(name, mode, *arguments, **settings)
        if mode == "w" and self.deflated is not None:
            # zipfile counts what is written to it and takes its checksum, whatever comes of it.
            stream._compressor = _Deflated(self.deflated)  # type: ignore[attr-defined]
        return stream

    def take(self, entry: zipfile.ZipInfo, data: bytes, deflated: bytes | None) -> None:
        """Writes an entry of `data`, which `deflated` is, compressed; None: compresses it."""
        self.deflated = deflated
        try:
            self.writestr(entry, data, zipfile.ZIP_DEFLATED)
        finally:
            self.deflated = None


def _deflated(wheel: IO[bytes], entry: zipfile.ZipInfo) -> bytes | None:
    """An entry's bytes as they lie in the wheel; None where they are not deflated."""
    if entry.compress_type != zipfile.ZIP_DEFLATED:
        return None
    wheel.seek(entry.header_offset)
    name, extra = struct.unpack(_LENGTHS, wheel.read(_LOCAL_HEADER))
    wheel.seek(name + extra, os.SEEK_CUR)
    return wheel.read(entry.compress_size)


def platform_tag(library: Path) -> str:
    """The platform tag that auditwheel's policies give the library's versioned symbols.

    Raises ArtfError when no manylinux policy fits (the symbols are newer than any known one).
    """
    needed: dict[str, set[str]] = {}
    with library.open("rb") as stream:
        for name, version in elf_find_versioned_symbols(ELFFile(stream)):
            needed.setdefault(name, set()).add(version)
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture.x86_64)
    policy = policies.versioned_symbols_policy(needed)
    if not policy.name.startswith("manylinux"):
        raise ArtfError(
            f"{library} fits no manylinux policy ({policy.name})", "build with an older toolchain"
        )
    return str(policy.name)


def glibc_of(tag: str) -> tuple[int, int]:
    """(2, 34) of `manylinux_2_34_x86_64`."""
    found = re.match(r"manylinux_(\d+)_(\d+)_", tag)
    if found is None:
        raise ArtfError(
            f"{tag!r} is no manylinux_X_Y tag", "report it: the base wheel's tag changed"
        )
    return int(found.group(1)), int(found.group(2))


def _new_metadata(text: str, version: str) -> str:
    renewed, count = re.subn(r"(?m)^Version: .*$", f"Version: {version}", text, count=1)
    if count != 1:
        raise ArtfError("the base wheel's METADATA has no Version", "use the pinned base wheel")
    return renewed


def _description(manifest: Manifest, base: BaseWheel, library: Path, tag: str) -> str:
    """What the wheel was made of, as JSON: it lies in the wheel's dist-info."""
    return json.dumps(
        {
            "version": manifest.version,
            "platform": tag,
            "base_wheel": base.model_dump(),
            "sources": {
                name: {"version": pin.version, "upstream": pin.upstream.model_dump()}
                for name, pin in manifest.sources.items()
            },
            "patches": [
                {
                    "tree": patch.tree,
                    "name": patch.name,
                    "subject": patch.subject,
                    "class": patch.reason,
                    "reference": patch.reference,
                    "sha256": manifest.patches[patch.tree][patch.name],
                }
                for patch in patches.list_patches()
            ],
            "library_sha256": pins.sha256_of(library),
        },
        indent=1,
    )


def _pristine_python(base: zipfile.ZipFile, python: list[Path]) -> dict[str, bytes]:
    """Entry name → patched bytes; each must exist in the base wheel."""
    names = set(base.namelist())
    found: dict[str, bytes] = {}
    for path in python:
        name = "tensorflow/" + path.as_posix().split("/tensorflow/", 1)[1]
        if name not in names:
            raise ArtfError(f"the base wheel has no {name}", "mend delta_paths in build/pins.toml")
        found[name] = path.read_bytes()
    return found


def repack(base: Path, library: Path, python: list[Path], out: Path) -> Path:
    """Writes our wheel into the folder `out` and returns its path.

    `python` are files of the patched tree below `…/tensorflow/python`. Raises ArtfError when the
    base wheel is not a pinned one; nothing is left in `out` then.
    """
    manifest = pins.load()
    pin = next((wheel for wheel in manifest.wheels if wheel.file == base.name), None)
    if pin is None:
        raise ArtfError(f"{base.name} is not a base wheel of {PINS.name}", "use a pinned one")
    pins.verify(base, pin.sha256, "fetch the pinned wheel again")
    tag = max(platform_tag(library), "manylinux_2_17_x86_64", key=glibc_of)
    distribution, upstream, abi = base.name.split("-")[:3]
    old_info = f"{distribution}-{upstream}.dist-info"
    info = f"{distribution}-{manifest.version}.dist-info"
    out.mkdir(parents=True, exist_ok=True)
    name = f"{distribution}-{manifest.version}-{abi}-{abi}-{tag}.whl"
    # WheelFile wants a wheel's name from the start, so a half-written one lies in a folder aside.
    aside = out / ".partial"
    aside.mkdir(exist_ok=True)
    partial = aside / name
    # WheelFile dates the RECORD that it writes itself by this.
    os.environ["SOURCE_DATE_EPOCH"] = str(calendar.timegm(_DATE))
    try:
        with (
            base.open("rb") as whole,
            zipfile.ZipFile(base) as source,
            _Repacked(str(partial), "w") as sink,
        ):
            replaced = _pristine_python(source, python)
            for entry in source.infolist():
                if entry.is_dir() or entry.filename == f"{old_info}/RECORD":
                    continue
                theirs = source.read(entry)
                data = replaced.pop(entry.filename, theirs)
                arcname = entry.filename.replace(old_info, info, 1)
                if arcname == f"{info}/METADATA":
                    data = _new_metadata(data.decode(), manifest.version).encode()
                elif arcname == f"{info}/WHEEL":
                    data = _wheel_file(abi, tag).encode()
                deflated = _deflated(whole, entry) if data is theirs else None
                _write(sink, arcname, data, entry.date_time, entry.external_attr, deflated)
            ours = {LIBRARY: library.read_bytes(), f"{info}/ar_grpc/pins.toml": PINS.read_bytes()}
            ours[f"{info}/ar_grpc/build.json"] = _description(manifest, pin, library, tag).encode()
            for target, overlay in manifest.overlays["wheel"].items():
                pins.verify(REPO / overlay.file, overlay.sha256, "run scripts/artf patches export")
                ours[target] = (REPO / overlay.file).read_bytes()
            for arcname, data in ours.items():
                mode = 0o755 if arcname == LIBRARY else 0o644
                _write(sink, arcname, data, _DATE, (0o100000 | mode) << 16)
        return partial.replace(out / name)
    finally:
        partial.unlink(missing_ok=True)
        aside.rmdir()


def _wheel_file(abi: str, tag: str) -> str:
    lines = ("Wheel-Version: 1.0", "Generator: artf", "Root-Is-Purelib: false")
    return "\n".join((*lines, f"Tag: {abi}-{abi}-{tag}")) + "\n"


def _write(
    sink: _Repacked,
    name: str,
    data: bytes,
    date: tuple[int, ...],
    attributes: int,
    deflated: bytes | None = None,
) -> None:
    entry = zipfile.ZipInfo(name, (date[0], date[1], date[2], date[3], date[4], date[5]))
    entry.external_attr = attributes
    entry.create_system = 3
    entry._compresslevel = _DEFLATE_LEVEL  # type: ignore[attr-defined]
    sink.take(entry, data, deflated)


@click.command()
@click.option("--base", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--library", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--python", type=click.Path(path_type=Path, exists=True), multiple=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(base: Path, library: Path, python: tuple[Path, ...], out: Path) -> None:
    """The entry for Bazel."""
    try:
        repack(base, library, list(python), out)
    except ArtfError as error:
        raise SystemExit(f"artf: {error}") from None


if __name__ == "__main__":
    main()
