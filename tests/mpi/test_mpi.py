"""The MPI channel: with real libraries under their own mpirun, and sanitized over a fake one."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from artf_cli import mpis
from artf_cli.mpis import ALL, Mpi
from artf_cli.paths import REPO
from common import cpp, mpi
from common.mpi import said
from common.repeated import few

# The first one waits until all is compiled.
pytestmark = pytest.mark.timeout(900)

#: Scenario → its ranks, as tests/mpi/scenarios.cc has them.
SCENARIOS = {
    "sizes": 2,
    "large-sizes": 2,
    "crowd": 3,
    "cancel-before": 2,
    "cancel-midway": 2,
    "wrong-sizes": 2,
    "refusals": 2,
    "early-and-own": 2,
}
#: What only a fake MPI does.
FAKED = (
    "ends",
    "announced",
    "failures",
    "finalized",
    "finalized-ours",
    "finalized-at-an-end",
    "leaves",
    "forked",
    "death",
)
SANITIZED = ("channel_test", "parts_test")
#: What we declare → the MPI whose header says the same, and what makes the header say it.
DECLARED = {
    "Standard": ("mpich-5-standard", ["-DMPI_ABI"]),
    "Mpich": ("mpich-5", []),
    "OpenMpi": ("openmpi-5", []),
}
LEVEL = (
    "this program has initialized MPI without MPI_THREAD_MULTIPLE: initialize it with "
    "(mpi4py: mpi4py.rc.thread_level = 'multiple'), or leave it to the server"
)
NO_LAUNCHER = (
    "this process was not started by an MPI launcher: start all tasks of the cluster with one, "
    "as in mpirun -np TASKS python3 PROGRAM"
)
LATE = (
    "not all of the ranks of this MPI job have started grpc+mpi within 1 s: start a server in "
    "each, and no rank without one"
)
FAILED_PRECONDITION, UNIMPLEMENTED, UNAVAILABLE, DEADLINE_EXCEEDED = 9, 12, 14, 4


@pytest.fixture(scope="session")
def program() -> Path:
    return cpp.build("mpi", ["channel_program"], ["plain"]) / "plain/tests/mpi/channel_program"


#: One of each flavour runs always.
@pytest.fixture(params=few(ALL, "debian-mpich", "debian-openmpi", "mpich-5-standard"))
def each(request: pytest.FixtureRequest) -> Mpi:
    return mpi.need(request.param)


@pytest.mark.parametrize("name", SANITIZED)
@pytest.mark.parametrize("variant", ["asan+ubsan", "tsan"])
def test_over_a_fake(name: str, variant: str) -> None:
    folder = cpp.build("mpi", SANITIZED, [variant])
    output = cpp.run(folder, variant, f"tests/mpi/{name}", 300)
    if name == "channel_test":
        # All that need no real MPI, and those that need a fake one.
        names = [each for each in SCENARIOS if each != "large-sizes"]
        assert said(output, "ok fake:") == [*names, *FAKED]
    else:
        assert output == "ok parts\n"


@pytest.mark.parametrize("abi", DECLARED)
def test_the_abi_is_that_of_the_header(abi: str, tmp_path: Path) -> None:
    """By static assertions, and the handles when it runs."""
    name, flags = DECLARED[abi]
    one = mpi.need(name)
    library = mpis.library(one)
    compiled = tmp_path / "abi_test"
    words = ["g++", "-std=c++17", "-Wall", *flags, f"-DAR_MPI_ABI={abi}", f"-I{REPO}"]
    words += [f"-I{mpis.headers(one)}", str(REPO / "tests/mpi/abi_test.cc"), str(library)]
    words += ["-Wl,--allow-shlib-undefined", f"-Wl,-rpath,{library.parent}", "-o", str(compiled)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([compiled]).returncode == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(program: Path, each: Mpi, scenario: str) -> None:
    ranks = SCENARIOS[scenario]
    done = mpi.run(each, ranks, program, scenario)
    assert done.returncode == 0
    assert said(done.stdout, "ok") == [scenario] * ranks
    assert sorted(said(done.stdout, "rank")) == [str(rank) for rank in range(ranks)]
    assert said(done.stdout, "size") == [str(ranks)] * ranks
    assert said(done.stdout, "flavour") == [str(each.flavour)] * ranks
    versions = said(done.stdout, "version")
    assert len(versions) == ranks
    assert all(version.startswith(each.version) for version in versions)
    if each.requirements:
        assert said(done.stdout, "library") == [str(mpis.library(each))] * ranks


@pytest.mark.parametrize("name", ["debian-mpich", "debian-openmpi"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_sanitized(scenario: str, name: str) -> None:
    """With ASan and UBSan in what is ours. The libraries leak."""
    one, ranks, variant = mpi.need(name), SCENARIOS[scenario], "asan+ubsan"
    built = cpp.build("mpi", ["channel_program"], [variant])
    words = (built / variant / "tests/mpi/channel_program", scenario)
    done = mpi.run(one, ranks, *words, ASAN_OPTIONS="detect_leaks=0")
    assert (done.returncode, said(done.stdout, "ok")) == (0, [scenario] * ranks)


def test_a_job_has_a_token_of_its_own(program: Path, each: Mpi) -> None:
    tokens = []
    for _ in range(2):
        done = mpi.run(each, 2, program, "start")
        first, second = said(done.stdout, "token")
        assert first == second and re.fullmatch("[0-9a-f]{32}", first)
        tokens.append(first)
    assert tokens[0] != tokens[1]
    assert said(done.stdout, "enough") == ["", ""]


# Ten seconds each.
@pytest.mark.parametrize("each", few(ALL, "debian-mpich", "debian-openmpi"), indirect=True)
def test_nothing_on_the_way_takes_no_processor(program: Path, each: Mpi) -> None:
    """And to wait for what does not come takes little: MPI has to be asked again and again."""
    done = mpi.run(each, 2, program, "idle")
    assert done.returncode == 0
    (idle,), (turns,), (waiting,) = (
        said(done.stdout, word) for word in ("idle_percent", "idle_turns", "waiting_percent")
    )
    assert float(idle) < 1
    assert turns == "0"
    assert float(waiting) < 8


def test_a_rank_dies(program: Path, each: Mpi) -> None:
    """Its transfers fail, the others' go on, and memory that MPI still has is not given back."""
    done = mpi.run(each, 3, program, "death", survive=True)
    kept = said(done.stdout, "kept")
    assert len(kept) == 2, "a rank that lives did not get to the end"
    # Perhaps one that was on its way out, and one that was on its way in.
    assert set(kept) <= {"0", "1", "2"}


def test_mpi_that_the_program_initialized_is_used_and_left(program: Path, each: Mpi) -> None:
    done = mpi.run(each, 2, program, "foreign")
    assert (done.returncode, said(done.stdout, "ok")) == (0, ["foreign"] * 2)


def test_mpi_that_the_program_initialized_for_one_thread(program: Path, each: Mpi) -> None:
    done = mpi.run(each, 2, program, "foreign-single")
    assert done.returncode == 0
    assert said(done.stdout, "says") == [LEVEL] * 2


def test_the_process_s_own_channel_ends_with_it(program: Path, each: Mpi) -> None:
    """Open MPI's mpirun is content only with ranks that have finalized."""
    done = mpi.run(each, 2, program, "exits")
    assert (done.returncode, said(done.stdout, "ok")) == (0, ["exits"] * 2)


def test_a_rank_that_fails_ends_its_job(program: Path, each: Mpi) -> None:
    """By its exit status, while the other waits for it; MPI_Finalize would wait for that."""
    done = mpi.run(each, 2, program, "fails", seconds=30)
    assert done.returncode != 0
    assert said(done.stdout, "ok") == []


def test_a_job_of_one(program: Path, each: Mpi) -> None:
    done = mpi.run(each, 1, program, "start")
    assert said(done.stdout, "enough") == [
        "this process is alone in its MPI job, and the cluster has 2 tasks: start all of them "
        "with one mpirun -np 2"
    ]


def refused(program: Path, **settings: str) -> tuple[int, str]:
    """What a process without a launcher is told."""
    env = mpis.environment(**settings)
    done = subprocess.run([program, "start"], env=env, capture_output=True, text=True)
    assert done.returncode == 3, done
    (code,), (says,) = said(done.stdout, "code"), said(done.stdout, "says")
    return int(code), says


def test_without_a_launcher(program: Path) -> None:
    mpi.need("debian-mpich")
    assert refused(program) == (FAILED_PRECONDITION, NO_LAUNCHER)


def test_no_library(program: Path) -> None:
    assert refused(program, AR_MPI_LIB="/nonexistent/libmpi.so") == (
        UNAVAILABLE,
        "no MPI library: /nonexistent/libmpi.so: cannot open shared object file: No such file or "
        "directory (correct AR_MPI_LIB, or unset it)",
    )


def test_a_library_that_is_none(program: Path) -> None:
    code, says = refused(program, AR_MPI_LIB="libm.so.6")
    assert code == UNIMPLEMENTED
    assert re.fullmatch(
        r"/\S+/libm\.so\.6 is no MPI library \(it has no MPI_Get_library_version\): "
        "correct AR_MPI_LIB",
        says,
    )


def calls_itself(text: str, folder: Path) -> Path:
    """A library with all of MPICH's functions, by MPICH itself, that says it is something else."""
    source, made = folder / "kin.c", folder / "libmpi.so.12"
    source.write_text(
        "#include <string.h>\n"
        "int MPI_Get_library_version(char* text, int* length) {\n"
        f"  strcpy(text, {json.dumps(text)});\n"
        "  *length = strlen(text);\n"
        "  return 0;\n"
        "}\n"
    )
    real = mpis.library(mpi.need("mpich-5"))
    words = ["gcc", "-shared", "-fPIC", str(source), "-o", str(made), "-Wl,--no-as-needed"]
    words += [str(real), f"-Wl,-rpath,{real.parent}", "-Wl,--allow-shlib-undefined"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize(
    "text",
    [
        "Intel(R) MPI Library 2021.11 for Linux* OS\n",
        "MVAPICH Version      :\t3.0\nMVAPICH Release date :\t03/01/2024\n",
        "MVAPICH2 Version      :\t2.3.7\n",
    ],
    ids=["Intel", "MVAPICH", "MVAPICH2"],
)
def test_mpich_s_kin(program: Path, tmp_path: Path, text: str) -> None:
    """By the names that these libraries give themselves; none of them is in a package index."""
    library = str(calls_itself(text, tmp_path))
    done = mpi.run(mpi.need("mpich-5"), 2, program, "sizes", AR_MPI_LIB=library)
    assert (done.returncode, said(done.stdout, "ok")) == (0, ["sizes"] * 2)
    assert said(done.stdout, "flavour") == [str(mpi.need("mpich-5").flavour)] * 2
    assert said(done.stdout, "library") == [library] * 2
    versions = said(done.stdout, "version")
    assert len(versions) == 2
    assert all(version.startswith(text[:11]) for version in versions)


def test_a_stranger_with_mpi_s_functions(program: Path, tmp_path: Path) -> None:
    library = calls_itself("Platform MPI 9.1\nof somebody", tmp_path)
    assert refused(program, AR_MPI_LIB=str(library)) == (
        UNIMPLEMENTED,
        f"{library} is 'Platform MPI 9.1', whose binary interface is not known here: use MPICH "
        "3.4, Open MPI 4, Intel MPI 2019 or newer",
    )


def test_two_libraries_in_a_process(program: Path) -> None:
    mpi.need("debian-mpich")
    mpi.need("debian-openmpi")
    code, says = refused(program, LD_PRELOAD="libmpich.so.12 libmpi.so.40")
    assert code == FAILED_PRECONDITION
    assert re.fullmatch(
        r"two MPI libraries are in this process, /\S+/libmpich\.so\.12 and /\S+/libmpi\.so\.40"
        ": import modules of one MPI only, the one whose mpirun starts the program",
        says,
    )


def test_another_library_is_named_than_is_loaded(program: Path) -> None:
    mpi.need("debian-mpich")
    other = str(mpis.library(mpi.need("mpich-5")))
    code, says = refused(program, LD_PRELOAD="libmpich.so.12", AR_MPI_LIB=other)
    assert code == FAILED_PRECONDITION
    assert re.fullmatch(
        rf"AR_MPI_LIB names {re.escape(other)}, but /\S+/libmpich\.so\.12 is in this process "
        "already, and two MPI libraries do not go together: unset AR_MPI_LIB, or name the other",
        says,
    )


def test_the_library_that_is_loaded_is_used(program: Path) -> None:
    """Not the one that the launcher's environment would say."""
    one = mpi.need("mpich-5")
    loaded = str(mpis.library(one))
    done = mpi.run(one, 2, program, "sizes", LD_PRELOAD=loaded, AR_MPI_LIB="")
    assert done.returncode == 0
    assert said(done.stdout, "library") == [loaded] * 2


def test_the_library_of_another_launcher(program: Path) -> None:
    """MPICH would end the process; Open MPI makes each a job of its own."""
    mpich, open_mpi = mpi.need("mpich-5"), mpi.need("debian-openmpi")
    mpich_library = str(mpis.library(mpich))
    done = mpi.run(open_mpi, 2, program, "start", AR_MPI_LIB=mpich_library)
    cure = "name the library of that mpirun in AR_MPI_LIB"
    assert set(said(done.stdout, "says")) == {
        f"this process was started by Open MPI's mpirun, but uses {mpich_library} "
        f"({mpich.version}): {cure}"
    }
    # Alone it cannot be told so by an option.
    root = {f"OMPI_ALLOW_RUN_AS_ROOT{more}": "1" for more in ("", "_CONFIRM")}
    words = [f"{name}={value}" for name, value in root.items()]
    done = mpi.run(mpich, 2, "env", *words, program, "start", AR_MPI_LIB="libmpi.so.40")
    (says,) = set(said(done.stdout, "enough"))
    assert re.fullmatch(
        r"this process is alone in its MPI job, and the cluster has 2 tasks: it was started by "
        rf"MPICH's mpirun, but uses /\S+/libmpi\.so\.40 \({re.escape(open_mpi.version)}[^)]*\): "
        f"{cure}",
        says,
    )


@pytest.mark.parametrize("name", ["debian-mpich", "debian-openmpi"])
def test_a_rank_that_does_not_start(program: Path, name: str) -> None:
    others = (":", "-np", "1", "sleep", "4")
    done = mpi.run(mpi.need(name), 1, program, "start", "1000", *others)
    assert said(done.stdout, "code") == [str(DEADLINE_EXCEEDED)]
    assert said(done.stdout, "says") == [LATE]
