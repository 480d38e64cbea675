"""The commands of docs/known-misses.md, as printed, hold an experiment's simulation against virtual time."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.runner.cli.command_line import app
from wanbed.runner.experiments.shipped_experiments import shipped_experiments

PAGE = Path(__file__).parents[3] / "docs" / "known-misses.md"


def test_the_commands_of_the_page_end_in_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_or_skip()
    (first,) = (each.path for each in shipped_experiments() if each.name == "first")
    # At 20 ms its pauses are as long as TCP's timeout, and 0.3 ms decide whether windows open anew.
    (tmp_path / "experiment.yaml").write_text(first.read_text().replace("latency: 20ms", "latency: 10ms"))
    monkeypatch.chdir(tmp_path)
    section = PAGE.read_text().partition("## Measure it yourself")[2]
    commands = re.findall(r"^\.venv/bin/wanbed (.*)$", section, re.MULTILINE)
    assert len(commands) == 3
    runs: list[Path] = []
    for command in commands:
        names = dict(zip(("runs/THE-FIRST", "runs/THE-SECOND"), map(str, runs), strict=False))
        done = CliRunner().invoke(app, [names.get(word, word) for word in shlex.split(command)])
        assert done.exit_code == 0, done.output
        runs += [each for each in (tmp_path / "runs").iterdir() if each not in runs]
    assert "same: 1 pair" in done.output
