"""The loop that a job script may repeat, as docs/results.md has it, ends with a complete run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import wanbed
from tests.docs.pages import DOCS, blocks
from tests.support.runner.small_experiment import small

(LOOP,) = (block for block in blocks(DOCS / "results.md", "") if block.startswith("for attempt in"))
EXPERIMENT = small(
    engine="simulate",
    variants=[{"name": "gpipe", "schedule": "gpipe"}],
    sweep={"topology.wan.latency": ["1ms", "2ms", "3ms"]},
)
KILLED_AT_FIRST = """#!/bin/sh
echo called >> calls
if [ $(wc -l < calls) -le {kills} ]; then
    {wanbed} "$@" &
    while ! ls runs/*/trials/*/*/*/trial.json >/dev/null 2>&1; do sleep 0.01; done
    kill -KILL $!
    wait $!
    exit
fi
exec {wanbed} "$@"
"""


def calls(folder: Path, document: object, kills: int = 0) -> int:
    """Run the loop in a folder, with a command that is killed so many times, and return how often it was called."""
    (folder / "experiment.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    command = folder / "bin/wanbed"
    command.parent.mkdir()
    script = KILLED_AT_FIRST.format(kills=kills, wanbed=f"{sys.executable} -m wanbed")
    command.write_text(script, encoding="utf-8")
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(DOCS.parent)}
    subprocess.run(["sh", "-c", LOOP], cwd=folder, env=environment, capture_output=True, check=True)
    return len((folder / "calls").read_text().splitlines())


@pytest.mark.parametrize("kills", [0, 2])
def test_it_goes_on_after_a_kill_until_the_run_is_complete(tmp_path: Path, kills: int) -> None:
    assert calls(tmp_path, EXPERIMENT, kills) == kills + 1
    (run,) = (tmp_path / "runs").iterdir()
    assert wanbed.load(run).complete
    assert len(wanbed.load(run).trials) == 3


def test_it_does_not_repeat_what_no_repetition_mends(tmp_path: Path) -> None:
    assert calls(tmp_path, {**EXPERIMENT, "variants": []}) == 1
