"""Comparisons and plans are what the commands give, as values."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import wanbed
from wanbed.runner.cli.command_line import app

FIELDS: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "10ms", "rate": "1Gbit"},
    },
    "model": "gpt-a",
    "compute": {"forward": "5ms", "activation": "1MiB"},
    "training": {"microbatches": 4, "iterations": 3},
    "variants": [{"name": "stock", "schedule": "gpipe"}, {"name": "mine", "schedule": "1f1b"}],
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def as_json(*arguments: str) -> Any:
    return json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)


def test_a_comparison_is_that_of_the_command() -> None:
    run = wanbed.simulate(wanbed.Experiment(**FIELDS), jobs=1)
    comparison = wanbed.compare(run, str(run.path), pair={"stock": "mine"}, margin="1%")
    assert comparison.document() == as_json(
        "compare", str(run.path), str(run.path), "--pair", "stock=mine", "--margin", "1%"
    )
    assert comparison.verdict in {"same", "improved", "regressed"}
    (judgement,) = comparison.judgements
    assert judgement.ratio is not None


def test_runs_that_differ_are_not_comparable_until_the_field_is_allowed() -> None:
    experiment = wanbed.Experiment(**FIELDS)
    near = wanbed.simulate(experiment, jobs=1)
    far = wanbed.simulate(experiment.with_values({"topology.wan.latency": "40ms"}), jobs=1)
    refused = wanbed.compare(near, far)
    assert refused.verdict == "not_comparable"
    fields = {each.field for each in refused.check.refused}
    assert wanbed.compare(near, far, allow=sorted(fields)).verdict == "regressed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"margin": "2"}, "^margin 2: a percentage has its sign, write 2%$"),
        ({"allow": ["topologi"]}, "^allow: no field 'topologi'"),
        ({"pair": {"stock": "yours"}}, "^pair: .* has no variant 'yours'"),
        ({"pair": {}}, "is given twice: give another run, or with pair two of its variants$"),
    ],
)
def test_a_mistake_names_the_argument(arguments: dict[str, Any], message: str) -> None:
    run = wanbed.simulate(wanbed.Experiment(**FIELDS), jobs=1)
    with pytest.raises(wanbed.InputError, match=message):
        wanbed.compare(run, run, **{"pair": {"stock": "mine"}, **arguments})


def test_families_are_priced_beside_a_plan_as_the_command_does(tmp_path: Path) -> None:
    experiment = wanbed.Experiment(**FIELDS)
    experiment.to_file("exp.yaml")
    (plan,) = wanbed.plan(experiment, families=["pipeline", "diloco", "atom"], sync_every=2, swap="100GB/s")
    shown = as_json("plan", "exp.yaml", "--families", "pipeline,diloco,atom", "--sync-every", "2", "--swap", "100GB/s")
    assert [(each.family, each.counted_per_s) for each in plan.families] == [
        (each["family"], each["tokens_per_s"]) for each in shown["families"]
    ]
    assert [note.split(" are")[0] for note in plan.family_notes] == [
        f"{family}: its tokens a second" for family in ("diloco", "atom")
    ]
    with pytest.raises(wanbed.InputError, match=r"^swap: only ATOM swaps layers"):
        wanbed.plan(experiment, families=["diloco"], swap="100GB/s")


def test_there_is_a_plan_for_each_sweep_point_and_it_is_that_of_the_command(tmp_path: Path) -> None:
    experiment = wanbed.Experiment(**FIELDS, sweep={"topology.wan.latency": ["5ms", "40ms"]})
    experiment.to_file("sweep.yaml")
    plans = wanbed.plan(experiment)
    assert [plan.swept for plan in plans] == [{"topology.wan.latency": "5ms"}, {"topology.wan.latency": "40ms"}]
    assert {plan.variant for plan in plans} == {"stock"}
    for plan, shown in zip(plans, as_json("plan", "sweep.yaml")["sweep_points"], strict=True):
        chosen = shown["chosen"]
        assert list(plan.datacenters) == chosen["datacenters"]
        assert list(plan.placement) == chosen["placement"]
        assert plan.pipelines == chosen["dp_cells"] * chosen["pipelines_per_cell"]
        assert (plan.iteration_time_s, plan.tokens_per_s) == (chosen["iteration_time_s"], chosen["tokens_per_s"])


def test_a_plan_can_be_run() -> None:
    experiment = wanbed.Experiment(**FIELDS)
    (plan,) = wanbed.plan(experiment, variant="mine")
    values = {
        "training.pipelines": plan.pipelines,
        "variants": [{**FIELDS["variants"][1], "placement": plan.placement}],
    }
    run = wanbed.simulate(experiment.with_values(values), jobs=1)
    assert run.summary["tokens_per_s"][0] == pytest.approx(plan.tokens_per_s, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "yours"}, "^variant yours: Experiment has stock and mine$"),
        ({"search": "fast"}, "^search fast: there are greedy, better and exhaustive$"),
    ],
)
def test_a_mistake_of_a_plan_names_the_argument(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(wanbed.InputError, match=message):
        wanbed.plan(wanbed.Experiment(**FIELDS), **arguments)
