"""One process of a user's program, really run: how it ends, what it printed, and that nothing of it is left."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.testbed.processes import children
from tests.support.until import until_within
from tests.workloads.user_programs.conftest import MODULE, PATIENCE_S, Programs
from wanbed.module_process import module_command

LABEL = "rank 1 on west-0"
IGNORING = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
WAITING = "print('ready', flush=True); import time; time.sleep(600)"


@pytest.mark.parametrize(
    ("script", "status", "line"),
    [
        ("exit 0", 0, ""),
        ("echo printed; echo told >&2; exit 3", 3, f"{LABEL} ended with status 3: told\n"),
        ("echo printed; exit 255", 255, f"{LABEL} ended with status 255: printed\n"),
        ("exit 4", 4, f"{LABEL} ended with status 4\n"),
        ("echo about >&2; kill -SEGV $$", 139, f"{LABEL} was ended by SIGSEGV: about\n"),
        ("kill -TERM $$", 143, f"{LABEL} was ended by SIGTERM\n"),
        (
            "kill -KILL $$",
            137,
            f"{LABEL} was ended by SIGKILL, which is how the kernel ends programs when memory runs out\n",
        ),
    ],
)
def test_the_exit_status_is_the_programs_and_a_failure_is_one_line(
    programs: Programs, script: str, status: int, line: str
) -> None:
    assert programs.run("sh", "-c", script) == (status, line)


def test_an_exception_is_the_line(programs: Programs) -> None:
    failing = (
        "import atexit; atexit.register(print, 'a warning', file=__import__('sys').stderr); raise ValueError('bad')"
    )
    assert programs.python(failing) == (1, f"{LABEL} ended with status 1: ValueError: bad\n")


def test_a_program_gets_its_folder_its_environment_no_input_and_a_session_of_its_own(programs: Programs) -> None:
    script = (
        "import os, sys\n"
        "print(os.getcwd(), os.environ['GIVEN'], os.environ['PATH'] != '', sys.stdin.read() == '')\n"
        "print(os.getsid(0) == os.getpid(), file=sys.stderr)\n"
    )
    assert programs.python(script, environment={"GIVEN": "b c"}) == (0, "")
    assert programs.stdout.read_text() == f"{programs.folder} b c True True\n"
    assert programs.stderr.read_text() == "True\n"


@pytest.mark.parametrize(
    ("content", "mode", "status", "reason"),
    [
        (None, 0, 127, "there is no such program in {folder}"),
        ("#!/bin/sh\n", 0o644, 126, "it is not executable"),
        ("#!/no/such/shell\n", 0o755, 126, "the interpreter that {folder}/./start, in its first line or as a program,"),
        ("echo hello\n", 0o755, 126, "it is neither a program nor a script whose first line names its interpreter"),
    ],
)
def test_a_program_that_cannot_be_started_is_named_with_the_reason(
    programs: Programs, content: str | None, mode: int, status: int, reason: str
) -> None:
    if content is not None:
        path = programs.folder / "start"
        path.write_text(content)
        path.chmod(mode)
    found, printed = programs.run("./start")
    assert found == status
    assert printed.startswith(f"{LABEL}: cannot start ./start: {reason.format(folder=programs.folder)}")
    assert printed.count("\n") == 1


def test_a_command_is_looked_up_in_the_programs_own_path(programs: Programs) -> None:
    fault = f"{LABEL}: cannot start mine: there is no such program on PATH\n"
    assert programs.run("mine") == (127, fault)
    path = programs.folder / "mine"
    path.write_text("#!/bin/sh\necho mine\n")
    path.chmod(0o755)
    assert programs.run("mine", environment={"PATH": f"{programs.folder}:{os.environ['PATH']}"}) == (0, "")
    assert programs.stdout.read_text() == "mine\n"


def test_a_missing_folder_is_named(programs: Programs) -> None:
    status, printed = programs.run("true", folder="/no/such/folder")
    assert (status, printed) == (127, f"{LABEL}: cannot start true: there is no folder /no/such/folder\n")


@pytest.mark.parametrize(("stream", "name"), [("stdout", "standard output"), ("stderr", "standard error")])
def test_a_program_that_prints_gigabytes_is_ended_at_its_limit(programs: Programs, stream: str, name: str) -> None:
    # Never ended, it would print until the test's patience is over.
    script = f"import sys\nwhile True: sys.{stream}.write('step 1\\n' * 10000)"
    process = programs.start(programs.config(sys.executable, "-c", script, limit_bytes=3 * 2**20))
    printed = process.communicate(timeout=PATIENCE_S)[1]
    assert (process.returncode, printed.rstrip("1pets \n")) == (124, f"{LABEL} printed more than 3MiB to {name}:")
    assert (programs.folder / stream).stat().st_size == 3 * 2**20
    assert programs.left() == []


def test_hundreds_of_megabytes_without_a_line_take_no_memory(programs: Programs) -> None:
    # The address space of a process of Python and some MiB of output, not more.
    status, printed = programs.run(
        *("head", "-c", "400M", "/dev/zero"),
        limit_bytes=2**31,
        stdout="/dev/null",
        pattern="step",
        within=("sh", "-c", 'ulimit -v 300000; exec "$@"', "sh"),
    )
    assert (status, printed) == (0, "")


def test_bytes_of_any_kind_are_saved_as_they_are(programs: Programs) -> None:
    script = "import os; os.write(1, bytes(range(256)) * 999); os.write(2, b'\\0\\xff\\n\\x1b'); os._exit(5)"
    status, printed = programs.python(script, pattern="step")
    assert programs.stdout.read_bytes() == bytes(range(256)) * 999
    assert programs.stderr.read_bytes() == b"\0\xff\n\x1b"
    assert (status, printed.count("\n"), printed.isprintable()) == (5, 1, False)
    assert printed.removesuffix("\n").isprintable()


def test_marks_are_recorded_while_the_program_runs(programs: Programs) -> None:
    # The program goes on only when its first iterations are in the log.
    gate = programs.folder / "gate"
    os.mkfifo(gate)
    script = (
        f"print('step 0\\nstep 1\\nloss', flush=True); open({str(gate)!r}).read(); print('step 2\\nstep 3\\nstep 4')"
    )
    process = programs.start(programs.config(sys.executable, "-c", script, pattern=r"^step \d$", iterations=4))
    log = programs.folder / "spans.jsonl"
    until_within(PATIENCE_S, lambda: log.exists() and len(programs.spans.spans) == 2)
    assert not programs.spans.complete
    gate.write_text("")
    assert (process.communicate(timeout=PATIENCE_S)[1], process.returncode) == ("", 0)
    assert [span.iteration for span in programs.spans.spans] == [0, 1, 2, 3]
    assert programs.spans.complete
    assert [span.start_ns for span in programs.spans.spans][1:] == [span.end_ns for span in programs.spans.spans][:-1]


def test_the_last_line_marks_without_its_end(programs: Programs) -> None:
    assert programs.run("printf", "step 0\nstep 1", pattern="step", iterations=2) == (0, "")
    assert programs.spans.complete


def ready(programs: Programs) -> bool:
    return programs.stdout.exists() and programs.stdout.read_bytes().startswith(b"ready")


@pytest.mark.parametrize(
    ("before", "grace_s", "number", "status"),
    [
        ("", 30.0, signal.SIGTERM, 143),
        ("", 30.0, signal.SIGINT, 143),
        ("import signal; signal.signal(signal.SIGTERM, lambda *_: exit(7)); ", 30.0, signal.SIGTERM, 7),
        ("import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); ", 30.0, signal.SIGTERM, 0),
        (f"{IGNORING}import os; os.fork() or os.setsid(); os.fork(); ", 0.2, signal.SIGTERM, 137),
    ],
)
def test_a_program_that_is_asked_to_end_ends_and_nothing_is_printed(
    programs: Programs, before: str, grace_s: float, number: signal.Signals, status: int
) -> None:
    process = programs.start(programs.config(sys.executable, "-c", before + WAITING, grace_s=grace_s))
    until_within(PATIENCE_S, lambda: ready(programs))
    process.send_signal(number)
    assert (process.communicate(timeout=PATIENCE_S)[1], process.returncode) == ("", status)
    assert programs.left() == []


def test_output_is_read_until_the_end_that_was_asked_for(programs: Programs) -> None:
    # A handler that prints could interrupt the first print between its text and its end of line.
    script = (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); print('ready', flush=True); "
        "signal.sigwait([signal.SIGTERM]); print('x' * 900000)"
    )
    process = programs.start(programs.config(sys.executable, "-c", script))
    until_within(PATIENCE_S, lambda: ready(programs))
    process.terminate()
    assert (process.communicate(timeout=PATIENCE_S)[1], process.returncode) == ("", 0)
    assert programs.stdout.stat().st_size == len("ready\n") + 900001


@pytest.mark.parametrize(
    "leaving",
    [
        "sleep 600 & sleep 600 &",
        "setsid sleep 600 & nohup sleep 600 > /dev/null 2>&1 &",
        "(setsid sh -c 'trap \"\" TERM; sleep 600; sleep 600' > /dev/null 2>&1 < /dev/null &) ; (setsid sleep 600 &)",
        "env -i setsid sleep 600 &",
    ],
)
def test_what_a_program_leaves_behind_is_ended_with_it(programs: Programs, leaving: str, tmp_path: Path) -> None:
    # The folder finds those that have cleared their environment too.
    status, printed = programs.run("sh", "-c", f"{leaving}\nexit 6")
    assert (status, printed) == (6, f"{LABEL} ended with status 6\n")
    assert in_folder(tmp_path) == []


def in_folder(folder: Path) -> list[str]:
    """Return the processes whose current folder it is."""
    found = subprocess.run(
        ["sh", "-c", 'for p in /proc/[0-9]*; do readlink "$p/cwd"; done'], capture_output=True, text=True, check=False
    )
    return [line for line in found.stdout.splitlines() if line == str(folder)]


def test_a_daemon_is_ended_while_it_forks(programs: Programs) -> None:
    script = "(setsid sh -c 'while :; do sleep 600 & done' > /dev/null 2>&1 &); sleep 0.2; exit 0"
    assert programs.run("sh", "-c", script, within=("prlimit", "--nproc=10000")) == (0, "")


def test_daemons_that_end_meanwhile_leave_no_zombies(programs: Programs) -> None:
    script = f"import os\nfor _ in range(20): os.fork() or (os.fork() and os._exit(0)) or os._exit(0)\n{WAITING}"
    process = programs.start(programs.config(sys.executable, "-c", script))
    until_within(PATIENCE_S, lambda: ready(programs))
    (watcher,) = children(process.pid)
    # Those whose parent is the program stay its own to read.
    until_within(PATIENCE_S, lambda: len(children(watcher)) == 1)
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert programs.left() == []


@pytest.mark.parametrize("victim", ["process", "watcher"])
def test_all_ends_when_either_of_its_two_processes_is_killed(programs: Programs, victim: str) -> None:
    process = programs.start(programs.config("sh", "-c", "(setsid sleep 600 &) ; echo ready; trap '' TERM; sleep 600"))
    until_within(PATIENCE_S, lambda: ready(programs))
    (watcher,) = children(process.pid)
    os.kill(process.pid if victim == "process" else watcher, signal.SIGKILL)
    printed = process.communicate(timeout=PATIENCE_S)[1]
    until_within(PATIENCE_S, lambda: programs.left() == [])
    if victim == "watcher":
        fault = f"{LABEL}: the process that watched it was ended by signal 9\n"
        assert (process.returncode, printed) == (125, fault)


def test_all_ends_when_the_process_that_started_it_is_killed(programs: Programs) -> None:
    path = programs.folder / "program.json"
    command = module_command(MODULE, str(path))
    script = f"import os, subprocess, sys; sys.stdin.readline(); subprocess.run({command!r})"
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, text=True)
    programs.config("sh", "-c", "(setsid sleep 600 &) ; echo ready; sleep 600", parent_pid=parent.pid).write(path)
    assert parent.stdin is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    until_within(PATIENCE_S, lambda: ready(programs))
    parent.kill()
    parent.communicate()
    until_within(PATIENCE_S, lambda: programs.left() == [])


def test_a_process_whose_parent_is_another_starts_nothing(programs: Programs) -> None:
    status, printed = programs.run("sh", "-c", "echo started", parent_pid=1)
    assert (status, printed) == (125, f"{LABEL}: its parent is not process 1: that one has ended\n")
    assert not programs.stdout.exists()


def test_a_full_disk_ends_the_program_and_names_the_file_and_its_last_line(
    programs: Programs, own_mounts: Callable[[str], list[str]]
) -> None:
    disk = programs.folder / "disk"
    disk.mkdir()
    within = own_mounts(f"mount -t tmpfs -o size=256k tmpfs {disk}")
    script = "while :; do echo training goes on; done"
    status, printed = programs.run("sh", "-c", script, stdout=str(disk / "stdout"), within=within)
    fault = f"{LABEL}: {disk}/stdout: No space left on device; it printed last: training goes on\n"
    assert (status, printed.replace("training go\n", "training goes on\n")) == (125, fault)


@pytest.mark.parametrize("name", ["stdout", "span_log"])
def test_a_file_that_cannot_be_made_is_named_and_nothing_starts(programs: Programs, name: str) -> None:
    fields: dict[str, Any] = {name: str(programs.folder / "none" / "file")}
    status, printed = programs.run("touch", "started", pattern="x", **fields)
    assert status == 125
    assert printed == f"{LABEL}: {programs.folder}/none/file: No such file or directory\n"
    assert not (programs.folder / "started").exists()


def test_the_rank_is_taken_from_torchruns_environment(programs: Programs) -> None:
    config = programs.config(
        *("sh", "-c", "echo step; exit 2"),
        pattern="step",
        span_log=str(programs.folder / "spans-{rank}.jsonl"),
        stdout=str(programs.folder / "stdout-{rank}"),
        rank_from_environment=True,
    )
    environment = {**os.environ, "RANK": "5", "LOCAL_RANK": "1"}
    assert programs.start(config, env=environment).communicate(timeout=PATIENCE_S)[1].endswith("status 2: step\n")
    assert (programs.folder / "stdout-5").read_text() == "step\n"
    header = json.loads((programs.folder / "spans-5.jsonl").read_text().split("\n")[0])
    assert (header["rank"], header["gpu"], header["pipeline"]) == (5, 1, 5)


def test_a_hook_finds_its_configuration_and_is_found_itself(programs: Programs) -> None:
    hook = {"log": str(programs.folder / "spans.jsonl"), "header": {"rank": 1}, "iterations": 3}
    script = "import json, os, sys; print(json.dumps([os.environ['WANBED_HOOK'], sys.path]))"
    assert programs.python(script, hook=hook, environment={"PYTHONPATH": "/of/mine"}) == (0, "")
    written, path = json.loads(programs.stdout.read_text())
    assert json.loads(Path(written).read_text()) == hook
    assert Path(written).parent == programs.folder
    assert path[1].endswith("workloads/user_programs/hook")
    assert path[2] == "/of/mine"


def test_a_configuration_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "program.json").write_text("{}")
    done = subprocess.run(
        module_command(MODULE, str(tmp_path / "program.json")), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (125, 1)
    assert done.stderr.startswith(f"wanbed program: {tmp_path}/program.json: the configuration: ")


def test_it_starts_without_what_is_slow_to_load(tmp_path: Path) -> None:
    script = f"import sys, {MODULE}; print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_it_writes_is_not_for_everybody_to_change(programs: Programs) -> None:
    programs.run("true")
    assert not stat.S_IMODE(programs.stdout.stat().st_mode) & 0o022
