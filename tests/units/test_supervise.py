"""Real processes, really killed: whatever ends a group, nothing of it may stay behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from artf_cli import supervise
from artf_cli.errors import ArtfError
from artf_cli.supervise import Group, last_lines, log_folder

SLEEP = "import time; time.sleep(600)"
# Starts a process of its own, says both pids, and lives on.
FAMILY = (
    "import os, subprocess, sys, time\n"
    f"p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}])\n"
    "print(os.getpid(), p.pid, flush=True)\n"
    "time.sleep(600)\n"
)
# A program that holds a group with one child, says the child's pid, and waits.
PARENT = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from artf_cli.supervise import Group\n"
    "with Group(Path(sys.argv[1]), grace_s=1) as group:\n"
    "    child = group.start('child', [sys.executable, '-c', sys.argv[2]], talk=True)\n"
    "    print(group.read([child], 30)[1], flush=True)\n"
    "    time.sleep(600)\n"
)


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(condition: Callable[[], bool], seconds: float = 15) -> bool:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def start_family(group: Group) -> list[int]:
    child = group.start("family", python(FAMILY), talk=True)
    pids = [int(word) for word in group.read([child], 30)[1].split()]
    assert pids[0] == child.pid
    assert not any(gone(pid) for pid in pids)
    return pids


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_ends_the_whole_tree(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), Group(tmp_path) as group:
        pids = start_family(group)
        raise error
    assert all(gone(pid) for pid in pids)


def test_leaving_the_block_ends_what_a_dead_child_left_behind(tmp_path: Path) -> None:
    orphan = FAMILY.replace("time.sleep(600)\n", "")
    with Group(tmp_path) as group:
        child = group.start("orphans", python(orphan), talk=True)
        pids = [int(word) for word in group.read([child], 30)[1].split()]
        assert until(lambda: child.status() == 0)
        assert not gone(pids[1])
    assert all(gone(pid) for pid in pids)


def test_a_child_deaf_to_sigterm_is_killed(tmp_path: Path) -> None:
    deaf = f"import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); {SLEEP}"
    with Group(tmp_path, grace_s=0.3) as group:
        child = group.start("deaf", python(deaf), talk=True)
        group.read([child], 30)
        begin = time.monotonic()
    assert gone(child.pid)
    assert 0.3 <= time.monotonic() - begin < 10


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -signal.SIGINT)],
)
def test_a_signal_to_the_parent_ends_the_tree(tmp_path: Path, number: int, status: int) -> None:
    parent = run_parent(tmp_path, FAMILY)
    pids = family_of(parent)
    parent.send_signal(number)
    assert parent.wait(30) == status
    assert all(gone(pid) for pid in pids)


def test_sigkill_of_the_parent_ends_the_child(tmp_path: Path) -> None:
    parent = run_parent(tmp_path, f"import os; print(os.getpid(), flush=True); {SLEEP}")
    (pid,) = family_of(parent)
    parent.kill()
    parent.wait(30)
    assert until(lambda: gone(pid))


def _default_signals() -> None:
    # A shell's background and nohup ignore these, and so would every child.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def run_parent(logs: Path, child: str) -> subprocess.Popen[str]:
    scripts = str(Path(supervise.__file__).parents[1])
    return subprocess.Popen(
        [*python(PARENT), str(logs), child],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": scripts},
        preexec_fn=_default_signals,
    )


def family_of(parent: subprocess.Popen[str]) -> list[int]:
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    parent.stdout.close()
    assert pids
    assert not any(gone(pid) for pid in pids)
    return pids


def test_the_leash_refuses_to_run_without_its_starter() -> None:
    leash = Path(supervise.__file__).with_name("runtime") / "leash.py"
    done = subprocess.run(
        [sys.executable, str(leash), "1", sys.executable, "-c", "print('ran')"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "is gone" in done.stderr


def test_a_failing_child_is_named_with_its_error_and_its_log(tmp_path: Path) -> None:
    with pytest.raises(ArtfError) as caught, Group(tmp_path) as group:
        group.start("steady", python(SLEEP))
        group.start("broken", python("raise RuntimeError('out of luck')"))
        group.wait(30)
    assert caught.value.what == "broken ended with status 1: RuntimeError: out of luck"
    assert str(tmp_path / "broken.err") in caught.value.cure
    assert "Traceback" in (tmp_path / "broken.err").read_text()


def test_the_child_that_a_signal_killed_is_blamed_first(tmp_path: Path) -> None:
    with pytest.raises(ArtfError, match="victim was killed by SIGSEGV"), Group(tmp_path) as group:
        victims = [
            group.start("follower", python("raise SystemExit(3)")),
            group.start("victim", python("import os; os.kill(os.getpid(), 11)")),
        ]
        assert until(lambda: all(child.status() is not None for child in victims))
        group.check()


def test_read_gives_lines_in_order_and_keeps_them(tmp_path: Path) -> None:
    echo = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"
    with Group(tmp_path) as group:
        child = group.start("echo", python(echo), talk=True)
        for word in ("one", "two"):
            child.send(word)
        assert [group.read([child], 30)[1] for _ in range(2)] == ["ONE", "TWO"]
    assert (tmp_path / "echo.out").read_text() == "ONE\nTWO\n"


def test_what_a_child_said_before_it_ended_is_read_before_its_end(tmp_path: Path) -> None:
    with Group(tmp_path) as group:
        child = group.start("brief", python("print('last words')"), talk=True)
        assert until(lambda: child.status() == 0)
        assert group.read([child], 30) == (child, "last words")
        with pytest.raises(ArtfError, match="brief ended before it answered"):
            group.read([child], 30)


def test_a_silent_child_times_out(tmp_path: Path) -> None:
    with Group(tmp_path) as group:
        child = group.start("mute", python(SLEEP), talk=True)
        with pytest.raises(ArtfError, match="mute gave no answer within 0 s"):
            group.read([child], 0.2)
        with pytest.raises(ArtfError, match="mute did not end within 0 s"):
            group.wait(0.2)


def test_sending_to_a_dead_child_is_not_an_error_of_its_own(tmp_path: Path) -> None:
    with Group(tmp_path) as group:
        child = group.start("dead", python("raise SystemExit('I quit')"), talk=True)
        assert until(lambda: child.status() == 1)
        child.send("anyone there?")
        with pytest.raises(ArtfError, match="dead ended with status 1: I quit"):
            group.read([child], 30)


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with Group(tmp_path) as group, pytest.raises(ArtfError, match="nowhere/python cannot be run"):
        group.start("none", [tmp_path / "nowhere" / "python"])


def test_signal_handlers_are_as_before(tmp_path: Path) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with Group(tmp_path):
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    assert [signal.getsignal(number) for number in numbers] == before


def test_last_lines_skips_chatter_and_graph_traces() -> None:
    text = (
        "2024-01-01 00:00:00.123456: I tensorflow/core/x.cc:1] hello\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed\n"
        "Additional GRPC error information from remote target /job:ps\n"
        "\n"
        "  File deep in the graph\n"
    )
    assert last_lines(text) == (
        "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed"
        " | Additional GRPC error information from remote target /job:ps"
    )
    assert last_lines("a\nb\nc\nd\n") == "b | c | d"
    assert last_lines("") == ""
    assert len(last_lines("x" * 5000)) == 500


def test_logs_stay_after_a_failure_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path))
    with log_folder("good") as good:
        assert good.is_dir()
    assert not good.exists()
    kept = []
    for _ in range(14):
        with pytest.raises(KeyboardInterrupt), log_folder("bad") as bad:
            kept.append(bad)
            raise KeyboardInterrupt
    assert bad.is_dir()
    assert len(list((tmp_path / "logs").iterdir())) <= 11


# Starts a group whose child computes for ever, on the one processor that it is told; says its pid.
HOG = (
    "import os, sys, time\n"
    "from pathlib import Path\n"
    "from artf_cli.supervise import Group\n"
    "os.sched_setaffinity(0, {int(sys.argv[2])})\n"
    "os.nice(int(sys.argv[3]))\n"
    "with Group(Path(sys.argv[1]), grace_s=1) as group:\n"
    "    group.start('hog', [sys.executable, '-c', 'while True: pass'])\n"
    "    print(group.children[0].pid, flush=True)\n"
    "    sys.stdin.read()\n"
)


def test_what_gives_way_does_so_in_a_session_of_its_own(tmp_path: Path) -> None:
    """Where the kernel groups processes by session it heeds niceness within one alone."""
    processor = str(min(os.sched_getaffinity(0)))
    holders = []
    for name, nice in (("first", "0"), ("nice", "15")):
        (tmp_path / name).mkdir()
        words = [sys.executable, "-c", HOG, str(tmp_path / name), processor, nice]
        holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        holders.append(holder)
    try:
        hogs = []
        for holder in holders:
            assert holder.stdout is not None
            hogs.append(psutil.Process(int(holder.stdout.readline())))

        def used() -> list[float]:
            return [hog.cpu_times().user for hog in hogs]

        assert until(lambda: min(used()) > 0.1)
        before = used()
        assert until(lambda: used()[0] > before[0] + 2, 60)
        first, second = (now - then for now, then in zip(used(), before))
        # By sched(7) some 0.03 s for each of the first one's seconds; a whole one without.
        assert second < first / 4
    finally:
        for holder in holders:
            holder.communicate()


def test_who_is_not_root_waits_to_give_way(tmp_path: Path) -> None:
    """Without CAP_SYS_ADMIN the kernel takes ten such wishes a second, all processes together."""
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not group processes by session")
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from artf_cli.supervise import Group\n"
        "os.nice(7)\n"
        "with Group(Path(sys.argv[1])) as group:\n"
        "    show = ['/bin/cat', '/proc/self/autogroup']\n"
        "    children = [group.start(f'child{i}', show) for i in range(8)]\n"
        "    for child in children:\n"
        "        child.process.wait()\n"
        "        print(child.stdout.read_text(), end='')\n"
    )
    command = ["setpriv", "--bounding-set=-sys_admin", sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = [line.split()[1:] for line in done.stdout.splitlines()]
    # This process may have given way itself.
    assert said == [["nice", str(min(os.nice(0) + 7, 19))]] * 8, done.stdout + done.stderr
