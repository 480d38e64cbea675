from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from studies.bad_days.day import EVENTS, Day, Ladder, Weather, days
from studies.bad_days.lost_time import Loss, breaking_step, losses
from wanbed.results import load
from wanbed.results.reading.run import Run
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulated_run

OUTAGE = [{"at": "1s", "for": "500ms", "down": True}]
SMALL = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "5ms", "rate": "100Mbit"},
    },
    "compute": {"forward": "20ms", "backward": "40ms", "activation": "64KiB"},
    "training": {"stages": 2, "microbatches": 4, "iterations": 8},
    "variants": [{"name": "1f1b", "schedule": "1f1b"}, {"name": "gpipe", "schedule": "gpipe"}],
}


def simulated(day: Day, folder: Path) -> Run:
    """The run of a day's experiment, simulated below the folder."""
    file = folder / "day.yaml"
    file.write_text(yaml.safe_dump(day.experiment("simulate"), sort_keys=False))
    experiment = load_experiment(file, [])
    return load(simulated_run(experiment, folder, resume=False, pool=ProcessPool(1), log=print, stream=None))


def test_the_share_is_the_time_lost_over_the_time_that_the_wan_was_bad(tmp_path: Path) -> None:
    ladder = Ladder("day", "A day", ("half a second",), "half a second")
    day = Day(ladder, 1, SMALL, EVENTS, (([], None), (OUTAGE, Weather(0, 0.5, True))))
    run = simulated(day, tmp_path)
    for loss in losses(run, day):
        own = run.spans[run.spans["variant"] == loss.variant]
        calm_ns, bad_ns = (own[own["sweep_point"] == point]["end_ns"].max() for point in (0, 1))
        assert loss.shares == pytest.approx([(bad_ns - calm_ns) / 1e9 / 0.5])
        assert loss.share > 0.5
        assert loss.bad_s * 8 == pytest.approx(loss.calm_s * 8 + 0.5 * loss.share)
    assert [loss.variant for loss in losses(run, day)] == ["1f1b", "gpipe"]


def test_beside_a_neighbour_the_share_follows_from_the_slow_down(tmp_path: Path) -> None:
    day = days(1)[3]
    small = {
        **day.document,
        "repeats": 1,
        "training": {"stages": 2, "pipelines": 2, "microbatches": 4, "iterations": 3},
    }
    day = replace(day, document=small, values=day.values[:2])
    found = losses(simulated(day, tmp_path), day)
    assert {(loss.severity, loss.variant) for loss in found} == {
        (severity, variant) for severity in (0, 1) for variant in ("atlas", "varuna", "1f1b")
    }
    for loss in found:
        assert loss.share == pytest.approx(1 - loss.calm_s / loss.bad_s)


@pytest.mark.parametrize(
    ("shares", "step"), [((0.1, 0.3, 0.5), 1), ((0.1, 0.2), None), ((0.25,), 0)], ids=["second", "none", "just"]
)
def test_a_plan_breaks_at_the_first_step_that_costs_a_quarter_of_the_bad_time(
    shares: tuple[float, ...], step: int | None
) -> None:
    assert breaking_step([Loss(severity, "atlas", (share,), 1, 1) for severity, share in enumerate(shares)]) == step


def test_few_moments_have_no_interval() -> None:
    assert Loss(0, "atlas", (0.1, 0.2), 1, 1).interval is None
    low, high = Loss(0, "atlas", (0.1, 0.2, 0.3, 0.4), 1, 1).interval or (0, 0)
    assert 0.1 <= low < 0.25 < high <= 0.4
