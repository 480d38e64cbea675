"""Simulating and running give loaded runs, and errors that name arguments."""

import logging
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import wanbed
from wanbed.api import running
from wanbed.api.experiment import checked_experiment
from wanbed.api.schedule_modules import importable_by_ranks
from wanbed.ground.errors import WanbedError
from wanbed.runner.emulation.virtual_run import InsideError
from wanbed.runner.runs.run_request import RunRequest

FIELDS: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "10ms", "rate": "1Gbit", "loss": "1%"},
    },
    "compute": {"forward": "1ms", "activation": "64KiB"},
    "training": {"microbatches": 2},
    "sweep": {"topology.wan.latency": ["5ms", "10ms"]},
}
HERE = Path(__file__).resolve()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def experiment(**fields: Any) -> wanbed.Experiment:
    return wanbed.Experiment(**{**FIELDS, **fields})


def test_a_simulation_is_quiet_and_returns_what_load_returns(capfd: pytest.CaptureFixture[str]) -> None:
    run = wanbed.simulate(experiment(), jobs=1)
    assert capfd.readouterr() == ("", "")
    assert run.complete
    assert run.path.parent == Path("runs")
    pd.testing.assert_frame_equal(wanbed.load(run.path).summary, run.summary)
    stored = pd.read_parquet(run.path / "summary.parquet")
    assert list(stored["topology.wan.latency"]) == ["5ms", "10ms"]


def test_progress_and_notes_are_there_for_those_who_want_them(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "wanbed"):
        wanbed.simulate(experiment(repeats=3), jobs=1, progress=True)
    # Losses are drawn, so that repeats differ.
    assert "6 of 6 trials done" in capfd.readouterr().err
    assert any(message.startswith("not modelled, or beyond what was validated: ") for message in caplog.messages)


def test_run_uses_the_engine_of_the_experiment() -> None:
    assert wanbed.run(experiment(engine="simulate")).simulated


def test_a_finished_run_is_resumed_by_loading_it() -> None:
    first = wanbed.simulate(experiment(), jobs=1)
    assert wanbed.simulate(experiment(), jobs=1, resume=True).path == first.path


def test_where_nothing_can_be_resumed_a_run_starts() -> None:
    assert wanbed.simulate(experiment(), jobs=1, resume=True).complete


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jobs": 0}, r"^jobs: 0 is below 1$"),
        ({"runs": "/dev/null/runs"}, r"^runs: /dev/null is no folder"),
    ],
)
def test_a_mistake_in_an_argument_is_named_by_the_argument(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(wanbed.InputError, match=message):
        wanbed.simulate(experiment(), **arguments)


@pytest.mark.parametrize("arguments", [{"keep_gradients": True}, {"substrate": "kernel"}])
def test_a_simulation_refuses_what_only_an_emulation_has(arguments: dict[str, Any]) -> None:
    with pytest.raises(wanbed.InputError, match=rf"^{next(iter(arguments))}: a simulation has none"):
        wanbed.run(experiment(engine="simulate"), **arguments)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(2, wanbed.InputError), (5, wanbed.MissingError), (4, wanbed.TrialError), (1, wanbed.TrialError)],
)
def test_an_error_inside_virtual_time_is_raised_with_its_message(
    monkeypatch: pytest.MonkeyPatch, status: int, kind: type[Exception]
) -> None:
    def failing(request: RunRequest) -> Path:
        assert request.standard_error is not None
        request.standard_error.write(b"wanbed: runs/x: 1 trial\nwanbed: rank 0 failed\n")
        raise InsideError(status)

    monkeypatch.setattr(running, "execute", failing)
    with pytest.raises(kind, match=r"^rank 0 failed$"):
        wanbed.run(experiment())


def test_all_errors_that_can_be_expected_have_one_base() -> None:
    named = [each for name in wanbed.__all__ if isinstance(each := getattr(wanbed, name), type)]
    errors = {each for each in named if issubclass(each, Exception)} - {wanbed.ScheduleError}
    assert len(errors) == 6
    assert all(issubclass(each, WanbedError) for each in errors)


def test_the_folder_of_a_schedule_is_on_the_path_of_ranks_while_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain_module.py").write_text("", encoding="utf-8")
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine" / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    for path in ("plain_module:A", "package_of_mine.inner:A"):
        spec = checked_experiment(experiment(variants=[{"name": "v", "schedule": path}])).spec
        with importable_by_ranks(spec):
            assert os.environ["PYTHONPATH"] == f"{tmp_path}{os.pathsep}/theirs"
    assert os.environ["PYTHONPATH"] == "/theirs"
    with importable_by_ranks(checked_experiment(experiment()).spec):
        assert os.environ["PYTHONPATH"] == "/theirs"


def test_ranks_cannot_import_a_schedule_of_the_script_itself() -> None:
    of = experiment(variants=[{"name": "v", "schedule": "__main__:Mine"}])
    with pytest.raises(
        wanbed.InputError, match=r"^Experiment: variants\.0\.schedule: ranks cannot import Mine from this"
    ):
        wanbed.run(of)


def test_a_rack_is_named_by_its_address() -> None:
    with pytest.raises(wanbed.InputError, match="engine: rack wants the machines' address: give rack, HOST:PORT"):
        wanbed.run(experiment(engine="rack"))
    with pytest.raises(wanbed.InputError, match="rack: a simulation has none"):
        wanbed.run(experiment(engine="simulate"), rack="10.0.0.1:6379")
    with pytest.raises(wanbed.InputError, match="overlay: 'macvlan' is not known: give vxlan or wireguard"):
        wanbed.run(experiment(), rack="10.0.0.1:6379", overlay="macvlan")
    with pytest.raises(wanbed.InputError, match=r"rack '10\.0\.0\.1': give HOST:PORT of the cluster's head"):
        wanbed.run(experiment(), rack="10.0.0.1")
    with pytest.raises(wanbed.InputError, match=r"rack '10\.0\.0\.1': give HOST:PORT of the cluster's head"):
        wanbed.simulate(experiment(), rack="10.0.0.1")
    with pytest.raises(wanbed.InputError, match=r"rack '10\.0\.0\.1': give HOST:PORT of the cluster's head"):
        wanbed.plan(experiment(), rack="10.0.0.1")
    with pytest.raises(wanbed.InputError, match="jobs: with rack as many trials run at a time as the rack has CPUs"):
        wanbed.simulate(experiment(), rack="10.0.0.1:6379", jobs=2)


def test_machines_of_a_rack_cannot_import_a_schedule_of_the_script_itself() -> None:
    of = experiment(variants=[{"name": "v", "schedule": "__main__:Mine"}])
    with pytest.raises(wanbed.InputError, match="rack: its machines cannot import a schedule that this script"):
        wanbed.simulate(of, rack="10.0.0.1:6379")
