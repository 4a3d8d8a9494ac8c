"""What docs/security.md says of the libraries that the base wheel brings."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from artf_cli import venv
from artf_cli.paths import REPO
from common.elf import symbols

_PROGRAM = Path(__file__).parent / "programs/message_sets.py"
_PAGE = REPO / "docs/security.md"


@pytest.fixture(scope="module")
def headers(wheel: Path) -> dict[str, str]:
    """Name of a library → a header of the wheel's that has its version."""
    names = {
        "zlib": "external/zlib/zlib.h",
        "protobuf": "google/protobuf/stubs/common.h",
        "abseil": "absl/base/config.h",
    }
    with zipfile.ZipFile(wheel) as archive:
        return {
            library: archive.read(f"tensorflow/include/{name}").decode()
            for library, name in names.items()
        }


def test_versions_are_those_that_the_page_names(headers: dict[str, str]) -> None:
    def constant(library: str, name: str) -> str:
        found = re.search(rf'^#define {name} "?([\d.]+)"?$', headers[library], re.M)
        assert found, f"{library} has no {name}"
        return found[1]

    zlib = constant("zlib", "ZLIB_VERSION")
    packed = int(constant("protobuf", "GOOGLE_PROTOBUF_VERSION"))
    # C++ counts majors from 3, and the project's releases minors alone from 21 on.
    protobuf = f"{packed // 1_000_000}.{packed // 1000 % 1000}.{packed % 1000}"
    abseil = ".".join(
        constant("abseil", f"ABSL_LTS_RELEASE_{part}") for part in ("VERSION", "PATCH_LEVEL")
    )
    assert f"zlib {zlib}, protobuf {protobuf}, abseil {abseil}." in _PAGE.read_text()
    # The versions that two of the rows say are mended.
    assert tuple(map(int, zlib.split("."))) >= (1, 2, 13)
    assert tuple(map(int, protobuf.split("."))) >= (3, 21, 6)


def test_of_zlib_the_library_calls_streams_alone(unpacked: Path, headers: dict[str, str]) -> None:
    """No header of gzip's is asked for (CVE-2022-37434), and no checksum combined (zlib 1.3.2)."""
    offered = set(re.findall(r"\bZEXPORTV? (\w+) OF\(", headers["zlib"]))
    # zlib.h makes macros of these, which hand over its version.
    offered |= {"deflateInit2_", "inflateInit2_"}
    assert {"inflateGetHeader", "crc32_combine"} <= offered
    wanted = symbols(unpacked / "tensorflow/libtensorflow_ar.so", defined=False)
    of_zlib = {f"{way}{call}" for way in ("deflate", "inflate") for call in ("", "End", "Init2_")}
    assert offered & set(wanted) == of_zlib


def test_minizip_is_no_part_of_the_wheel(unpacked: Path) -> None:
    """CVE-2023-45853."""
    found = [
        name
        for path in sorted((unpacked / "tensorflow").glob("libtensorflow_*"))
        for name in symbols(path, defined=True)
        if name.startswith(("zipOpen", "unzOpen"))
    ]
    assert found == []
    framework = symbols(unpacked / "tensorflow/libtensorflow_framework.so.2", defined=True)
    assert "inflate" in framework, "this library has zlib, and would show MiniZip"


def test_no_message_is_a_message_set(wheel: Path) -> None:
    """CVE-2022-1941, of a parser that only a message of that option calls."""
    command = [str(venv.make(wheel)), str(_PROGRAM), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["sets"] == []
    assert found["messages"] > 500
