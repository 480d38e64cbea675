"""Run ``wanbed exec`` on a testbed that another process holds up."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml

from tests.support.runner.commands_here import called, refusal
from wanbed.ground.errors import InputError
from wanbed.runner.cli.exec import HostCommand, check_command, run_commands
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.hosts.joining import VISIT, JoinedTestbed

EXPERIMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "40ms", "rate": "1Gbit"},
    }
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The experiment's file in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "exp.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    return path


def test_exec_ends_what_it_started_on_a_testbed_that_stays_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = JoinedTestbed("wb-1", {"east-0": 1, "west-0": 2})
    started: list[subprocess.Popen[Any]] = []

    def spawn(_: JoinedTestbed, __: str, argv: list[str], **popen: Any) -> "subprocess.Popen[Any]":
        started.append(subprocess.Popen(argv, env={**os.environ, VISIT: joined.visit}, **popen))
        return started[-1]

    monkeypatch.setattr("wanbed.testbed.hosts.joining.join_testbed", lambda *_: joined)
    monkeypatch.setattr(JoinedTestbed, "spawn", spawn)
    leaving = "sleep 60 > /dev/null 2>&1 & exit 7"
    called("exec", file, "east-0", "--also", "west-0 sleep 60", "--", "sh", "-c", leaving, status=7)
    assert [process.returncode for process in started] == [-signal.SIGTERM, 7]
    assert marked_processes(joined.visit, VISIT) == [], "the child of a program that has ended"


@pytest.mark.usefixtures("file")
def test_programs_start_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[object] = []
    joined = JoinedTestbed("wb-1", {"east-0": 1, "west-0": 2})
    monkeypatch.setattr("wanbed.testbed.hosts.joining.join_testbed", lambda *_: joined)
    monkeypatch.setattr("wanbed.runner.cli.exec.run_commands", lambda *given: folders.append(given[-1]) or 0)
    called("exec", "exp.yaml", "east-0", "--", "true")
    assert folders == [str(tmp_path)]


def test_a_current_folder_that_is_gone_is_one_line(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = called("exec", file, "east-0", "--", "true", status=2)
    assert done.stderr == "wanbed: the current folder has been removed: change to another\n"


@pytest.mark.parametrize(
    ("also", "program", "host"), [("west-0 no-such", "true", "west-0"), ("west-0 true", "no-such", "east-0")]
)
def test_a_program_that_is_not_found_is_refused_before_a_network_is_built(
    also: str, program: str, host: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "wanbed.runner.emulation.network_choice.network_up", lambda *_, **__: pytest.fail("a network is built")
    )
    monkeypatch.setattr("wanbed.testbed.hosts.joining.join_testbed", lambda *_: None)
    words = refusal("exec", file, "east-0", "--also", also, "--", program, status=127)
    assert words == f"{host}: no-such: command not found"


def test_hosts_without_a_wan_are_never_those_of_a_testbed_that_is_up(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    @contextmanager
    def network_up(*_: object, shaped: bool, **__: object) -> Iterator[SimpleNamespace]:
        asked.append(shaped)
        yield SimpleNamespace(spawn=None)

    monkeypatch.setattr("wanbed.testbed.hosts.joining.join_testbed", lambda *_: pytest.fail("it looks for one to join"))
    monkeypatch.setattr("wanbed.runner.emulation.network_choice.network_up", network_up)
    monkeypatch.setattr("wanbed.runner.cli.exec.run_commands", lambda *_, **__: 0)
    assert called("exec", file, "east-0", "--no-wan", "--", "true").stderr.startswith("wanbed: NO WAN: ")
    assert asked == [False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--substrate", "guest"], "no substrate adds impairments then: leave --substrate out"),
        (["--clock", "virtual"], "what nothing limits takes no virtual time: give --clock real, or leave --no-wan out"),
    ],
)
def test_hosts_without_a_wan_have_no_substrate_and_no_virtual_time(file: Path, options: list[str], words: str) -> None:
    assert refusal("exec", file, "east-0", "--no-wan", *options, "--", "true") == f"--no-wan: {words}"


def spawn(_: str, argv: Sequence[str], **popen: Any) -> "subprocess.Popen[Any]":
    return subprocess.Popen(argv, **popen)


def shell(host: str, script: str) -> HostCommand:
    return HostCommand(host, ["sh", "-c", script])


def failed(tmp_path: Path, main: HostCommand, *beside: HostCommand) -> int:
    """Exit status of a command that ends by itself."""
    with pytest.raises(typer.Exit) as ended:
        run_commands(spawn, main, beside, str(tmp_path))
    return ended.value.exit_code


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)])
def test_the_programs_status_passes_through_as_a_shell_gives_it(tmp_path: Path, script: str, status: int) -> None:
    assert run_commands(spawn, shell("east-0", script), [], str(tmp_path)) == status


def test_all_programs_start_in_the_given_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_commands(spawn, shell("east-0", "pwd"), [shell("west-0", "pwd")], str(tmp_path)) == 0
    assert capfd.readouterr() == (f"{tmp_path}\n", f"west-0: {tmp_path}\n")


def test_output_of_those_beside_is_on_standard_error_each_line_after_its_host(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    beside = [shell("west-0", "echo one; echo two >&2; printf 'without an end'"), shell("west-1", "echo three")]
    assert run_commands(spawn, shell("east-0", "echo main"), beside, str(tmp_path)) == 0
    said = capfd.readouterr()
    assert said.out == "main\n"
    lines = {host: [line for line in said.err.splitlines() if line.startswith(host)] for host in ("west-0", "west-1")}
    assert lines == {"west-0": ["west-0: one", "west-0: two", "west-0: without an end"], "west-1": ["west-1: three"]}


def test_a_line_is_shown_when_it_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Python writes to a pipe only when its buffer is full or it ends."""
    seen = tmp_path / "seen"
    beside = HostCommand("west-0", [sys.executable, "-c", "import time; print('listening'); time.sleep(60)"])
    running = threading.Thread(
        target=run_commands,
        args=(spawn, shell("east-0", f"while ! [ -e {seen} ]; do sleep 0.01; done"), [beside], str(tmp_path)),
    )
    running.start()
    text, deadline = "", time.monotonic() + 30
    while "west-0: listening\n" not in text and time.monotonic() < deadline:
        text += capfd.readouterr().err
        time.sleep(0.01)
    seen.touch()
    running.join()
    assert text == "west-0: listening\n"


def test_one_beside_that_fails_at_once_prevents_the_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert failed(tmp_path, shell("east-0", "touch started"), shell("west-0", "echo no; exit 4")) == 4
    assert not (tmp_path / "started").exists()
    reason = "wanbed: --also: west-0: sh -c 'echo no; exit 4': ended with status 4 before the program on east-0\n"
    assert capfd.readouterr().err == f"west-0: no\n{reason}"


def test_one_beside_that_fails_later_ends_the_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    beside = shell("west-0", "while ! [ -e started ]; do sleep 0.01; done; kill -KILL $$")
    # For longer than any test may last.
    assert failed(tmp_path, shell("east-0", "touch started; exec sleep 3600"), beside) == 128 + signal.SIGKILL
    assert capfd.readouterr().err.endswith(": ended with signal SIGKILL before the program on east-0\n")


def test_one_beside_may_end_well_before_the_program(tmp_path: Path) -> None:
    main, beside = shell("east-0", "while ! [ -e done ]; do sleep 0.01; done"), shell("west-0", "touch done")
    assert run_commands(spawn, main, [beside], str(tmp_path)) == 0


def test_one_beside_that_outlives_the_program_is_terminated_and_is_no_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    beside = shell("west-0", "trap 'echo summary; exit 1' TERM; touch ready; while :; do sleep 0.01; done")
    main = shell("east-0", "while ! [ -e ready ]; do sleep 0.01; done")
    assert run_commands(spawn, main, [beside], str(tmp_path)) == 0
    assert capfd.readouterr().err == "west-0: summary\n"


def test_an_interrupted_program_may_end_by_itself_before_all_are_ended(tmp_path: Path) -> None:
    started: dict[str, subprocess.Popen[Any]] = {}

    def remembered(host: str, argv: Sequence[str], **popen: Any) -> "subprocess.Popen[Any]":
        started[host] = spawn(host, argv, **popen)
        return started[host]

    def interrupt() -> None:
        # The program may be ready before this process knows its number.
        while not ((tmp_path / "ready").exists() and "east-0" in started):
            time.sleep(0.01)
        # As a terminal does: to all of them. The program last: it ends in a tenth of a second, and nobody waits then.
        signal.raise_signal(signal.SIGINT)
        os.kill(started["east-0"].pid, signal.SIGINT)

    main = shell("east-0", "trap 'sleep 0.1; touch summary; exit 0' INT; touch ready; while :; do sleep 0.01; done")
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_commands(remembered, main, [shell("west-0", "exec sleep 60")], str(tmp_path))
    assert (tmp_path / "summary").exists()
    assert {host: process.returncode for host, process in started.items()} == {
        "east-0": 0,
        "west-0": -signal.SIGTERM,
    }


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("no-such-program", 127, "command not found"),
        ("./no-such-program", 127, "no such file"),
        (".", 127, "command not found"),
        ("./folder", 126, "that is a folder: give a program"),
        ("./text", 126, "not executable: chmod +x, or give the program that reads it"),
        ("text", 126, "not executable: chmod +x, or give the program that reads it"),
        ("", 127, "command not found"),
    ],
)
def test_a_program_that_cannot_run_is_refused_as_a_shell_does(
    *,
    program: str,
    status: int,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").touch()
    with pytest.raises(typer.Exit) as ended:
        check_command(HostCommand("west-0", [program, "-x"]), f"/usr/bin:/bin:{tmp_path}")
    assert ended.value.exit_code == status
    assert capsys.readouterr().err == f"wanbed: west-0: {shlex.quote(program)} -x: {reason}\n"


@pytest.mark.parametrize("program", ["sh", "/bin/sh", "./script"])
def test_a_program_that_is_there_is_accepted(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script").touch(mode=0o755)
    check_command(HostCommand("west-0", [program]), "/usr/bin:/bin")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("west-0", "give a host and a program"), ("", "give a host and a program"), ("west-0 'x", "No closing quotation")],
)
def test_a_text_without_host_or_program_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=rf"^--also .*: {reason}"):
        HostCommand.parse(text)


def test_a_text_is_split_as_a_shell_does() -> None:
    assert HostCommand.parse("west-0 sh -c 'echo hi'") == HostCommand("west-0", ["sh", "-c", "echo hi"])


def test_what_begins_with_the_program_begins_after_those_beside_it_were_started(tmp_path: Path) -> None:
    started: list[str] = []

    def remembered(host: str, argv: list[str], **options: Any) -> Any:
        started.append(host)
        return spawn(host, argv, **options)

    beside = [shell("west-0", "exec sleep 60")]
    run_commands(remembered, shell("east-0", "true"), beside, str(tmp_path), begin=lambda: started.append("begin"))
    assert started == ["west-0", "begin", "east-0"]
