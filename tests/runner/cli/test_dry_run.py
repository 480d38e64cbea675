"""The links that ``--dry-run`` lists."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from wanbed.runner.cli.dry_run import MAX_ROWS, link_documents, print_links
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment


def experiment(sweep: dict[str, Any], names: tuple[str, ...] = ("east", "west"), **topology: Any) -> Experiment:
    network = {"datacenters": [{"name": name, "hosts": 1} for name in names], **topology}
    return parse_experiment(
        {"topology": network, "training": {"stages": 1}, "compute": {"forward": "1ms"}, "sweep": sweep},
        "exp.yaml",
        Path(),
    )


def printed(of: Experiment, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    print_links(of, Console(width=120))
    return [line.split() for line in capsys.readouterr().out.splitlines() if "->" in line or "all" in line]


def test_each_link_is_listed_with_its_figures_and_what_gave_them(capsys: pytest.CaptureFixture[str]) -> None:
    links = [{"between": ["east", "west"], "loss": "1%"}, {"from": "east", "to": "west", "latency": "40ms"}]
    of = experiment({}, wan={"latency": "10ms", "rate": "1Gbit"}, links=links, scale={"rate": 0.5})
    common = ["500Mbit", "unlimited", "1%", "wan,", "links.0,", "links.1,", "scale"]
    assert printed(of, capsys) == [
        ["east", "->", "west", "40ms", *common],
        ["west", "->", "east", "10ms", *[each for each in common if each != "links.1,"]],
    ]


def test_sweep_points_with_the_same_links_are_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = {"topology.scale.latency": [1, 2], "training.microbatches": [2, 4]}
    of = experiment(sweep, ("eastus", "westeurope"), profile="azure")
    assert [row[:4] for row in printed(of, capsys)] == [
        ["scale.latency=1", "eastus", "<->", "westeurope"],
        ["scale.latency=2", "eastus", "<->", "westeurope"],
    ]
    assert [[values["training.microbatches"] for values in each["swept"]] for each in link_documents(of)] == [
        ["2", "4"],
        ["2", "4"],
    ]


def test_after_the_first_sweep_point_only_links_that_differ_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = {"topology.links[b, c].latency": ["1ms", "2ms"]}
    rows = printed(experiment(sweep, ("a", "b", "c"), wan={"latency": "5ms"}), capsys)
    assert [row[row.index("<->") - 1 : row.index("<->") + 3] for row in rows] == [
        ["a", "<->", "b", "5ms"],
        ["a", "<->", "c", "5ms"],
        ["b", "<->", "c", "1ms"],
        ["b", "<->", "c", "2ms"],
    ]


def test_a_long_list_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    rows = printed(experiment({}, tuple(f"d{number}" for number in range(12)), wan={"latency": "5ms"}), capsys)
    assert len(rows) == MAX_ROWS + 1
    assert rows[-1] == ["and", "6", "more", "rows:", "--json", "has", "all"]


def test_a_single_datacenter_has_no_links_to_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(experiment({}, ("east",)), capsys) == []
