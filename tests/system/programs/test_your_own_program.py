"""The page on programs of users: each of its commands does what the page says, and a slower program fails the gate."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "your-own-program.md"


def shortened(experiment: Path) -> None:
    """Leave of the experiment what shows the same in a minute: one variant at one latency, over one link."""
    document = yaml.safe_load(experiment.read_text(encoding="utf-8"))
    (small,) = (variant for variant in document["variants"] if variant["name"] == "ddp-small")
    small["program"] |= {"iterations": 9, "warmup": 2}
    del document["sweep"], document["topology"]["datacenters"][2]
    experiment.write_text(yaml.safe_dump({**document, "variants": [small], "repeats": 3, "dilation": 1}))


def commands() -> list[list[str]]:
    lines = [line.removeprefix("$ ") for block in blocks(PAGE, "console") for line in block.splitlines()]
    return [shlex.split(line) for line in lines]


def run(words: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command of the page in ``folder``."""
    assert words[0] == "wanbed"
    # What a shell does with a star.
    named = [name for word in words[1:] for name in (sorted(map(str, folder.glob(word))) if "*" in word else [word])]
    return subprocess.run(
        [sys.executable, "-m", "wanbed", *named],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_page_s_experiment_is_the_one_that_comes_with_wanbed(tmp_path: Path) -> None:
    (shown, *_) = (yaml.safe_load(block) for block in blocks(PAGE, "yaml"))
    run(["wanbed", "examples", "ddp"], tmp_path)
    shipped = yaml.safe_load((tmp_path / "ddp.yaml").read_text(encoding="utf-8"))
    assert shown == {name: shipped[name] for name in shown}


# Four runs of torch by real time. Each command has its own tests, and the gate those of `wanbed compare`.
@pytest.mark.measures
@pytest.mark.soak
def test_the_page_leads_from_one_script_to_a_gate_that_a_slower_program_fails(tmp_path: Path) -> None:
    *steps, compare = commands()
    assert compare[:2] == ["wanbed", "compare"]
    for words in steps:
        done = run(words, tmp_path)
        # A busy machine is worth a warning and status 1, and its figures are still written.
        assert done.returncode in {0, 1}, f"{words}: {done.stdout}{done.stderr}"
        if words[1] == "examples":
            shortened(tmp_path / "ddp.yaml")
    (report,) = tmp_path.glob("before/*/report.html")
    # Which of the two hosts has which rank, torchrun's agents agree on among themselves.
    assert " on west-0" in report.read_text(encoding="utf-8")
    done = run([*compare, "--allow", "calibration"], tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "REGRESSED: 1 of 1 pair" in done.stdout
