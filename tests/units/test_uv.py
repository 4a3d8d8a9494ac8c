"""uv as artf gets and asks it: by pip's settings, from indexes, folders and mirrors that are here.

The indexes are real servers here, and so is uv where one of its own doings is looked at.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from artf_cli import package_index, uv
from artf_cli.package_index import FetchError
from artf_cli.paths import REPO
from common import managed_python
from common.index import LOGIN, Index, packed, without_settings
from common.preload import preloadable

FILE = "uv-9.8.7-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as server:
        yield server
        server.shutdown()


@pytest.fixture(scope="session")
def real_uv() -> Path:
    """The pinned one, fetched as this machine is set up."""
    return uv.binary()


@pytest.fixture(autouse=True)
def _alone(real_uv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch, tmp_path)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A uv that is pinned, and says its name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("uv-9.8.7.data/scripts/uv", "#!/bin/sh\necho uv 9.8.7\n")
    pin = tmp_path / "uv.txt"
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    pin.write_text(f"# A uv.\nuv==9.8.7 \\\n    --hash=sha256:{digest}\n")
    monkeypatch.setattr(uv, "PIN", pin)
    return content.getvalue()


def configured(tmp_path: Path, text: str) -> None:
    """pip's own file of this user."""
    path = tmp_path / "XDG_CONFIG_HOME/pip/pip.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def says(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()


def test_it_is_fetched_once(
    index: Index, wheel: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index.holds["/simple/uv/"] = f'<a href="../../files/{FILE}#sha256=0">x</a>'.encode()
    index.holds[f"/files/{FILE}"] = wheel
    index.fails = 2
    configured(tmp_path, f"[global]\nindex-url = {index.address}/simple/\n")
    program = uv.binary()
    assert says(program) == "uv 9.8.7"
    assert program.is_relative_to(tmp_path / "cache")
    assert uv.binary() == program
    assert index.paths() == ["/simple/uv/"] * 3 + [f"/files/{FILE}"]
    assert capsys.readouterr().err == "artf: fetching uv 9.8.7 (once)\n"


def test_another_file_is_refused(index: Index, wheel: bytes, tmp_path: Path) -> None:
    index.has("uv", FILE, wheel[:-1])
    configured(tmp_path, f"[global]\nindex_url = {index.address}/simple\n")
    with pytest.raises(FetchError) as raised:
        uv.binary()
    assert raised.value.what == (
        f"could not fetch uv: {index.address}/simple/uv/ has another {FILE}"
    )
    assert "or name a uv in ARTF_UV" in raised.value.cure
    assert not list(tmp_path.glob("cache/uv-*/uv"))


def test_a_login_goes_to_its_own_host_alone(
    index: Index, wheel: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Index() as other:
        index.wants_login = True
        index.holds["/simple/uv/"] = f'<a href="{index.address}/files/{FILE}">x</a>'.encode()
        index.moved[f"/files/{FILE}"] = f"{other.address}/{FILE}"
        other.holds[f"/{FILE}"] = wheel
        place = index.address.replace("://", "://somebody:wrong@")
        configured(tmp_path, f"[global]\nindex-url = {place}/simple\n")
        with pytest.raises(FetchError, match="HTTP Error 401") as raised:
            uv.binary()
        assert "wrong@" not in str(raised.value)
        monkeypatch.setenv("PIP_INDEX_URL", place.replace("wrong", "p%40ss%20word") + "/simple")
        assert says(uv.binary()) == "uv 9.8.7"
        assert [login for _, login in other.asked] == [""]
        other.shutdown()


def test_netrc_has_logins_too(index: Index, wheel: bytes, tmp_path: Path) -> None:
    index.wants_login = True
    index.has("uv", FILE, wheel)
    configured(tmp_path, f"[global]\nindex-url = {index.address}/simple\n")
    rc = tmp_path / "home/.netrc"
    rc.parent.mkdir()
    rc.write_text(f'machine 127.0.0.1 login {LOGIN[0]} password "{LOGIN[1]}"\n')
    rc.chmod(0o600)
    assert says(uv.binary()) == "uv 9.8.7"


def test_a_folder_of_files_will_do(
    wheel: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any index, as on a machine without a network."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError, match="could not fetch uv: there is no place to ask"):
        uv.binary()
    monkeypatch.setenv("PIP_FIND_LINKS", f"/no/such/folder {folder.as_uri()}")
    with pytest.raises(FetchError, match=f"a%20folder has no {FILE}"):
        uv.binary()
    (folder / FILE).write_bytes(wheel)
    assert says(uv.binary()) == "uv 9.8.7"


def test_a_proxy_is_asked(index: Index, wheel: bytes, tmp_path: Path) -> None:
    """The index itself cannot be reached."""
    index.has("uv", FILE, wheel)
    configured(
        tmp_path,
        f"[global]\nindex-url = http://index.invalid/simple\n[install]\nproxy = {index.address}\n",
    )
    assert says(uv.binary()) == "uv 9.8.7"
    assert index.paths() == [
        "http://index.invalid/simple/uv/",
        f"http://index.invalid/files/{FILE}",
    ]
    assert uv.environ()["https_proxy"] == index.address


def test_a_private_authority_is_known_by_pips_setting(
    index: Index, wheel: bytes, tmp_path: Path
) -> None:
    cert = index.has_a_certificate(tmp_path)
    index.has("uv", FILE, wheel)
    own = f"[global]\nindex-url = {index.address}/simple\n"
    configured(tmp_path, own)
    with pytest.raises(FetchError, match=r"CERTIFICATE_VERIFY_FAILED.*ca-certificates"):
        uv.binary()
    with pytest.MonkeyPatch.context() as trusting:
        trusting.setenv("PIP_TRUSTED_HOST", "127.0.0.1")
        trusting.setenv("ARTF_CACHE", str(tmp_path / "other"))
        assert says(uv.binary()) == "uv 9.8.7"
    configured(tmp_path, f"{own}cert = {cert}\n")
    assert says(uv.binary()) == "uv 9.8.7"
    assert uv.environ()["SSL_CERT_FILE"] == str(cert)


def test_the_later_setting_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip's guide orders its files."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/pip.conf").write_text(
        "[global]\nindex-url = http://a\ntimeout = 7\nextra-index-url = http://x\n  http://y\n"
    )
    configured(tmp_path, "[global]\nindex-url = http://b\n[install]\nindex-url = http://c\n")
    both = "http://x http://y"
    found = {"index-url": "http://c", "timeout": "7", "extra-index-url": both}
    assert package_index.settings() == found
    own = tmp_path / "own.conf"
    own.write_text("[global]\ntimeout = 8\n")
    # With a file of one's own the user's is not read.
    monkeypatch.setenv("PIP_CONFIG_FILE", str(own))
    assert package_index.settings() == {**found, "index-url": "http://a", "timeout": "8"}
    monkeypatch.setenv("PIP_TIMEOUT", "9")
    assert package_index.settings()["timeout"] == "9"
    env = uv.environ()
    assert (env["UV_DEFAULT_INDEX"], env["UV_INDEX"]) == ("http://a", both)
    assert env["UV_HTTP_TIMEOUT"] == "9"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://mine")
    assert uv.environ()["UV_DEFAULT_INDEX"] == "http://mine"
    own.write_text("index-url = http://no-section\n")
    with pytest.raises(FetchError, match=r"own\.conf.*mend that file"):
        package_index.settings()


def test_settings_as_pip_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command is told goes before what all are told, in whichever file; `~` is a home."""
    old = tmp_path / "home/.pip/pip.conf"
    old.parent.mkdir(parents=True)
    old.write_text("[install]\nindex-url = http://a\n")
    configured(
        tmp_path,
        "[global]\nindex-url = http://b\nfind-links = ~/wheels\nproxy =\ndefault-timeout = 7.5\n",
    )
    wheels = str(tmp_path / "home/wheels")
    assert package_index.settings() == {
        "index-url": "http://a",
        "find-links": wheels,
        "timeout": "7",
    }
    assert "UV_FIND_LINKS" not in uv.environ()
    Path(wheels).mkdir()
    assert uv.environ()["UV_FIND_LINKS"] == wheels
    # What the environment says that artf was started in, whose Python is not this one any more.
    started = tmp_path / "venv/pip.conf"
    started.parent.mkdir()
    started.write_text("[install]\nindex-url = http://c\n")
    monkeypatch.setenv(package_index.PREFIX, str(started.parent))
    assert package_index.settings()["index-url"] == "http://c"
    monkeypatch.setenv("PIP_TIMEOUT", "soon")
    with pytest.raises(FetchError, match="pip's timeout is soon, which is no number"):
        package_index.settings()
    monkeypatch.delenv("PIP_TIMEOUT")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert package_index.settings() == {}


def test_other_variables_of_uv_are_not_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each of these it would install elsewhere, or nothing, or find no Python."""
    others = ("UV_TARGET", "UV_EXCLUDE", "UV_MANAGED_PYTHON", "UV_CONFIG_FILE", "UV_LINK_MODE")
    for name in others:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("UV_INDEX_MINE_PASSWORD", "secret")
    monkeypatch.setenv("UV_OFFLINE", "1")
    env = uv.environ()
    assert not set(others) & set(env)
    assert (env["UV_INDEX_MINE_PASSWORD"], env["UV_OFFLINE"]) == ("secret", "1")
    assert env["UV_NO_CONFIG"] == "1"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("index-url = http://127.0.0.1:port/simple", "nonnumeric port"),
        ("index-url = http://[bad/simple", "Invalid IPv6 URL"),
        ("cert = /no/such.pem", r"cannot read the certificates in /no/such\.pem"),
        ("client-cert = /no/such.pem", r"cannot read the certificates in /no/such\.pem"),
    ],
)
def test_what_is_wrong_is_named(wheel: bytes, tmp_path: Path, settings: str, said: str) -> None:
    configured(tmp_path, f"[global]\n{settings}\n")
    with pytest.raises(FetchError, match=said):
        uv.binary()


def test_an_answer_that_breaks_off_is_asked_for_again(
    index: Index, wheel: bytes, tmp_path: Path
) -> None:
    index.has("uv", FILE, wheel)
    index.breaks_off = 1
    configured(tmp_path, f"[global]\nindex-url = {index.address}/simple\n")
    assert says(uv.binary()) == "uv 9.8.7"
    assert index.paths() == ["/simple/uv/"] * 2 + [f"/files/{FILE}"]


def test_links_count_from_where_the_page_was_in_the_end(
    index: Index, wheel: bytes, tmp_path: Path
) -> None:
    index.moved["/simple/uv/"] = "/root/pypi/+simple/uv/"
    index.holds["/root/pypi/+simple/uv/"] = f'<a href="../../+f/{FILE}">x</a>'.encode()
    index.holds[f"/root/pypi/+f/{FILE}"] = wheel
    configured(tmp_path, f"[global]\nindex-url = {index.address}/simple\n")
    assert says(uv.binary()) == "uv 9.8.7"


def test_a_mirror_of_files(wheel: bytes, tmp_path: Path) -> None:
    pages = tmp_path / "mirror/simple/uv"
    pages.mkdir(parents=True)
    (pages / "index.html").write_text(f'<a href="../../{FILE}">x</a>')
    (tmp_path / "mirror" / FILE).write_bytes(wheel)
    configured(tmp_path, f"[global]\nindex-url = {(tmp_path / 'mirror/simple').as_uri()}\n")
    assert says(uv.binary()) == "uv 9.8.7"


def test_a_place_where_nothing_runs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "uv"
    mine.write_text("#!/no/such/interpreter\n")
    mine.chmod(0o755)
    monkeypatch.setenv("ARTF_UV", str(mine))
    with pytest.raises(FetchError, match=r"cannot run .*/uv: .*set ARTF_CACHE to a folder whose"):
        uv.run("venv", "x")
    mine.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(uv, "_SEARCH_S", 0.1)
    with pytest.raises(FetchError, match=r"no answer within 0\.1 s to: uv python find"):
        uv.find_python("3.11")


def test_who_waits_for_another_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a/lock"
    said: list[str] = []
    with uv.lock(path, "does it"):
        pass
    assert said == []
    holder = subprocess.Popen(
        ["flock", str(path), "sh", "-c", "echo held; read word"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdin is not None
    holder.stdout.readline()
    gate = holder.stdin

    def say(text: str) -> None:
        said.append(text)
        gate.close()

    monkeypatch.setattr(uv, "say", say)
    with uv.lock(path, "does it"):
        assert holder.wait() == 1  # what it read was the end
    assert said == ["another artf does it; waiting for it"]
    (tmp_path / "file").touch()
    words = r"cannot write the cache .*file: .*; set ARTF_CACHE"
    with pytest.raises(FetchError, match=words), uv.lock(tmp_path / "file/lock", "does it"):
        pass


def test_a_file_system_without_flock_is_said(tmp_path: Path) -> None:
    """As Lustre is that was mounted without; the whole command, with a C library that says so."""
    source = tmp_path / "no_flock.cc"
    source.write_text(
        '#include <cerrno>\nextern "C" int flock(int, int) {\n  errno = ENOSYS;\n  return -1;\n}\n'
    )
    cache = tmp_path / "cache"
    env = {**os.environ, "LD_PRELOAD": str(preloadable(source, tmp_path))}
    env["ARTF_CACHE"] = str(cache)
    done = subprocess.run(
        [REPO / "scripts/artf", "--help"], env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    said = [line for line in done.stderr.splitlines() if "flock" in line]
    assert said == done.stderr.splitlines()[-1:], done.stderr
    assert f": the file system of the cache {cache}/environments locks no file (flock: " in said[0]
    assert said[0].endswith(
        "; set ARTF_CACHE to a folder on one that does, as a disk of this node's own"
    )


def test_one_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "uv"
    monkeypatch.setenv("ARTF_UV", str(mine))
    with pytest.raises(FetchError, match=r"ARTF_UV=.*/uv is no program; name uv's path"):
        uv.binary()
    mine.write_text("#!/bin/sh\necho error: no >&2\necho '  cause: disk full' >&2\nexit 2\n")
    mine.chmod(0o755)
    with pytest.raises(FetchError, match="uv venv x failed: no: disk full; check the network"):
        uv.run("venv", "x")


# Of what follows, the real one.


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_uv: Path) -> Path:
    monkeypatch.setenv("ARTF_UV", str(real_uv))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "no pyenv"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path


def test_an_environment_comes_from_a_private_index(real: Path, index: Index) -> None:
    """With a login, by pip's settings; a second one by what is left of it, without the index."""
    content = packed("tiny")
    index.wants_login = True
    index.holds["/simple/tiny/"] = b'<a href="../../tiny-1-py3-none-any.whl">x</a>'
    index.holds["/tiny-1-py3-none-any.whl"] = content
    place = index.with_login
    configured(real, f"[global]\nindex-url = {place}/simple\n")
    lock = real / "lock.txt"
    digest = hashlib.sha256(content).hexdigest()
    lock.write_text(f"tiny==1 --hash=sha256:{'0' * 64}\n")
    python = Path(sys.executable)
    with pytest.raises(FetchError, match=r"uv pip install failed: .*(?i:hash)"):
        uv.make(python, real / "one", lock)
    assert not (real / "one").exists()
    lock.write_text(f"tiny==1 --hash=sha256:{digest}\n")
    uv.make(python, real / "one", lock)
    ask = "import sys, tiny; print(tiny.SAYS, tiny.__cached__, sys.version_info[:2])"
    cached = next((real / "one").rglob("tiny.*.pyc"))
    said = subprocess.run([real / "one/bin/python", "-c", ask], capture_output=True, text=True)
    assert said.stdout.strip() == f"tiny {cached} {sys.version_info[:2]}"
    index.holds.clear()
    with pytest.MonkeyPatch.context() as offline:
        offline.setenv("UV_OFFLINE", "1")
        uv.make(python, real / "two", lock)
    assert list((real / "two").rglob("tiny.py"))
    # A wheel that was built here is in no cache afterwards.
    own = real / "other-1-py3-none-any.whl"
    own.write_bytes(packed("other"))
    with pytest.MonkeyPatch.context() as offline:
        offline.setenv("UV_OFFLINE", "1")
        uv.make(python, real / "two", lock, own)
    said = subprocess.run(
        [real / "two/bin/python", "-B", "-c", "import other; print(other.SAYS, other.__cached__)"],
        capture_output=True,
        text=True,
    )
    assert said.stdout.split() == ["other", str(next((real / "two").rglob("other.*.pyc")))]
    assert not [path for path in real.rglob("other.py") if not path.is_relative_to(real / "two")]


def test_a_python_that_is_not_here_is_fetched(
    real: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a mirror, which stands for upstream's: this Python, under another number."""
    version = "{}.{}".format(*sys.version_info[:2])
    packed = managed_python.packed()
    index.holds["/python.tar.gz"] = packed
    listed = real / "pythons.json"
    listed.write_text(managed_python.listed(packed, f"{index.address}/python.tar.gz"))
    monkeypatch.setenv("PATH", str(real / "empty"))
    monkeypatch.setattr(sys, "base_prefix", str(real / "empty"))
    assert uv.find_python(version) is None
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    with pytest.raises(FetchError, match=r"uv python install failed: .*[Dd]ownloads"):
        uv.need_python(version)
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "manual")
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(listed))
    python = uv.need_python(version)
    assert python.is_relative_to(real / "cache/pythons")
    said = subprocess.run([python, "-c", "print(6 * 7)"], capture_output=True, text=True)
    assert said.stdout == "42\n", said.stderr
    assert uv.need_python(version) == python
    assert index.paths() == ["/python.tar.gz"]
