"""Run ``wanbed exec`` on a testbed that another process holds up."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from runner.cli.command_line import app
from testbed.hosts.joining import JoinedTestbed

EXPERIMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "40ms", "rate": "1Gbit"},
    }
}


def test_exec_ends_what_it_started_on_a_testbed_that_stays_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    class Interrupted:
        """A program that still runs when its caller is terminated."""

        def __init__(self, host: str) -> None:
            self.host = host
            self.killed = False

        def __enter__(self) -> "Interrupted":
            return self

        def __exit__(self, *_: object) -> None:
            assert self.killed, "waiting for it would take forever"

        def kill(self) -> None:
            self.killed = True

        def wait(self, timeout: float | None = None) -> int:
            if timeout is not None:
                raise subprocess.TimeoutExpired("iperf3", timeout)
            raise SystemExit(143)

    def spawn(_: JoinedTestbed, host: str, *__: object, **___: object) -> Interrupted:
        started.append(Interrupted(host))
        return started[-1]

    monkeypatch.setattr(
        "runner.cli.network.exec.join_testbed", lambda *_: JoinedTestbed("wb-1", {"east-0": 1, "west-0": 2})
    )
    monkeypatch.setattr(JoinedTestbed, "spawn", spawn)
    file = tmp_path / "exp.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    done = CliRunner().invoke(app, ["exec", str(file), "east-0", "--also", "west-0 iperf3 -s", "--", "sleep", "60"])
    assert done.exit_code == 143
    assert [(process.host, process.killed) for process in started] == [("west-0", True), ("east-0", True)]


def test_hosts_without_a_wan_are_never_those_of_a_testbed_that_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    @contextmanager
    def network_up(*_: object, shaped: bool, **__: object) -> Iterator[None]:
        asked.append(shaped)
        yield None

    monkeypatch.setattr("runner.cli.network.exec.join_testbed", lambda *_: pytest.fail("it looks for one to join"))
    monkeypatch.setattr("runner.cli.network.exec.network_up", network_up)
    monkeypatch.setattr("runner.cli.network.exec._run", lambda *_: 0)
    file = tmp_path / "exp.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    done = CliRunner().invoke(app, ["exec", str(file), "east-0", "--no-wan", "--", "true"])
    assert (done.exit_code, asked) == (0, [False])
    assert done.stderr.startswith("wanbed: NO WAN: ")


def test_hosts_without_a_wan_have_no_substrate(tmp_path: Path) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    done = CliRunner().invoke(app, ["exec", str(file), "east-0", "--no-wan", "--substrate", "guest", "--", "true"])
    assert done.exit_code == 2
    assert done.stderr == "wanbed: --no-wan: no substrate adds impairments then: leave --substrate out\n"


def test_hosts_without_a_wan_have_no_virtual_time(tmp_path: Path) -> None:
    file = tmp_path / "exp.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    done = CliRunner().invoke(app, ["exec", str(file), "east-0", "--no-wan", "--clock", "virtual", "--", "true"])
    assert done.exit_code == 2
    assert done.stderr == (
        "wanbed: --no-wan: what nothing limits takes no virtual time: leave it out, or give --clock real\n"
    )
