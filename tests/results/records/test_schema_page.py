"""The page about results says what is so."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulator.simulation_on_paper import simulate_on_paper
from wanbed.results.records.schema import SCHEMA_VERSION, TCP_SAMPLES
from wanbed.results.records.schema_page import BEGIN, END, main, unit_of, with_tables
from wanbed.results.records.trial_tables import TRIAL_TABLES
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.runs.manifest import gather_manifest
from wanbed.runner.simulated_runs.simulated_trial import SimulatedTrial, simulated_record

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results.md"
BuildRun = Callable[..., Path]


def keys_below(heading: str) -> set[str]:
    """The keys that the table below a heading of the page has in its first column."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    points = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {key for point in points for key in re.findall(r"`(\w+)`", point)}


def test_the_page_and_the_schema_agree() -> None:
    assert main([str(PAGE)]) == 0, (
        "bring the page up to date: python -m wanbed.results.records.schema_page --write docs/results.md"
    )
    assert f"The schema's version is {SCHEMA_VERSION}." in PAGE.read_text(encoding="utf-8")


def test_the_page_names_every_file_of_a_trial_and_its_data_frame() -> None:
    page = PAGE.read_text(encoding="utf-8")
    folder, reading = page.partition("\n## ")[0], page.partition("\n## Reading it\n")[2].partition("\n## ")[0]
    assert [table.file for table in TRIAL_TABLES.values() if f" {table.file} " not in folder] == []
    assert [table.frame for table in TRIAL_TABLES.values() if f"`{table.frame}`" not in reading] == []


def test_a_page_that_has_fallen_behind_is_reported_and_brought_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}| old |\n{END}after\n")
    assert main([str(page)]) == 1
    assert "--write" in capsys.readouterr().err
    assert page.read_text() == f"before\n{BEGIN}| old |\n{END}after\n"
    assert main(["--write", str(page)]) == main([str(page)]) == 0
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert all(f"| `{name}` | " in written for name in TCP_SAMPLES.names)


@pytest.mark.parametrize("page", ["", BEGIN, END])
def test_a_page_without_its_marks_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="lacks"):
        with_tables(page)


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("rtt_ns", "ns"),
        ("iteration_times_s", "s"),
        ("tokens_per_s", "tokens/s"),
        ("configured_rtt_ms", "ms"),
        ("drops", "packets"),
        ("gpu_utilization", "fraction"),
        ("peer", ""),
    ],
)
def test_a_unit_is_that_of_the_name(column: str, unit: str) -> None:
    assert unit_of(column) == unit


def test_the_example_works(build_run: BuildRun, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    run = build_run()
    monkeypatch.chdir(run.parent.parent)
    os.rename(run, run.with_name(re.findall(r'load\("runs/(.*?)"\)', example)[0]))
    exec(example, {})  # noqa: S102 - the page's own example


def test_every_key_that_is_known_before_a_run_starts_is_on_the_page(tmp_path: Path) -> None:
    experiment = parse_experiment({"topology": {"datacenters": [{"name": "east", "hosts": 1}]}}, "exp.yaml", tmp_path)
    later = {"run_id", "complete", "ended", "dilation", "capacity_bps", "simulator"}
    read_back = {
        "virtual_time",
        "substrate",
        "rights",
        "wan_delay_trim_ns",
        "burst_bytes",
        "small_transfers",
        "qdiscs",
        "sysctls",
        "offloads",
        *("cluster", "rack", "rack_hosts", "trunk_split"),
    }
    text = keys_below("The manifest")
    assert text == {*gather_manifest(experiment, checkout=tmp_path), *later, *read_back}


def test_every_key_of_a_simulated_trial_is_on_the_page(tmp_path: Path) -> None:
    east = {"name": "east", "hosts": 1, "gpu_price": "1USD/h"}
    document = {"topology": {"datacenters": [east]}, "engine": "simulate"}
    (point,) = parse_experiment(document, "exp.yaml", tmp_path).points()
    record = simulated_record(SimulatedTrial.of(point.trials()[0], point), simulate_on_paper)
    text = keys_below("trial.json")
    # What an emulation, torch, a prefill service, a planned schedule, drawn times, connections that are cut,
    # synchronisations, encoded activations, swapping, counters of links and RDMA, equal parts, or a kind of trial that
    # is known to be off add is not here.
    others = {"machine_load", "sysctls", "prefill", "plan", "connections_cut", "compute_times_drawn", "synchronization"}
    others |= {"activation"}
    others |= {"machine_loads", "clocks", "learning_seed", "text", "known_misses", "swapping"}
    others |= {"carried", "rdma_sent_bytes", "equal_parts"}
    assert text == {"sweep_point", "variant", "repeat", *record.facts, *others}
