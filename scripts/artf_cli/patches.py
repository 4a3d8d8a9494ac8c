"""The patch series: lint both ways, list, drift check, and the round trip through git.

A patch is a commit message, a line `Class: …`, and a diff with one line of context. What
`export` writes is canonical: `check` applies the series to the pristine tree, exports it again
and wants the same bytes, so a hand-edited hunk or a stale offset cannot stay unseen.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from artf_cli import fetch, pins, sources
from artf_cli.errors import ArtfError
from artf_cli.paths import PATCHES, PINS, REPO

# The layers under third_party/ar_grpc that are compiled inside each tree.
OVERLAY_FOLDERS = {
    "grpc": ("base", "fabric", "grpc", "memory", "mpi", "protocol", "verbs"),
    "tensorflow": ("tensorflow",),
}
CLASSES = ("mission", "upstream bug", "security", "build")
# They mend what upstream, or all who use it, should know of.
_REFERRED = ("upstream bug", "security")
_CONTEXT_LINES = 1
_NAME = re.compile(r"^\d{4}-[a-z0-9-]+\.patch$")
# Of the repositories that `edit` makes, so that git's own commands work there, too.
_SETTINGS = {
    "user.name": "artf",
    "user.email": "artf@localhost",
    "commit.gpgsign": "false",
    "core.autocrlf": "false",
}


@dataclass(frozen=True)
class Patch:
    """One patch file: its message split into subject, class and reference; the files it touches."""

    tree: str
    name: str
    subject: str
    reason: str
    reference: str
    files: tuple[str, ...]


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        first = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise ArtfError(f"git {arguments[0]} failed in {root}: {first}", "mend what it names")
    return done.stdout


def _field(message: str, name: str) -> str:
    found = re.search(rf"^{name}: (.+)$", message, re.MULTILINE)
    return found.group(1).strip() if found else ""


def split(text: str) -> tuple[str, str]:
    """A patch file's message and diff."""
    message, separator, diff = text.partition("\ndiff --git ")
    return message.strip() + "\n", f"diff --git {diff}" if separator else ""


def parse(path: Path) -> Patch:
    """Reads a patch file; an ArtfError says which rule it breaks."""
    message, diff = split(path.read_text())
    lines = message.splitlines()
    reason, reference = _field(message, "Class"), _field(message, "Reference")
    faults = (
        (not _NAME.match(path.name), "its name is not NNNN-words.patch"),
        (not diff, "it has no diff"),
        (
            not lines[0] or len(lines[0]) > 72,
            "its subject is not one line of at most 72 characters",
        ),
        (len(lines) < 4 or lines[1] != "", "it does not say why after a blank line"),
        (reason not in CLASSES, f"its Class is {reason!r}, not one of {', '.join(CLASSES)}"),
        (reason in _REFERRED and not reference, f"Class {reason} needs a Reference: line"),
    )
    for broken, fault in faults:
        if broken:
            raise ArtfError(f"{path}: {fault}", "see CONTRIBUTING.md, Patches")
    files = tuple(re.findall(r"^diff --git a/(\S+) b/", diff, re.MULTILINE))
    return Patch(path.parent.name, path.name, lines[0], reason, reference, files)


def trees() -> list[str]:
    """The trees that have a series."""
    return sorted(path.parent.name for path in PATCHES.glob("*/series"))


def list_patches() -> list[Patch]:
    """Every patch of every series, in order."""
    return [parse(PATCHES / tree / name) for tree in trees() for name in sources.series(tree)]


def overlay_files(tree: str) -> list[str]:
    """The C++ files that are laid over `tree`, as paths from the repository's root."""
    folders = (REPO / "third_party/ar_grpc" / name for name in OVERLAY_FOLDERS[tree])
    found = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".cc", ".h")
    ]
    return sorted(path.relative_to(REPO).as_posix() for path in found)


def lint() -> None:
    """No orphan, none missing, none twice, each well formed; series, manifest and files agree."""
    manifest = pins.load()
    if set(trees()) != set(manifest.patches):
        raise ArtfError(
            f"patches/ has series for {trees()}, {PINS.name} for {sorted(manifest.patches)}",
            "run scripts/artf patches export",
        )
    for tree in OVERLAY_FOLDERS:
        unlike = set(overlay_files(tree)) ^ set(manifest.overlays[tree])
        for name in sorted(unlike):
            raise ArtfError(
                f"overlay {name} is not in {PINS.name} or not in the repository",
                "run scripts/artf patches export",
            )
    for tree in trees():
        listed = sources.series(tree)
        present = {path.name for path in (PATCHES / tree).iterdir()} - {"series"}
        for name in sorted(present - set(listed)):
            raise ArtfError(
                f"{PATCHES / tree / name} is an orphan", "add it to series or delete it"
            )
        for name in listed:
            if name not in present:
                raise ArtfError(f"{PATCHES / tree / name} is missing", "restore it or mend series")
            if listed.count(name) > 1:
                raise ArtfError(f"{name} stands twice in patches/{tree}/series", "delete one line")
        if list(manifest.patches[tree]) != listed:
            raise ArtfError(
                f"{PINS.name} and patches/{tree}/series list different patches",
                "run scripts/artf patches export",
            )
    list_patches()
    pins.verify_local(manifest)


def _commit_pristine(tree: str, root: Path, pin: pins.Source) -> None:
    """What patches touch of the pinned sources, and nothing else, as a commit tagged `pristine`."""
    sources.unpack(fetch.source(tree, pin), root, pin.delta_paths)
    _git(root, "add", "-A", "-f")
    _git(root, "commit", "-q", "--allow-empty", "-m", "pristine")
    _git(root, "tag", "-f", "pristine")


def edit(tree: str, root: Path) -> None:
    """A git repository in `root` with one commit per patch, to rework with git's own tools."""
    _edit(tree, root, pins.load().sources)


def move(tree: str, root: Path, revision: str) -> None:
    """As `edit`, where the pin of `tree` has changed since the git revision `revision`.

    The patches become commits on the sources that were pinned then, and git rebases them onto those
    that are pinned now. An ArtfError names the first that conflicts; git goes on in `root`.
    """
    now = pins.load()
    with tempfile.TemporaryDirectory(prefix="artf-pins-") as folder:
        then = Path(folder) / PINS.name
        then.write_text(_git(REPO, "show", f"{revision}:{PINS.relative_to(REPO)}"))
        _edit(tree, root, pins.sources_then(then))
    _git(root, "tag", "before", "pristine")
    _git(root, "branch", "patched")
    _git(root, "checkout", "-q", "--detach", "before")
    _git(root, "rm", "-q", "-r", "-f", ".")
    _commit_pristine(tree, root, now.sources[tree])
    try:
        _git(root, "rebase", "-q", "--onto", "pristine", "before", "patched")
    except ArtfError:
        files = _git(root, "diff", "--name-only", "--diff-filter=U").split()
        if not files:
            raise
        subject = _git(root, "log", "-1", "--format=%s", "REBASE_HEAD").strip()
        raise ArtfError(
            f"the patch {subject!r} conflicts with the new {tree} in {', '.join(files)}",
            f"mend them in {root}, git add, git rebase --continue; then patches export {tree}",
        ) from None


def _edit(tree: str, root: Path, pinned: Mapping[str, pins.Source]) -> None:
    if tree not in trees():
        raise ArtfError(f"no patch series for {tree!r}", f"choose one of {', '.join(trees())}")
    if root.exists() and any(root.iterdir()):
        raise ArtfError(f"{root} is not empty", "name a new folder")
    root.mkdir(parents=True, exist_ok=True)
    _git(root, "init", "-q")
    for setting, value in _SETTINGS.items():
        _git(root, "config", setting, value)
    _commit_pristine(tree, root, pinned[tree])
    for name in sources.series(tree):
        path = PATCHES / tree / name
        sources.git_apply(path, root)
        _git(root, "add", "-A", "-f")
        message = split(path.read_text())[0] + f"\nPatch-Name: {name}\n"
        _git(root, "commit", "-q", "--cleanup=verbatim", "-m", message)


def _exported(root: Path) -> dict[str, str]:
    """File name → canonical text of each commit since `pristine`."""
    result: dict[str, str] = {}
    commits = _git(root, "rev-list", "--reverse", "pristine..HEAD").split()
    for number, commit in enumerate(commits, 1):
        body = _git(root, "log", "-1", "--format=%B", commit)
        # Numbers follow the order: a patch that comes between moves those behind it.
        named = _field(body, "Patch-Name")
        if named and not _NAME.match(named):
            raise ArtfError(
                f"Patch-Name: {named} is not NNNN-words.patch",
                f"reword the commit {commit[:12]} in {root}, or leave the line out",
            )
        words = named[len("0000-") : -len(".patch")]
        message = re.sub(r"\n*^Patch-Name: .*$", "", body, flags=re.MULTILINE).strip()
        if not words:
            subject = re.sub(r"[^a-z0-9]+", "-", message.splitlines()[0].lower()).strip("-")
            words = subject[:50].strip("-")
        name = f"{number:04d}-{words}.patch"
        diff = _git(
            root, "diff-tree", "-p", "--no-commit-id", "--no-renames", "--no-color", "--full-index",
            "--no-ext-diff", "--diff-algorithm=myers", f"-U{_CONTEXT_LINES}", commit,
        )  # fmt: skip
        # The function name after @@ is not needed to apply, and is upstream's text.
        diff = re.sub(r"^(@@ [^@]+ @@).*$", r"\1", diff, flags=re.MULTILINE)
        result[name] = f"{message}\n\n{diff}"
    return result


def drift(tree: str) -> None:
    """Applies the series to the pristine tree and exports it again: the bytes must be the same."""
    with tempfile.TemporaryDirectory(prefix="artf-drift-") as folder:
        root = Path(folder) / tree
        edit(tree, root)
        again = _exported(root)
    for name in sources.series(tree):
        path = PATCHES / tree / name
        if again.get(name) != path.read_text():
            raise ArtfError(
                f"{path} is not what its export gives", "run scripts/artf patches export"
            )


def seal() -> None:
    """Writes the hashes of all patches and overlays into the manifest, keeping its comments."""
    document = tomlkit.parse(PINS.read_text())
    patches = tomlkit.table(is_super_table=True)
    for tree in trees():
        table = tomlkit.table()
        for name in sources.series(tree):
            table[name] = pins.sha256_of(PATCHES / tree / name)
        patches[tree] = table
    document["patches"] = patches
    overlays = document["overlays"]
    for tree in OVERLAY_FOLDERS:
        table = tomlkit.table()
        for name in overlay_files(tree):
            table[name] = tomlkit.inline_table()
            table[name].update({"file": name, "sha256": pins.sha256_of(REPO / name)})  # type: ignore[union-attr]
        overlays[tree] = table  # type: ignore[index]
    for entry in overlays["wheel"].values():  # type: ignore[index,union-attr]
        entry["sha256"] = pins.sha256_of(REPO / entry["file"])
    partial = PINS.with_suffix(".toml.part")
    partial.write_text(tomlkit.dumps(document))
    partial.replace(PINS)


def export(tree: str | None, root: Path | None) -> list[str]:
    """Rewrites a series from a repository that `edit` made (all series from themselves when None).

    Returns the names of the patch files that changed. The manifest's hashes follow.
    """
    changed: list[str] = []
    for name in [tree] if tree else trees():
        if name not in trees():
            raise ArtfError(f"no patch series for {name!r}", f"choose one of {', '.join(trees())}")
        if root is not None:
            texts = _exported(root)
        else:
            with tempfile.TemporaryDirectory(prefix="artf-export-") as folder:
                edit(name, Path(folder) / name)
                texts = _exported(Path(folder) / name)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=PATCHES) as staged:
            for file, text in texts.items():
                (Path(staged) / file).write_text(text)
                old = PATCHES / name / file
                if not old.exists() or old.read_text() != text:
                    changed.append(f"{name}/{file}")
            for stale in set(sources.series(name)) - set(texts):
                (PATCHES / name / stale).unlink(missing_ok=True)
                changed.append(f"{name}/{stale}")
            for file in texts:
                shutil.move(str(Path(staged) / file), PATCHES / name / file)
        header = [
            line for line in (PATCHES / name / "series").read_text().splitlines() if line[:1] == "#"
        ]
        (PATCHES / name / "series").write_text("\n".join([*header, *texts]) + "\n")
    seal()
    return changed
