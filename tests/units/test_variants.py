"""Labels of ways to run a protocol."""

from __future__ import annotations

import pytest

from artf_cli.errors import ArtfError
from artf_cli.variants import Variant, parse

# What keeps gRPC's channels from sharing a connection.
APART = {"TF_GRPC_DEFAULT_OPTIONS": "grpc.use_local_subchannel_pool=1"}


@pytest.mark.parametrize(
    ("label", "variant"),
    [
        ("grpc", Variant("grpc", "grpc")),
        ("grpc+verbs", Variant("grpc+verbs", "grpc+verbs")),
        ("grpc@upstream", Variant("grpc@upstream", "grpc", "upstream")),
        (
            "grpc+ar/tcp",
            Variant("grpc+ar/tcp", "grpc+ar", environment={"AR_GRPC_FABRICS": "tcp"}),
        ),
        ("grpc+mpi", Variant("grpc+mpi", "grpc+mpi", mpi="debian-mpich")),
        (
            "grpc+mpi/openmpi5",
            Variant("grpc+mpi/openmpi5", "grpc+mpi", mpi="openmpi-5"),
        ),
        (
            "grpc/4channels",
            Variant("grpc/4channels", "grpc", environment=APART, settings={"channels": 4}),
        ),
        (
            "grpc/threads/2channels@against",
            Variant(
                "grpc/threads/2channels@against",
                "grpc",
                "against",
                APART,
                settings={"spin": False, "channels": 2},
            ),
        ),
    ],
)
def test_labels(label: str, variant: Variant) -> None:
    assert parse(label) == variant


@pytest.mark.parametrize(
    "label",
    [
        "",
        "grpc/",
        "grpc/shm",
        "grpc/mpich",
        "grpc+mpi/shm",
        "grpc/0channels",
        "grpc/fast",
        "grpc@mine",
        "GRPC",
        "grpc tcp",
        "@x",
    ],
)
def test_other_labels_are_named_with_what_is_accepted(label: str) -> None:
    with pytest.raises(ArtfError) as caught:
        parse(label)
    assert repr(label) in caught.value.what
    assert "grpc+ar/tcp" in caught.value.cure


def test_a_label_as_a_file_has_it() -> None:
    assert parse("grpc+ar/tcp@against").slug == "grpc+ar-tcp-against"


def test_the_same_on_another_wheel() -> None:
    assert parse("grpc+ar/tcp").on("against") == parse("grpc+ar/tcp@against")
