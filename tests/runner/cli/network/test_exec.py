"""Run ``wanbed exec`` on a testbed that another process holds up."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from wanbed.runner.cli.command_line import app
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.hosts.joining import VISIT, JoinedTestbed

EXPERIMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "40ms", "rate": "1Gbit"},
    }
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
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
    done = CliRunner().invoke(
        app, ["exec", str(file), "east-0", "--also", "west-0 sleep 60", "--", "sh", "-c", leaving]
    )
    assert done.exit_code == 7
    assert [process.returncode for process in started] == [-signal.SIGTERM, 7]
    assert marked_processes(joined.visit, VISIT) == [], "the child of a program that has ended"


def test_programs_start_in_the_current_folder(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[object] = []
    joined = JoinedTestbed("wb-1", {"east-0": 1, "west-0": 2})
    monkeypatch.setattr("wanbed.testbed.hosts.joining.join_testbed", lambda *_: joined)
    monkeypatch.setattr(
        "wanbed.runner.cli.network.host_commands.run_commands", lambda *given: folders.append(given[-1]) or 0
    )
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["exec", "exp.yaml", "east-0", "--", "true"]).exit_code == 0
    assert folders == [str(tmp_path)]


def test_a_current_folder_that_is_gone_is_one_line(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = CliRunner().invoke(app, ["exec", str(file), "east-0", "--", "true"])
    assert (done.exit_code, done.stderr) == (2, "wanbed: the current folder has been removed: change to another\n")


@pytest.mark.parametrize("where", ["program", "also"])
def test_a_program_that_is_not_found_is_refused_before_a_network_is_built(
    where: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "wanbed.runner.emulation.network_choice.network_up", lambda *_, **__: pytest.fail("a network is built")
    )
    monkeypatch.setattr("wanbed.testbed.hosts.joining.join_testbed", lambda *_: None)
    also, program = ("west-0 no-such", "true") if where == "also" else ("west-0 true", "no-such")
    done = CliRunner().invoke(app, ["exec", str(file), "east-0", "--also", also, "--", program])
    host = "west-0" if where == "also" else "east-0"
    assert (done.exit_code, done.stderr) == (127, f"wanbed: {host}: no-such: command not found\n")


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
    monkeypatch.setattr("wanbed.runner.cli.network.host_commands.run_commands", lambda *_, **__: 0)
    done = CliRunner().invoke(app, ["exec", str(file), "east-0", "--no-wan", "--", "true"])
    assert (done.exit_code, asked) == (0, [False])
    assert done.stderr.startswith("wanbed: NO WAN: ")


def test_hosts_without_a_wan_have_no_substrate(file: Path) -> None:
    done = CliRunner().invoke(app, ["exec", str(file), "east-0", "--no-wan", "--substrate", "guest", "--", "true"])
    assert done.exit_code == 2
    assert done.stderr == "wanbed: --no-wan: no substrate adds impairments then: leave --substrate out\n"


def test_hosts_without_a_wan_have_no_virtual_time(file: Path) -> None:
    done = CliRunner().invoke(app, ["exec", str(file), "east-0", "--no-wan", "--clock", "virtual", "--", "true"])
    assert done.exit_code == 2
    assert done.stderr == (
        "wanbed: --no-wan: what nothing limits takes no virtual time: leave it out, or give --clock real\n"
    )
