import os
import sys
from pathlib import Path

import pytest

from wanbed.runner.cli import user_namespace as module
from wanbed.runner.cli.user_namespace import enter_user_namespace, enter_user_namespace_for, entering_command
from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.testbed.rights import HostsAllowed

FILE = "topology: {datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}], wan: {latency: 10ms}}\n"
REFUSED = "unshare: Operation not permitted"
ONLY_INSIDE = HostsAllowed(REFUSED, None, 1000)


class ReplacedError(Exception):
    """Stands for the end of this process's program."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What took this process's place, where hosts can be made only in a user namespace."""
    commands: list[list[str]] = []

    def replace(_: str, argv: list[str]) -> None:
        commands.append(argv)
        raise ReplacedError

    monkeypatch.setattr(module, "hosts_allowed", lambda: ONLY_INSIDE)
    monkeypatch.setattr(module, "report_leftovers", lambda: None)
    monkeypatch.setattr(os, "execvp", replace)
    return commands


def test_the_same_command_is_started_again_inside() -> None:
    assert entering_command("/venv/bin/python", ["python", "-m", "wanbed", "run", "my file.yaml"]) == [
        *("unshare", "--user", "--map-root-user", "--net"),
        *("/venv/bin/python", "-m", "wanbed", "run", "my file.yaml"),
    ]


def test_entering_is_reported_in_one_line(started: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ReplacedError):
        enter_user_namespace()
    assert started == [entering_command(sys.executable, sys.orig_argv)]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("wanbed: not root: the network is made in a user namespace of your own, ")


def test_a_closed_standard_output_is_no_fault(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(ReplacedError):
        enter_user_namespace()
    assert len(started) == 1


@pytest.mark.parametrize("allowed", [HostsAllowed(None), HostsAllowed(REFUSED, REFUSED, 1000)])
def test_nothing_happens_where_it_would_not_help(
    allowed: HostsAllowed, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "hosts_allowed", lambda: allowed)
    enter_user_namespace()
    assert started == []


@pytest.mark.parametrize(
    ("lines", "overrides", "enters"),
    [
        ("", [], True),
        ("engine: simulate\n", [], False),
        ("clock: virtual\n", [], False),
        ("", ["clock=virtual"], False),
        ("engine: simulate\n", ["engine=emulate"], True),
    ],
)
def test_only_a_network_in_real_time_is_entered_for(
    lines: str, overrides: list[str], enters: bool, started: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / "exp.yaml").write_text(f"{FILE}{lines}")
    if enters:
        with pytest.raises(ReplacedError):
            enter_user_namespace_for(ExperimentDocument.read(tmp_path / "exp.yaml", overrides))
    else:
        enter_user_namespace_for(ExperimentDocument.read(tmp_path / "exp.yaml", overrides))
    assert len(started) == enters


def test_the_relay_needs_no_user_namespace(started: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "exp.yaml").write_text(FILE)
    enter_user_namespace_for(ExperimentDocument.read(tmp_path / "exp.yaml"), "relay")
    assert started == []
