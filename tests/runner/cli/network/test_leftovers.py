import os

import pytest

from runner.cli.network import leftovers as module
from runner.cli.network.leftovers import report_leftovers
from testbed.claims.cleaning import Leftover

LEFT = Leftover("wb-1", "/home/me/exp.yaml", processes=12, namespaces=3)


def reported(
    left: list[Leftover], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], user: int = 0
) -> str:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(module, "leftovers", lambda: left)
    report_leftovers()
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_leftovers_are_one_line_with_the_command_that_removes_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reported([LEFT], monkeypatch, capsys) == (
        "wanbed: killed runs left wb-1 of /home/me/exp.yaml (12 processes, 3 network namespaces): "
        "`wanbed clean` removes what they left\n"
    )


def test_many_leftovers_are_still_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    line = reported([Leftover(f"wb-{number}", "x", 0, 0) for number in range(9)], monkeypatch, capsys)
    assert line.startswith("wanbed: killed runs left wb-0 of x (its record), wb-1 of x (its record), ")
    assert ", and 6 more: `wanbed clean` " in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(("left", "user"), [([], 0), ([LEFT], 1000)])
def test_nothing_is_said_where_nothing_is_left_or_can_be_seen(
    left: list[Leftover], user: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reported(left, monkeypatch, capsys, user) == ""
