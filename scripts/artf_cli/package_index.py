"""One pinned file from the package index that pip is set up for, where there may be no pip.

Standard library only, and Python 3.6 can run it: what it fetches makes all the rest.
"""

import base64
import configparser
import contextlib
import hashlib
import html
import netrc
import os
import re
import ssl
import sys
from http.client import HTTPException
from pathlib import Path
from urllib import parse, request

#: pip's settings that say from where and how, and uv's variables for the same (both's manuals).
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "keyring-provider": "UV_KEYRING_PROVIDER",
    "timeout": "UV_HTTP_TIMEOUT",
    "client-cert": "SSL_CLIENT_CERT",
}
#: Those that are addresses or folders.
PLACES = ("index-url", "extra-index-url", "find-links")
NO_INDEX, CERT, PROXY = "no-index", "cert", "proxy"
_NAMES = (*VARIABLES, NO_INDEX, CERT, PROXY)
#: The folder of the environment that artf was started in, which may have a pip.conf of its own.
PREFIX = "ARTF_PIP_PREFIX"
_GLOBAL = Path("/etc/pip.conf")
_INDEX = "https://pypi.org/simple"
_TRIES = 3
_SECONDS = 60.0


class FetchError(Exception):
    """What failed, and the cure."""

    def __init__(self, what: str, cure: str) -> None:
        super().__init__(f"{what}; {cure}")
        self.what = what
        self.cure = cure


def home() -> Path:
    """This user's folder; one that is not there where the machine knows none."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111 (pathlib's raises where there is none)


def _files() -> "list[Path]":
    """pip's files, those first that the later ones override (pip's guide, Configuration)."""
    own = os.environ.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return []
    folders = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    files = [Path(each) / "pip" / "pip.conf" for each in folders.split(os.pathsep) if each]
    files.append(_GLOBAL)
    if not (own and Path(own).exists()):
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home() / ".config")
        files += [home() / ".pip" / "pip.conf", config / "pip" / "pip.conf"]
    files.append(Path(os.environ.get(PREFIX) or sys.prefix) / "pip.conf")
    return [*files, Path(own)] if own else files


def _in_files() -> "dict[str, str]":
    sections = {"global": {}, "install": {}}  # type: dict[str, dict[str, str]]
    for path in _files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(str(path), encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError) as wrong:
            said = " ".join(str(wrong).split())
            raise FetchError(
                f"cannot read pip's settings {path}: {said}", "mend that file"
            ) from None
        for name, found in sections.items():
            if parser.has_section(name):
                found.update({key.replace("_", "-"): value for key, value in parser.items(name)})
    # What a command is told goes before what all are told, whichever file says it.
    return {**sections["global"], **sections["install"]}


def settings() -> "dict[str, str]":
    """pip's settings of where and how to fetch: those that are set. Raises FetchError."""
    found = _in_files()
    for name in (*_NAMES, "default-timeout"):
        found[name] = os.environ.get(f"PIP_{name.upper().replace('-', '_')}") or found.get(name, "")
    found["timeout"] = found["timeout"] or found["default-timeout"]
    requests = (os.environ.get("REQUESTS_CA_BUNDLE"), os.environ.get("CURL_CA_BUNDLE"))
    found[CERT] = found[CERT] or next((path for path in requests if path), "")
    result = {}
    for name in _NAMES:
        words = [os.path.expanduser(word) for word in found[name].split()]  # noqa: PTH111
        if words:
            result[name] = " ".join(words)
    if "timeout" in result:
        try:
            # pip takes 7.5, which uv does not.
            result["timeout"] = str(int(float(result["timeout"])) or 1)
        except ValueError:
            raise FetchError(
                f"pip's timeout is {result['timeout']}, which is no number", "mend pip's settings"
            ) from None
    return result


def variables(by: "dict[str, str]") -> "dict[str, str]":
    """Certificates and proxy of `settings`, as OpenSSL's and curl's variables say it to others."""
    found = {}
    if CERT in by:
        found["SSL_CERT_DIR" if Path(by[CERT]).is_dir() else "SSL_CERT_FILE"] = by[CERT]
    if PROXY in by:
        for variable in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"):
            found[variable] = found[variable.lower()] = by[PROXY]
    return found


def is_set(value: str) -> bool:
    """Whether pip and uv take a value for yes."""
    return value.lower() in ("1", "true", "t", "yes", "y", "on")


def can_be_asked(place: str) -> bool:
    """False for a folder that is not there, which pip passes over and uv refuses."""
    try:
        parts = parse.urlsplit(place)
    except ValueError:
        # Who fetches from it says what is wrong.
        return True
    return parts.scheme not in ("", "file") or Path(parse.unquote(parts.path)).exists()


def certificates(by: "dict[str, str]") -> ssl.SSLContext:
    """What a server must show, and what one of us shows it."""
    cert = by.get(CERT)
    folder = cert if cert and Path(cert).is_dir() else None
    try:
        context = ssl.create_default_context(cafile=None if folder else cert, capath=folder)
        if "client-cert" in by:
            cert = by["client-cert"]
            context.load_cert_chain(cert)
    except OSError as wrong:
        raise FetchError(
            f"cannot read the certificates in {cert}: {wrong}",
            "mend pip's settings cert and client-cert, or REQUESTS_CA_BUNDLE",
        ) from None
    return context


def _proxies(by: "dict[str, str]") -> "dict[str, str]":
    """As urllib has them, which does not know ALL_PROXY."""
    found = request.getproxies()
    every = by.get(PROXY) or found.get("all")
    for scheme in ("http", "https"):
        if every and (PROXY in by or scheme not in found):
            found[scheme] = every
    return found


class _Places:
    """Where files are looked for, and how they are fetched: by pip's and uv's settings."""

    def __init__(self, by: "dict[str, str]") -> None:
        self._settings = by
        self._logins = {}  # type: dict[str, tuple[str, str]]
        self._context = certificates(by)
        self._proxies = _proxies(by)
        self._seconds = float(by.get("timeout", _SECONDS))

    def of(self, package: str) -> "list[str]":
        """Folders and pages that may name a package's files, folders of this machine first."""
        environ, by = os.environ, self._settings
        links = by.get("find-links", "").split()
        links += environ.get("UV_FIND_LINKS", "").replace(",", " ").split()
        links = [link for link in links if can_be_asked(link)]
        if any(is_set(word) for word in (by.get(NO_INDEX, ""), environ.get("UV_OFFLINE", ""))):
            return links
        default = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL")
        indexes = [default or by.get("index-url", _INDEX)]
        indexes += by.get("extra-index-url", "").split()
        indexes += (environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or "").split()
        # uv may be told NAME=URL.
        indexes = [re.sub(r"^[\w-]+=", "", index) for index in indexes]
        return links + [f"{each.rstrip('/')}/{package}/" for each in indexes if can_be_asked(each)]

    def _login(self, host: str, parts: parse.SplitResult) -> "tuple[str, str] | None":
        """The address's own, else the one that another address of this host has, else netrc's."""
        if parts.username is not None:
            self._logins[host] = parse.unquote(parts.username), parse.unquote(parts.password or "")
        if host not in self._logins:
            with contextlib.suppress(OSError, netrc.NetrcParseError):
                known = netrc.netrc().authenticators(parts.hostname or "")
                if known is not None:
                    return known[0], known[2] or ""
        return self._logins.get(host)

    def get(self, place: str) -> "tuple[str, bytes]":
        """What an address or a path holds, and where it was in the end.

        Raises OSError, ValueError or HTTPException.
        """
        parts = parse.urlsplit(place)
        if parts.scheme == "":
            return place, Path(place).read_bytes()
        host = parts.netloc.rpartition("@")[2]
        asked = request.Request(parse.urlunsplit(parts._replace(netloc=host, fragment="")))
        login = self._login(host, parts)
        if login is not None:
            word = base64.b64encode(":".join(login).encode()).decode()
            # Never sent on to another host that this one names.
            asked.add_unredirected_header("Authorization", f"Basic {word}")
        context = self._context
        if {host, parts.hostname} & set(self._settings.get("trusted-host", "").split()):
            # The file's hash is known, so that nobody can give another.
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        opener = request.build_opener(
            request.HTTPSHandler(context=context), request.ProxyHandler(self._proxies)
        )
        with opener.open(asked, timeout=self._seconds) as answer:
            return str(answer.geturl()), bytes(answer.read())

    def find(self, place: str, file: str) -> "str | None":
        """Where `place` has the file: a folder, or a page of links (PEP 503). Raises as `get`."""
        parts = parse.urlsplit(place)
        folder = Path(parse.unquote(parts.path))
        if parts.scheme in ("", "file") and folder.is_dir():
            if (folder / file).exists():
                return str(folder / file)
            if not (folder / "index.html").exists():
                return None
            place = (folder.absolute() / "index.html").as_uri()
        where, page = self.get(place)
        for address in re.findall(r"""href\s*=\s*["']([^"']+)""", page.decode(errors="replace")):
            whole = str(parse.urljoin(where, html.unescape(address)))
            if parse.unquote(parse.urlsplit(whole).path).endswith(f"/{file}"):
                return whole
        return None


def fetch(package: str, file: str, sha256: str) -> bytes:
    """The bytes of a package's file, wherever it is found. Raises FetchError."""
    places = _Places(settings())
    told = []
    for place in places.of(package):
        # Without a login.
        shown = re.sub(r"//[^/]*@", "//", place)
        for left in reversed(range(_TRIES)):
            try:
                address = places.find(place, file)
                content = None if address is None else places.get(address)[1]
            except (OSError, ValueError, HTTPException) as wrong:
                if left == 0:
                    told.append(f"{shown}: {wrong}")
                continue
            if content is not None and hashlib.sha256(content).hexdigest() == sha256:
                return content
            other = "has no" if content is None else "has another"
            told.append(f"{shown} {other} {file}")
            break
    raise FetchError(
        f"could not fetch {package}: {', '.join(told) or 'there is no place to ask'}",
        "check the network, pip's settings and this machine's certificates (ca-certificates)",
    )
