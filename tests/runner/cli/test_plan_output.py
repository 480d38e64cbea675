"""Run ``wanbed plan --families``: other ways to train, priced beside the plan."""

import io
import json
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

from tests.support.clock import Clock
from tests.support.runner.commands_here import wanbed
from wanbed.runner.cli.plan_output import PlanProgress, progress_line
from wanbed.runner.planner.effort import Effort, Limits
from wanbed.runner.planner.families import SYNC_EVERY
from wanbed.runner.planner.search_space import Candidate, Price, Priced
from wanbed.runner.runs.progress import PLAIN_INTERVAL_S

CONTENT = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "20ms", "rate": "1Gbit"},
    },
    "compute": {"forward": "5ms", "backward": "10ms", "activation": "64KiB", "gradient": "1MiB"},
    "training": {"stages": 2, "microbatches": 4, "iterations": 3},
    "variants": [{"name": "atlas", "schedule": "atlas", "transport": {"model": "ideal"}}],
}

ONE = {**CONTENT, "topology": {"datacenters": [{"name": "east", "hosts": 4}]}}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(*arguments: str, content: object = CONTENT) -> Result:
    Path("exp.yaml").write_text(yaml.safe_dump(content))
    return wanbed("plan", "exp.yaml", *arguments)


def test_a_script_gets_the_price_of_each_family_and_whether_its_tokens_are_worth_the_same() -> None:
    done = planned("--families", "pipeline,hierarchical,diloco", "--sync-every", "5", "--json")
    answer = json.loads(done.stdout)
    families = {each["family"]: each for each in answer["families"]}
    assert {name: each["same_worth"] for name, each in families.items()} == {
        "pipeline": True,
        "hierarchical": True,
        "diloco": False,
    }
    assert families["pipeline"]["iteration_time_s"] == answer["chosen"]["iteration_time_s"]
    for each in families.values():
        assert each["sequences_per_s"] == pytest.approx(each["sequences"] / each["iteration_time_s"])


def test_a_reader_is_told_that_tokens_of_diloco_are_not_worth_the_same() -> None:
    done = planned("--families", "diloco,hierarchical", "--sync-every", "5")
    assert done.exit_code == 0
    assert "Ways to train" in done.stdout
    assert "diloco: its tokens a second are not worth the same" in done.stdout
    assert "hierarchical: each GPU holds the whole model" in done.stdout
    assert "not worth the same" not in planned("--families", "hierarchical").stdout


def test_atom_is_priced_with_the_rate_of_its_loads() -> None:
    model = {"layers": 4, "hidden": 64, "context": 64, "heads": 4, "vocabulary": 256}
    done = planned("--families", "atom", "--swap", "1GB/s", "--sync-every", "5", content={**CONTENT, "model": model})
    assert done.exit_code == 0
    assert "atom: its tokens a second are not worth the same" in done.stdout


def test_without_families_there_is_none() -> None:
    assert "families" not in json.loads(planned("--json").stdout)


def test_a_family_that_does_not_fit_is_told_and_left_out() -> None:
    done = planned("--families", "pipeline,diloco", "--json", content=ONE)
    assert [each["family"] for each in json.loads(done.stdout)["families"]] == ["pipeline"]
    assert "wanbed: diloco: it needs whole replicas in two datacenters or more, and none fits\n" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--families", "dilco"],
            "--families: 'dilco' is not known: give some of pipeline, hierarchical, diloco, atom",
        ),
        (["--sync-every", "5"], "--sync-every: only DiLoCo and ATOM synchronise: give --families diloco or atom too"),
        (
            ["--families", "atom", "--swap", "12GB/s"],
            "exp.yaml: model: schedule: atom, which swaps layers, needs one: give a model, like gpt-a",
        ),
    ],
)
def test_bad_options_are_one_line(arguments: list[str], text: str) -> None:
    done = planned(*arguments)
    assert done.exit_code == 2
    assert done.stderr == f"wanbed: {text}\n"


def test_the_help_says_how_seldom_replicas_synchronise_where_nothing_is_asked() -> None:
    text = " ".join(wanbed("plan", "--help").stdout.split())
    assert f"Iterations between DiLoCo's and ATOM's averages: {SYNC_EVERY}." in text


def test_the_line_has_time_candidates_the_running_simulation_and_the_best_so_far() -> None:
    clock = Clock()
    effort = Effort(Limits(simulations=10, time_s=300.0), clock=clock)
    effort.candidates = 128
    effort.before_simulation()
    effort.pulse(0.406)
    assert (
        progress_line(effort)
        == "0:00 of 5:00 of wall-clock time; 0 of 128 candidates simulated, at most 10; the next is at 41 %"
    )
    effort.after_simulation(Priced(Candidate(4, 2, (("east", 2), ("west", 1))), Price(12.5, 1000.0, 0.5, 0), 1000.0))
    clock.now_s = 61.0
    assert progress_line(effort).replace("\xa0", " ") == (
        "1:01 of 5:00 of wall-clock time; 1 of 128 candidates simulated, at most 10; "
        "best so far: 12.5 s an iteration on 24 GPUs in east and west"
    )


def test_a_number_of_candidates_that_is_not_known_is_not_claimed() -> None:
    effort = Effort(clock=Clock())
    effort.examined = 1200
    assert progress_line(effort) == "0:00; 0 candidates simulated; 1,200 partial placements examined"


def test_without_a_terminal_there_is_a_line_every_few_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    effort = Effort(clock=clock)
    with PlanProgress(stream=stream, clock=clock) as progress:
        progress.report(effort)
        assert stream.getvalue() == ""
        for _ in range(3):
            clock.now_s += PLAIN_INTERVAL_S / 2
            progress.report(effort)
    assert stream.getvalue() == "wanbed: 0:05; 0 candidates simulated\n"
