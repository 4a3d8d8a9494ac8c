"""The manifest and the bases: they are whole, and every broken one is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from artf_cli import pins
from artf_cli.containers import bases
from artf_cli.errors import ArtfError
from artf_cli.paths import PINS


def test_the_manifest_pins_all_that_the_design_names() -> None:
    manifest = pins.load()
    assert manifest.version == "2.14.1+ar.1"
    assert {name: source.version for name, source in manifest.sources.items()} == {
        "tensorflow": "2.14.1",
        "grpc": "1.51.1",
    }
    assert {name: tool.version for name, tool in manifest.tools.items()} == {"protobuf": "3.21.12"}
    assert {(w.base, w.python) for w in manifest.wheels} == {
        (base, python)
        for base in ("tensorflow-cpu", "tensorflow")
        for python in ("cp39", "cp310", "cp311")
    }
    pins.verify_local(manifest)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('version = "2.14.1"', "version = 2", "sources.tensorflow.version"),
        ("b55696fb249669744", "B55696fb249669744", "sources.grpc"),
        ("schema_version = 1", "schema_version = 2", "schema_version"),
        ("[sources.grpc]", "[sources.grpc]\nfavourite = 1", "sources.grpc.favourite"),
        ('local_version = "ar.1"', 'local_version = "one"', "local_version"),
        ("https://github.com/grpc", "http://github.com/grpc", "sources.grpc.upstream.url"),
        ("bazel_sha256", "bazel_hash", "bazelisk.bazel_sha256"),
    ],
)
def test_a_broken_entry_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = PINS.read_text()
    assert old in text
    path = tmp_path / "pins.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ArtfError, match=named):
        pins.load(path)


def test_the_sources_of_an_older_manifest_are_read(tmp_path: Path) -> None:
    """`patches edit --from`: today's tables were not there then, and others may have been."""
    text = PINS.read_text()
    path = tmp_path / "pins.toml"
    path.write_text("[sources" + text.partition("[sources")[2].partition("[bazelisk]")[0])
    assert pins.sources_then(path) == pins.load().sources


def test_the_bases_are_the_build_arguments_of_the_dockerfiles() -> None:
    named: dict[str, str] = {}
    for file in bases.FILE.parent.glob("*.Dockerfile"):
        found = re.findall(r"^ARG ((?:SYSROOT_)?BASE)=(\S+)$", file.read_text(), re.MULTILINE)
        named.update(found)
    assert {name: base.image for name, base in bases.load().items()} == named


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('digest = ""', 'digest = "sha256:12"', "BASE.digest"),
        ('digest = ""', "digest = 5", "BASE.digest"),
        ('digest = ""', 'digest = ""\nos = "linux"', "BASE.os: Extra inputs"),
        ('digest = ""', "", "BASE.digest: Field required"),
        ("debian:bookworm-slim", "Debian!", "BASE.image"),
        ("debian:bookworm-slim", "debian", "BASE.image"),
        ("[SYSROOT_BASE]", "[SYSTEM_BASE]", "SYSROOT_BASE: Field required"),
    ],
)
def test_a_broken_base_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = bases.FILE.read_text()
    assert old in text
    path = tmp_path / "bases.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ArtfError, match=f"{path}: {named}") as refused:
        bases.load(path)
    assert refused.value.cure == "mend that entry"


def test_what_is_not_toml_or_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pins.toml"
    with pytest.raises(ArtfError, match=f"{path} is missing"):
        pins.load(path)
    path.write_text("a = [")
    with pytest.raises(ArtfError, match=f"{path} is not TOML"):
        pins.load(path)


def test_an_unknown_wheel_lists_the_known_ones() -> None:
    with pytest.raises(ArtfError, match="tensorflow-cpu/cp311"):
        pins.load().wheel("tensorflow-cpu", "cp312")
