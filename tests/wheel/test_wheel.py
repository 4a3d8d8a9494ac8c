"""The wheel as a package: name, metadata, contents, installation."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from artf_cli import fetch, interpreters, pins, venv
from artf_cli import wheel as wheel_module
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO
from common.builds import build

OURS = {"tensorflow/libtensorflow_ar.so", "tensorflow/python/ar_grpc.py"}
PATCHED = {
    "tensorflow/python/client/session.py",
    "tensorflow/python/eager/context.py",
    "tensorflow/python/eager/remote.py",
    "tensorflow/python/pywrap_tensorflow.py",
    "tensorflow/python/training/server_lib.py",
}


def base_of(wheel: Path) -> Path:
    manifest = pins.load()
    distribution, _, python = wheel.name.split("-")[:3]
    pin = manifest.wheel(distribution.replace("_", "-"), python)
    return fetch.wheel(pin, manifest.sources["tensorflow"].version)


def entries(wheel: Path) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.infolist()


def info_of(folder: Path) -> Path:
    return next(folder.glob("*.dist-info"))


def test_version_and_metadata(wheel: Path, unpacked: Path) -> None:
    metadata = HeaderParser().parsestr((info_of(unpacked) / "METADATA").read_text())
    assert metadata["Version"] == "2.14.1+ar.1"
    assert metadata["Name"].replace("-", "_") == wheel.name.split("-")[0]
    with zipfile.ZipFile(base_of(wheel)) as base:
        name = next(n for n in base.namelist() if n.endswith(".dist-info/METADATA"))
        before = HeaderParser().parsestr(base.read(name).decode())
    assert metadata.get_all("Requires-Dist") == before.get_all("Requires-Dist")
    assert metadata.get_payload() == before.get_payload()


def test_the_tag_is_what_auditwheel_computes(wheel: Path, unpacked: Path) -> None:
    tag = wheel.stem.split("-", 4)[4]
    assert tag == wheel_module.platform_tag(unpacked / "tensorflow/libtensorflow_ar.so")
    assert (info_of(unpacked) / "WHEEL").read_text().splitlines()[-1].endswith(f"-{tag}")
    versions = subprocess.run(
        ["objdump", "-T", str(unpacked / "tensorflow/libtensorflow_ar.so")],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    newest = max(tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", versions))
    assert wheel_module.glibc_of(tag) >= newest[:2]


# Minutes, in which it reads all of TensorFlow; the test before reads the library that we add.
@pytest.mark.slow
def test_auditwheel_agrees_on_the_whole_wheel(wheel: Path) -> None:
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "--json" in done.stderr:  # the auditwheel for Python 3.9 has no --json
        done = subprocess.run([c for c in command if c != "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tag = wheel.stem.split("-", 4)[4]
    assert tag in done.stdout


def test_record_lists_every_file_with_its_hash(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        record = next(n for n in archive.namelist() if n.endswith(".dist-info/RECORD"))
        rows = {row[0]: row for row in csv.reader(archive.read(record).decode().splitlines())}
        assert sorted(rows) == sorted(archive.namelist())
        assert len(rows) == len(archive.namelist())
        for name, (_, digest, size) in rows.items():
            if name == record:
                assert (digest, size) == ("", "")
                continue
            data = archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(data)), name


def test_all_else_is_the_base_wheel(wheel: Path) -> None:
    """As it lies there: nothing of it is compressed again."""
    after, before = (
        {i.filename: (i.CRC, i.compress_size) for i in each if ".dist-info/" not in i.filename}
        for each in (entries(wheel), entries(base_of(wheel)))
    )
    before = {name: found for name, found in before.items() if not name.endswith("/")}
    assert set(after) - set(before) == OURS
    assert set(before) - set(after) == set()
    assert {name for name, found in before.items() if after[name] != found} == PATCHED


def test_no_entry_has_the_date_of_the_build(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(base_of(wheel)) as base:
        allowed = {entry.date_time for entry in base.infolist()} | {(1980, 1, 1, 0, 0, 0)}
        assert {entry.date_time for entry in ours.infolist()} <= allowed


def test_it_says_what_it_was_made_of(unpacked: Path) -> None:
    inside = info_of(unpacked) / "ar_grpc"
    assert (inside / "pins.toml").read_bytes() == (REPO / "build/pins.toml").read_bytes()
    made = json.loads((inside / "build.json").read_text())
    on_disk = {(p.parent.name, p.name) for p in (REPO / "patches").glob("*/*.patch")}
    assert {(p["tree"], p["name"]) for p in made["patches"]} == on_disk
    for patch in made["patches"]:
        path = REPO / "patches" / patch["tree"] / patch["name"]
        assert patch["sha256"] == pins.sha256_of(path)
    library = unpacked / "tensorflow/libtensorflow_ar.so"
    assert made["library_sha256"] == pins.sha256_of(library)


def test_a_base_wheel_with_a_changed_byte_is_refused(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    base = tmp_path / base_of(wheel).name
    shutil.copyfile(base_of(wheel), base)
    with base.open("r+b") as stream:
        stream.seek(1 << 20)
        byte = stream.read(1)
        stream.seek(1 << 20)
        stream.write(bytes([byte[0] ^ 1]))
    out = tmp_path / "out"
    with pytest.raises(ArtfError) as refused:
        wheel_module.repack(base, unpacked / "tensorflow/libtensorflow_ar.so", [], out)
    pinned = next(w.sha256 for w in pins.load().wheels if w.file == base.name)
    for word in (base.name, pinned, pins.sha256_of(base)):
        assert word in str(refused.value)
    assert not out.exists()


def test_another_wheel_is_refused(unpacked: Path, tmp_path: Path) -> None:
    other = tmp_path / "tensorflow_cpu-2.15.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    other.write_bytes(b"PK")
    with pytest.raises(ArtfError, match=re.escape(other.name)):
        wheel_module.repack(other, unpacked / "tensorflow/libtensorflow_ar.so", [], tmp_path / "o")


def installed_files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.mark.slow
def test_uninstall_leaves_nothing(wheel: Path, tmp_path: Path) -> None:
    interpreter = interpreters.need(wheel.name.split("-")[2])
    subprocess.run([str(interpreter), "-m", "venv", str(tmp_path / "v")], check=True)
    python = tmp_path / "v/bin/python"

    def pip(*arguments: str) -> None:
        command = [str(python), "-m", "pip", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    pip("--version")  # pip compiles itself on its first run
    pip("uninstall", "-y", "no-such-package")
    before = installed_files(tmp_path / "v")
    pip("install", "--no-deps", "--no-compile", str(wheel))
    assert (tmp_path / "v/lib").exists()
    added = installed_files(tmp_path / "v") - before
    assert any(name.endswith("libtensorflow_ar.so") for name in added)
    pip("uninstall", "-y", wheel.name.split("-")[0])
    left = {n for n in installed_files(tmp_path / "v") - before if "__pycache__" not in n}
    assert left == set()


def test_an_environment_has_all_its_bytecode(wheel: Path) -> None:
    """Nothing writes it later, and each process would compile what it imports."""
    python = venv.make(wheel)
    done = subprocess.run(
        [str(python), "-v", "-c", "import tensorflow"],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    read = re.findall(r"^# code object from '?(.*?)'?$", done.stderr, re.MULTILINE)
    own = [name for name in read if name.startswith(str(python.parents[1]))]
    assert len(own) > 1000
    assert [name for name in own if not name.endswith(".pyc")] == []


SMOKE = """
import numpy as np, tensorflow as tf
server = tf.distribute.Server({"a": ["127.0.0.1:0"]}, protocol="grpc+ar")
target = server.target.replace("grpc://", "grpc+ar://")
config = tf.compat.v1.ConfigProto()
config.rpc_options.use_rpc_for_inprocess_master = True
with tf.Graph().as_default(), tf.compat.v1.Session(target, config=config) as session:
    x = tf.compat.v1.placeholder(tf.float32, [1000])
    print(float(session.run(tf.reduce_sum(x), {x: np.arange(1000)})))
"""


# The newest is mostly the build's own Python, so first: for each other one the base wheel is
# unpacked again. On the build's own all that runs servers shows more than this, and of the oldest
# each run looks at what the library wants (test_library.py).
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("python", ["cp311", "cp310", "cp39"])
@pytest.mark.slow
def test_it_runs_on_every_python_here(python: str, wheel: Path) -> None:
    if python not in interpreters.here():
        pytest.skip(f"no interpreter for {python} on this machine; checked statically instead")
    built = Path(build("--python", python)["wheel"])
    assert built.name.startswith(f"tensorflow_cpu-2.14.1+ar.1-{python}-{python}-manylinux_2_")
    said = subprocess.run(
        [str(venv.make(built)), "-c", SMOKE], capture_output=True, text=True, timeout=300
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.split() == ["499500.0"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_gpu_base_wheel_by_option() -> None:
    """Slow: another 0.5 GB base wheel, whose headers make everything compile again."""
    built = Path(build("--base", "tensorflow")["wheel"])
    assert built.name.startswith("tensorflow-2.14.1+ar.1-")
    said = subprocess.run([str(venv.make(built)), "-c", SMOKE], capture_output=True, text=True)
    assert said.stdout.split() == ["499500.0"], said.stderr
