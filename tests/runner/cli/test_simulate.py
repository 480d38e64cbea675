"""Run ``wanbed simulate`` with a fake simulator core."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.runner.commands_here import called, printed, refusal, wanbed
from tests.support.runner.small_experiment import small
from tests.support.simulator.simulation_on_paper import DEADLOCKING, simulate_on_paper
from wanbed import results
from wanbed.runner.runs.faults import NO_DATA
from wanbed.runner.simulated_runs import simulated_run

SWEPT = small(
    training={"microbatches": 4},
    variants=[{"name": "gpipe", "schedule": "gpipe"}, {"name": "1f1b", "schedule": "1f1b"}],
    sweep={"topology.wan.latency": ["10ms", "40ms"]},
)

TORCH = {"compute": {"kind": "torch", "checkpointing": False}, "model": "gpt-tiny", "training": {"microbatches": 4}}


@pytest.fixture(autouse=True)
def _on_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = partial(simulated_run.simulate_sweep, simulate=simulate_on_paper)
    monkeypatch.setattr(simulated_run, "simulate_sweep", sweep)


@contextmanager
def simulating(monkeypatch: pytest.MonkeyPatch, simulate: Any) -> Iterator[None]:
    """Simulate each trial by that function within the block."""
    with monkeypatch.context() as patch:
        patch.setattr(simulated_run, "simulate_sweep", partial(simulated_run.simulate_sweep, simulate=simulate))
        yield


def written(**changes: Any) -> str:
    Path("exp.yaml").write_text(yaml.safe_dump({**SWEPT, **changes}), encoding="utf-8")
    return "exp.yaml"


def test_the_sweep_is_simulated_without_asking_for_root_or_netem() -> None:
    done = called("simulate", written(), "--jobs", "1")
    assert "by construction" in done.stdout
    (folder,) = Path("runs").iterdir()
    assert done.stdout.splitlines()[-1] == f"report: {folder}/report.html"
    run = results.load(folder)
    assert run.complete
    assert [(trial.point, trial.variant) for trial in run.trials] == [(c, v) for c in (0, 1) for v in ("gpipe", "1f1b")]
    assert list(pd.read_parquet(folder / "summary.parquet")["variant"]) == list(run.summary["variant"])


def test_a_file_with_engine_simulate_gives_the_same_run() -> None:
    asked = wanbed("simulate", written(), "--jobs", "1", "--json")
    named = called("run", written(engine="simulate"), "--jobs", "1", "--json")
    assert json.loads(named.stdout)["summary"] == json.loads(asked.stdout)["summary"]
    one, other = (json.loads((folder / "manifest.json").read_text()) for folder in Path("runs").iterdir())
    assert one["config_hash"] == other["config_hash"]


def test_the_summary_says_that_it_is_a_simulation_whose_links_are_as_asked() -> None:
    rows = printed("simulate", written(), "--jobs", "1")["summary"]
    assert len(rows) == 4
    for row in rows:
        assert (row["engine"], row["clock"], row["dilation"], row["calibrated"]) == ("simulate", None, 1.0, True)
        assert row["wan_bytes"] == 2 * 4 * 3 * 2**20
        assert len(row["iteration_times_s"]) == 2


def test_a_simulation_ignores_dilation() -> None:
    as_it_is = printed("simulate", written(), "--jobs", "1")["summary"]
    assert printed("simulate", written(dilation=4), "--jobs", "1")["summary"] == as_it_is


def test_the_report_claims_no_measurement_and_warns_of_nothing_but_kinds_that_are_known_to_be_off() -> None:
    by_mean = [{**variant, "transport": {"model": "mean"}} for variant in SWEPT["variants"]]
    wanbed("simulate", written(variants=by_mean), "--jobs", "1")
    (page,) = (path.read_text(encoding="utf-8") for path in Path("runs").glob("*/report.html"))
    assert "Nothing was measured: the links are as configured by construction." in page
    assert "Simulated as discrete events" in page
    assert page.count('role="alert"') == 1
    assert "2 of 4 trials are of kinds whose simulation is known to be off" in page
    assert 'data-label="calibrated"' not in page
    assert page.count('data-label="simulation"') == 4
    assert page.count('<span class="range why">known to be off: ') == 2


def test_repeats_of_a_simulation_run_once() -> None:
    done = wanbed("simulate", written(repeats=3, sweep={}), "--jobs", "1", "--json")
    assert [row["repeat"] for row in json.loads(done.stdout)["summary"]] == [0, 0]
    text = "a simulation gives the same every time: each trial runs once, not 3 times"
    assert sum(text in line for line in done.stderr.splitlines()) == 1
    assert [trial["repeat"] for trial in printed("simulate", "exp.yaml", "--dry-run")["trials"]] == [0, 0]
    (page,) = (path.read_text(encoding="utf-8") for path in Path("runs").glob("*/report.html"))
    assert "incomplete" not in page


def test_a_deadlock_ends_with_status_2_and_one_line_and_keeps_what_had_finished() -> None:
    file = written(variants=[*SWEPT["variants"], {"name": DEADLOCKING, "schedule": "gpipe"}])
    done = called("simulate", file, "--jobs", "1", status=2)
    (folder,) = Path("runs").iterdir()
    assert done.stderr.splitlines()[-1] == (
        "wanbed: topology.wan.latency=10ms: deadlocks: stage 1 waits for the activation of microbatch 0; last: forward "
        f"0 at stage 0; {folder} keeps 2 of 6 trials: the same command with --resume goes on"
    )
    run = results.load(folder)
    assert not run.complete
    assert [trial.variant for trial in run.trials] == ["gpipe", "1f1b"]


def test_a_run_that_another_process_writes_is_left_to_it_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def within(*_: Any, **__: Any) -> Any:
        beside = called("simulate", "exp.yaml", "--jobs", "1", "--resume", status=2)
        (folder,) = Path("runs").iterdir()
        assert beside.stderr.splitlines()[-1] == (
            f"wanbed: --resume: {folder} is being written by another process, let it end"
        )
        raise KeyboardInterrupt

    monkeypatch.setattr(simulated_run, "simulate_sweep", within)
    called("simulate", written(), "--jobs", "1", status=130)


def test_a_run_that_was_cut_off_is_resumed_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(topology: Any, variant: Any, iterations: int, **effects: Any) -> Any:
        if variant.name == "1f1b":
            raise KeyboardInterrupt
        return simulate_on_paper(topology, variant, iterations, **effects)

    with simulating(monkeypatch, interrupted):
        cut_off = wanbed("simulate", written(), "--jobs", "1")
    assert cut_off.exit_code == 130
    assert cut_off.stderr.splitlines()[-1].endswith("keeps 1 of 4 trials: the same command with --resume goes on")
    done = called("simulate", "exp.yaml", "--jobs", "1", "--resume")
    assert "4 trials, 1 of them finished before" in done.stderr
    (folder,) = Path("runs").iterdir()
    assert results.load(folder).complete
    again = called("simulate", "exp.yaml", "--resume")
    assert f"--resume: {folder} is complete already, nothing is run again" in again.stderr
    assert f"report: {folder}/report.html" in again.stdout


def test_trials_that_were_removed_from_a_complete_run_run_again() -> None:
    called("simulate", written(), "--jobs", "1")
    (folder,) = Path("runs").iterdir()
    whole = results.load(folder)
    shutil.rmtree(whole.trials[1].folder)
    again = called("simulate", "exp.yaml", "--jobs", "1", "--resume")
    assert f"--resume: {folder} was complete, and has lost 1 trial since, which will run again" in again.stderr
    assert results.load(folder).spans.equals(whole.spans)
    assert results.load(folder).complete


def test_of_a_trial_that_is_removed_while_the_run_goes_on_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def removing(topology: Any, variant: Any, iterations: int, **effects: Any) -> Any:
        for finished in Path("runs").glob("*/trials/point-000/*"):
            shutil.rmtree(finished)
        return simulate_on_paper(topology, variant, iterations, **effects)

    with simulating(monkeypatch, removing):
        lost = wanbed("simulate", written(), "--jobs", "1")
    (folder,) = Path("runs").iterdir()
    (said,) = [line for line in lost.stderr.splitlines() if "removed while" in line]
    assert lost.exit_code == NO_DATA
    assert said.startswith(f"wanbed: {folder}/trials/point-000/")
    assert said.endswith("trials: the same command with --resume goes on")
    called("simulate", "exp.yaml", "--jobs", "1", "--resume")
    assert len(results.load(folder).trials) == 4


def test_one_command_starts_continues_and_ends() -> None:
    """A job script repeats the command with --resume until it succeeds."""
    first = called("simulate", written(), "--jobs", "1", "--resume")
    assert "wanbed: --resume: runs holds no run of this file as it is now: a new one starts" in first.stderr
    called("simulate", "exp.yaml", "--jobs", "1", "--resume")
    assert len(list(Path("runs").iterdir())) == 1


def test_a_full_disk_is_reported_with_the_file_and_the_run_stays_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        # As Arrow raises it: without a file name.
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    called("simulate", written(sweep={}), "--jobs", "1")
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", full)
        done = wanbed("simulate", written(), "--jobs", "1")
    assert done.exit_code == 2
    line = done.stderr.splitlines()[-1]
    assert "/repeat-0.partial/spans.parquet: No space left on device: give another place, or make room" in line
    assert line.endswith("keeps 0 of 4 trials: the same command with --resume goes on")
    for folder in Path("runs").iterdir():
        results.load(folder)


def test_a_run_that_cannot_be_begun_on_a_full_disk_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = written()
    monkeypatch.setattr(Path, "write_text", full)
    done = called("simulate", file, "--jobs", "1", status=2)
    assert done.stderr.startswith("wanbed: --runs: runs: cannot be written to (No space left on device)")
    assert os.listdir("runs") == []


def test_ideal_transport_switches_every_effect_off() -> None:
    ideal = [{"name": "ideal", "schedule": "gpipe", "transport": {"model": "ideal"}}, *SWEPT["variants"]]
    wanbed("simulate", written(variants=ideal, sweep={}), "--jobs", "1")
    (folder,) = Path("runs").iterdir()
    effects = {trial.variant: trial.facts["tcp_effects"] for trial in results.load(folder).trials}
    assert set(effects.pop("ideal").values()) == {False}
    assert [set(each.values()) for each in effects.values()] == [{True}] * 2


def test_torch_s_times_are_a_profile_s_and_the_report_says_so() -> None:
    done = called("simulate", written(**TORCH), "--jobs", "1")
    assert "torch does not run in a simulation: a compute profile gives its times" in done.stderr
    (page,) = (path.read_text(encoding="utf-8") for path in Path("runs").glob("*/report.html"))
    assert "Torch did not run: its times come from the compute profile cpu" in page


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {**TORCH, "variants": [{"name": "a", "schedule": "torch-gpipe"}]},
            "exp.yaml: variants.0.schedule: torch-gpipe is run by torch itself and is not simulated: give engine: "
            "emulate, or leave the variant out",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(changes: dict[str, Any], text: str) -> None:
    file = written(**{"sweep": {}, **changes})
    assert refusal("simulate", file) == text
    assert refusal("run", file, "--engine", "simulate").endswith(text.removeprefix("exp.yaml"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["simulate", "exp.yaml", "--set", "engine=emulate"],
            "--set engine: wanbed simulate always simulates: use wanbed run, or leave --set engine out",
        ),
        (
            ["run", "exp.yaml", "--engine", "simulate", "--substrate", "kernel"],
            "--substrate: a simulation has none: give engine: emulate, or leave --substrate out",
        ),
        (
            ["run", "exp.yaml", "--engine", "simulate", "--keep-gradients"],
            "--keep-gradients: a simulation has none: give engine: emulate, or leave --keep-gradients out",
        ),
        (
            ["run", "exp.yaml", "--jobs", "2"],
            "--jobs: an emulation runs one trial at a time: give engine: simulate, or leave --jobs out",
        ),
    ],
)
def test_options_of_the_other_engine_are_refused(arguments: list[str], text: str) -> None:
    written()
    assert refusal(*arguments) == text


def test_no_jobs_are_bad_usage() -> None:
    called("simulate", written(), "--jobs", "0", status=2)


def test_a_datacenter_of_thousands_of_hosts_can_be_simulated() -> None:
    hosts = [{"name": "east", "hosts": 3000}, {"name": "west", "hosts": 3000}]
    topology = {**SWEPT["topology"], "datacenters": hosts}
    called("simulate", written(topology=topology, training={"stages": 4}, sweep={}), "--dry-run")


def test_a_machine_without_mininet_can_simulate() -> None:
    program = (
        "import sys\nsys.modules['mininet'] = None\n"
        "import wanbed.runner.cli.outcome, wanbed.runner.cli.run, wanbed.runner.cli.user_namespace\n"
        "import wanbed.runner.planner.planning\n"
        "import wanbed.runner.simulated_runs.process_pool, wanbed.runner.simulated_runs.simulated_run\n"
        "import wanbed.runner.simulated_runs.simulated_run, wanbed.results.report.report\n"
        "print('wanbed.testbed.testbed' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == "False\n"
