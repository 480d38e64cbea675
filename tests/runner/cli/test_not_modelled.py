"""Everything that shows simulated figures reports what the simulation does not model, through the command line."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from wanbed.results import load
from wanbed.runner.cli.command_line import app

FILE: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "mid", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "20ms", "rate": "100Mbit"},
    },
    "compute": {"forward": "20ms", "backward": "40ms", "activation": "64KiB"},
    "training": {"microbatches": 2},
}
CLEAN = "simulated: links as configured, by construction"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("exp.yaml").write_text(yaml.safe_dump(FILE), encoding="utf-8")


def wanbed(*arguments: str, sets: tuple[str, ...] = ()) -> Any:
    options = [word for each in sets for word in ("--set", each)]
    return CliRunner().invoke(app, [*arguments, *options])


def simulated(*sets: str, into: str = "runs") -> Any:
    done = wanbed("simulate", "exp.yaml", "--jobs", "1", "--runs", into, sets=sets)
    assert done.exit_code == 0, done.output
    return done


def rows(*sets: str) -> list[dict[str, Any]]:
    done = wanbed("simulate", "exp.yaml", "--jobs", "1", "--json", sets=sets)
    assert done.exit_code == 0, done.output
    return list(json.loads(done.stdout)["summary"])


def only(folder: str) -> Path:
    (run,) = Path(folder).iterdir()
    return run


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    "command",
    [("simulate",), ("run", "--clock", "virtual"), ("run", "--dry-run"), ("run", "--engine", "simulate"), ("plan",)],
)
def test_a_link_that_loses_everything_is_refused_in_every_engine(command: tuple[str, ...]) -> None:
    done = wanbed(command[0], "exp.yaml", *command[1:], sets=("topology.wan.loss=100%",))
    assert (done.exit_code, done.stdout, os.listdir()) == (2, "", ["exp.yaml"]), done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith("wanbed: exp.yaml --set topology.wan.loss=100%")
    assert line.endswith(
        "topology.wan.loss: 100% between east and mid: nothing arrives, and nothing can be trained: give less"
    )


def test_a_sweep_that_comes_to_a_lost_link_is_refused_at_that_value() -> None:
    done = wanbed("simulate", "exp.yaml", sets=("sweep={topology.wan.loss: [1%, 100%]}",))
    assert done.exit_code == 2
    assert "sweep: at topology.wan.loss=100%: topology.wan.loss: 100% between east and mid" in done.stderr


def test_links_without_loss_and_jitter_are_as_asked() -> None:
    done = simulated()
    assert CLEAN in done.stdout
    assert "not modelled" not in done.output
    (row,) = load(only("runs")).summary.to_dict("records")
    assert (row["calibrated"], row["not_modelled"]) == (True, [])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("topology.wan.loss=2%",), "loss 2%, validated to 1% (east-mid, east-west and mid-west)"),
        (("topology.wan.jitter=9ms",), "jitter 9ms, validated to 5ms (east-mid, east-west and mid-west)"),
        (("topology.links=[{between: [west, mid], loss: 5%}]",), "loss 5%, validated to 1% (mid-west)"),
        (("topology.wan=null", "topology.profile=own.yaml"), "loss 2%, validated to 1% (east-mid)"),
    ],
)
def test_a_simulation_names_the_links_whose_loss_or_jitter_it_lacks(settings: tuple[str, ...], text: str) -> None:
    Path("own.yaml").write_text(
        "title: own\nsource: [{figures: all, origin: made}]\ndefault: {latency: 20ms, rate: 100Mbit}\n"
        "regions: [east, mid, west]\npairs: [{between: [east, mid], loss: 2%}]\n",
        encoding="utf-8",
    )
    done = simulated(*settings)
    assert f"not modelled, or beyond what was validated: {text}" in done.stderr
    assert CLEAN not in done.stdout
    assert f"simulated, links NOT as configured: {text} not modelled" in one_line(done.stdout)
    run = only("runs")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert 'role="alert"' in page
    assert f"The simulator does not model {text}, or not within what was validated" in page
    assert f"the links are not as configured: the simulator does not model {text}, or not within" in page
    assert f"simulated without {text}" in page
    assert "the links are as configured by construction" not in page
    (row,) = load(run).summary.to_dict("records")
    assert (row["calibrated"], row["not_modelled"]) == (False, [text])


def test_of_a_sweep_only_the_sweep_points_with_loss_are_marked() -> None:
    sweep = "sweep={topology.wan.loss: [0%, 2%]}"
    text = "loss 2%, validated to 1% (east-mid, east-west and mid-west)"
    assert [(row["calibrated"], row["not_modelled"]) for row in rows(sweep)] == [(True, []), (False, [text])]
    written = json.loads((only("runs") / "manifest.json").read_text())
    every = [["east", "mid"], ["east", "west"], ["mid", "west"]]
    assert [entry["not_modelled"] for entry in written["sweep_points"]] == [
        [],
        [{"field": "topology.wan.loss", "asked": "2%, validated to 1%", "links": every, "variants": []}],
    ]


def test_what_a_variant_asks_for_is_marked_and_leaves_the_links_as_asked() -> None:
    variants = "[{name: a, schedule: gpipe}, {name: b, schedule: gpipe, transport: {congestion: bbr}}]"
    assert f"{CLEAN}; not modelled: congestion bbr (b)" in one_line(simulated(f"variants={variants}").stdout)
    found = load(only("runs")).summary.to_dict("records")
    assert [(row["calibrated"], row["not_modelled"]) for row in found] == [(True, []), (True, ["congestion bbr"])]


def test_a_dilation_that_a_simulation_needs_not_is_reported() -> None:
    assert "dilation 4 is for a machine that cannot keep up: a simulation needs none" in simulated("dilation=4").stderr


def test_two_simulations_that_lack_the_same_are_compared_with_a_warning() -> None:
    for folder, schedule in (("a", "gpipe"), ("b", "1f1b")):
        simulated("topology.wan.loss=2%", f"variants=[{{name: x, schedule: {schedule}}}]", into=folder)
    done = wanbed("compare", str(only("a")), str(only("b")), "--json")
    document = json.loads(done.stdout)
    # What is drawn differs from repeat to repeat, of which one decides nothing.
    assert (done.exit_code, document["differences"]) == (4, [])
    text = "loss 2%, validated to 1% (east-mid, east-west and mid-west)"
    assert (
        document["warnings"][0]
        == f"The simulation of A and B does not model {text}: the ratio is valid only without it."
    )


def test_compare_refuses_a_loss_that_was_not_modelled_against_none_asked() -> None:
    simulated("topology.wan.loss=2%", into="a")
    simulated(into="b")
    done = wanbed("compare", str(only("a")), str(only("b")), "--json")
    (difference,) = json.loads(done.stdout)["differences"]
    assert done.exit_code == 3
    assert (difference["field"], difference["a"].replace("\u00a0", " "), difference["b"].replace("\u00a0", " ")) == (
        "topology.wan.loss",
        "2.00 %, not modelled",
        "0 %",
    )


def test_a_plan_says_what_it_is_made_without() -> None:
    done = wanbed("plan", "exp.yaml", sets=("topology.wan.jitter=5ms",))
    assert "not modelled        jitter 5ms (east-mid, east-west and mid-west): the plan is one without\n" in done.stdout
    document = json.loads(wanbed("plan", "exp.yaml", "--json", sets=("topology.wan.jitter=5ms",)).stdout)
    assert [(each["field"], each["asked"]) for each in document["not_modelled"]] == [("topology.wan.jitter", "5ms")]
    assert "not modelled" not in wanbed("plan", "exp.yaml").output
    assert json.loads(wanbed("plan", "exp.yaml", "--json").stdout)["not_modelled"] == []


def test_a_table_for_scripts_and_one_for_people_say_it_in_the_row() -> None:
    simulated("topology.links=[{between: [west, mid], loss: 5%}]")
    table = wanbed("report", str(only("runs")), "--format", "md").stdout
    assert "| **simulated without loss 5%, validated to 1% (mid-west)** (known to be off: " in table
    (row,) = json.loads(wanbed("report", str(only("runs")), "--format", "json").stdout)["headline"]
    assert (row["calibrated"], row["not_modelled"]) == (False, ["loss 5%, validated to 1% (mid-west)"])
    (row,) = csv.DictReader(wanbed("report", str(only("runs")), "--format", "csv").stdout.splitlines())
    text = "loss 5%, validated to 1% (mid-west)"
    assert (row["calibrated"], row["simulated"], row["not_modelled"]) == ("false", "true", text)
