"""The server protocols that every suite runs over; a new one joins by one line here."""

from __future__ import annotations

PROTOCOLS: tuple[str, ...] = (
    "grpc",
    "grpc+ar",
)

#: The wheel's own, unpatched protocol: its known upstream bugs are tolerated by name.
STOCK = "grpc"

#: Tensors by MPI: its servers are ranks of one job, so it has tests and paths of its own.
MPI = "grpc+mpi"

#: Tensors by RDMA WRITE: its servers need a device, so it runs in a virtual host.
VERBS = "grpc+verbs"

#: The error of a step of it: request ids are drawn from 32 bits of randomness, and once in some
#: 36000 steps two agree.
STOCK_COLLISION = "request was received twice"

#: The one whose fabrics, arena and handshake have tests of their own.
AR = "grpc+ar"

#: What runs over stock in each run, since it shows there that the test itself can tell; the other
#: cases only with --full. Test → (a part of its parameters' id or "" for all, why).
STOCK_CONTROLS: dict[str, tuple[str, str]] = {
    "test_dtype": ("float32", "the bits that the comparison wants do come over stock"),
    "test_string": ("matrix", "the strings that the comparison wants do come over stock"),
    "test_size": ("65537", "the steps that the comparison wants do come over stock"),
    "test_dead_tensor": ("switch_merge-1025", "the same dead tensors come over stock"),
    "test_variable_updated_after_it_was_sent": ("", "no local run says what is right"),
    "test_variant_without_decoder": ("", "the error is stock's own"),
    "test_step_stats_show_the_transfer": ("", "the labels are stock's own"),
    "test_soak": ("", "stock's collision of request ids is tolerated by its text"),
    "test_ids_do_not_collide": ("", "stock's failure proves that the collision is forced"),
    "test_sessions_of_an_in_process_master": (
        "",
        "a thread for each step over stock proves that threads are counted",
    ),
    "test_clean_exit": ("own_server", "stock leaves without a noise, so one is ours"),
    "test_peer_killed_mid_transfer": ("sender", "the errors that are wanted are stock's"),
    "test_coordinator_sees_a_ps_failure": ("", "the text that is wanted is stock's"),
}


def stock_control(test: str, parameters: str) -> str:
    """Why a case, by its function's name and its parameters' id, runs over stock in each run;
    empty when it does not."""
    part, why = STOCK_CONTROLS.get(test, ("", ""))
    return why if f"-{part}-" in f"-{parameters}-" or not part else ""


_KNOWN = (*PROTOCOLS, MPI, VERBS)


def wanted(names: str) -> tuple[str, ...]:
    """The protocols named in a comma-separated list, or all for an empty one."""
    chosen = tuple(name.strip() for name in names.split(",") if name.strip())
    unknown = [name for name in chosen if name not in _KNOWN]
    if unknown:
        raise ValueError(f"--protocols: unknown {', '.join(unknown)} (known: {', '.join(_KNOWN)})")
    return chosen or _KNOWN


def select(names: str) -> tuple[str, ...]:
    """Those of wanted() that every suite runs over."""
    return tuple(name for name in wanted(names) if name in PROTOCOLS)
