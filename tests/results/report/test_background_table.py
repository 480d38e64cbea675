import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.results.trace_rules import load_trace, problems
from tests.support.runner.background import TO_WEST, with_background
from wanbed.results.perfetto.trace_file import write_trace
from wanbed.results.reading.run import Run, load_run
from wanbed.results.reading.selection import Selection
from wanbed.results.report.background_table import background_rows
from wanbed.results.report.report import write_report
from wanbed.results.report.text_formats import table_text
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulated_run

FLOWS = (
    {**TO_WEST, "name": "steady", "rate": "20Mbit"},
    {**TO_WEST, "name": "bursts", "rate": "20Mbit", "on_off": {"burst": "100ms", "pause": "100ms"}},
    {"name": "back", "from": "west", "to": "east", "rate": "10Mbit", "protocol": "udp"},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    document = with_background(*FLOWS, compute={"forward": "50ms", "backward": "50ms", "activation": "1MiB"})
    experiment = parse_experiment({"engine": "simulate", **document}, "file", Path())
    runs = tmp_path_factory.mktemp("runs")
    return load_run(simulated_run(experiment, runs, resume=False, pool=ProcessPool(1), log=lambda _: None))


def test_each_flow_has_a_row_with_what_it_carried(run: Run) -> None:
    rows = background_rows(run)
    steady, bursts, back = rows
    assert (steady.flow, steady.source, steady.destination) == ("steady", "east", "west")
    assert steady.goodput_bps == pytest.approx(20e6 * 1448 / 1514, rel=0.02)
    assert steady.wire_share == pytest.approx(0.2, rel=0.02)
    assert back.goodput_bps == pytest.approx(10e6 * 1472 / 1514, rel=0.02)
    assert [row.synthetic for row in rows] == [False, True, False]
    assert bursts.kind == "on-off"


def test_traffic_of_flows_is_not_counted_as_trainings(run: Run) -> None:
    assert set(run.link_samples["scope"]) == {"link", "node_pair", "background"}
    carried = run.link_samples.groupby(["scope", "source"], observed=True)["wire_bytes"].max()
    assert carried["link", "east"] == carried["node_pair", "east-0"]
    assert run.summary["wan_bytes"].item() == carried["link", "east"] + carried["link", "west"]
    assert carried["background", "east-background-0"] > 0


def test_manifest_and_trial_name_the_flows_and_which_are_synthetic(run: Run) -> None:
    (point,) = run.manifest["sweep_points"]
    (trial,) = run.trials
    assert point["background"] == trial.facts["background"]
    assert [(each["name"], each["kind"], each["synthetic"]) for each in point["background"]] == [
        ("steady", "rate", False),
        ("bursts", "on-off", True),
        ("back", "rate", False),
    ]


def test_page_markdown_and_json_have_the_table(run: Run, tmp_path: Path) -> None:
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Traffic in the background" in page
    assert "traffic in the background" in page
    table = table_text([run], "md")
    assert "| steady | a rate, over 1 connection | east | west |" in table
    assert "| bursts | bursts, over 1 connection, synthetic | east | west |" in table
    assert [row["flow"] for row in json.loads(table_text([run], "json"))["background"]] == ["steady", "bursts", "back"]


def test_a_trace_has_a_counter_of_each_flows_goodput(run: Run, tmp_path: Path) -> None:
    write_trace(run.path, tmp_path / "trace.json", Selection())
    trace = load_trace(tmp_path / "trace.json")
    assert problems(trace) == []
    steady = [event for event in trace["traceEvents"] if event["ph"] == "C" and "goodput of steady" in event["name"]]
    assert {event["name"] for event in steady} == {"east-background-0 \u2192 west-background-0 goodput of steady"}
    times_us = [float(event["ts"]) for event in steady]
    rates = [float(rate) for event in steady for rate in event["args"].values()]
    lengths_us = [later - earlier for earlier, later in pairwise(times_us)]
    carried = sum(rate * length_us for rate, length_us in zip(rates, lengths_us, strict=False))
    assert carried / sum(lengths_us) == pytest.approx(20 * 1448 / 1514, rel=0.05)
    named = {event["name"].rpartition(" ")[2] for event in trace["traceEvents"] if "goodput of" in event["name"]}
    assert named == {"steady", "bursts", "back"}
