"""Runs of a user's program, compared and described."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.results.programs import MS, ProgramOnPaper, add_program, program_run
from tests.support.results.runs import flat, write_run
from wanbed import results
from wanbed.results.comparison.comparison import Comparison, check, compare
from wanbed.results.comparison.run_description import facts, what_was_run
from wanbed.results.reading.run import Run


@dataclass
class With(ProgramOnPaper):
    """A program that was started with other arguments."""

    arguments: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        known = super().facts()
        return {**known, "program": {**known["program"], "command": ["python", "train.py", *self.arguments]}}


def run_of(folder: Path, paper: ProgramOnPaper) -> Run:
    return results.load(program_run(folder, {"ddp": paper}))


def against(a: Run, b: Run) -> Comparison:
    return compare(check(a, b))


def test_another_command_is_what_the_comparison_is_about(tmp_path: Path) -> None:
    a = run_of(tmp_path, With(arguments=["--lr", "0.1"]))
    b = run_of(tmp_path, With(arguments=["--lr", "0.1", "--bucket", "1"], reduce_ns=90 * MS))
    found = against(a, b)
    assert [(each.field, each.a, each.b) for each in found.check.under_test] == [
        ("program.command", "python train.py --lr 0.1", "python train.py --lr 0.1 --bucket 1")
    ]
    assert found.check.refused == ()
    assert found.verdict == "no_data"  # one repeat decides nothing
    (judged,) = found.judgements
    assert judged.ratio is not None
    assert judged.ratio > 1.2


def test_a_program_and_a_schedule_stand_in_one_run(tmp_path: Path) -> None:
    paths = []
    for name in ("a", "b"):
        path = write_run(tmp_path / name, {("10ms", "gpipe"): flat(0.5)})
        add_program(path, "ddp", ProgramOnPaper(hosts=(("east-0", "east"), ("west-0", "west"))), repeats=5)
        paths.append(path)
    found = against(*map(results.load, paths))
    assert [(each.pair.a.variant, each.verdict) for each in found.judgements] == [("gpipe", "same"), ("ddp", "same")]


def test_what_was_run_names_the_command_and_no_stages(tmp_path: Path) -> None:
    training = {"stages": 3, "pipelines": 1, "microbatches": 4, "iterations": 6}
    path = program_run(tmp_path, {"ddp": ProgramOnPaper()}, training=training)
    text = what_was_run(results.load(path))
    assert "ddp runs a program: python train.py --lr 0.1." in text
    assert "stages" not in text


def test_beside_a_program_the_training_is_that_of_the_schedules(tmp_path: Path) -> None:
    path = write_run(tmp_path, {("10ms", "gpipe"): flat(0.5)}, training={"stages": 2, "iterations": 4})
    add_program(path, "ddp", ProgramOnPaper(hosts=(("east-0", "east"), ("west-0", "west"))))
    assert "Each trial of gpipe: 2 stages and 4 iterations, of which 1 to warm up." in what_was_run(results.load(path))


def test_the_facts_have_the_command_as_one_would_type_it(tmp_path: Path) -> None:
    known = dict(facts(results.load(program_run(tmp_path, {"ddp": ProgramOnPaper()}))))
    assert known["variant ddp"] == "program command python train.py --lr 0.1, launcher torchrun"
