"""Jobs that run at once share trunks, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.runner.two_jobs import two_jobs
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant


def simulated(name: str, **changes: Any) -> Simulation:
    (point,) = parse_experiment({"engine": "simulate", **two_jobs(**changes)}, "file", Path()).points()
    variant = point.variant(name)
    return simulate_variant(point.topology, variant, point.iterations(variant))


@pytest.mark.parametrize("name", ["ours", "theirs"])
def test_a_trunk_that_never_binds_leaves_each_as_alone(name: str) -> None:
    alone = simulated(name, rate="unlimited")
    beside = simulated("ours beside theirs" if name == "ours" else "theirs beside ours", rate="unlimited")
    for column in ("rank", "kind", "iteration", "microbatch", "start_ns", "end_ns", "size_bytes", "peer"):
        assert np.array_equal(getattr(alone.spans, column), getattr(beside.spans, column)), column
    assert alone.while_all_ran_ns is None
    assert beside.while_all_ran_ns is not None


def test_a_trunk_of_half_the_rate_makes_equal_jobs_as_slow_as_each_alone_over_half_of_it() -> None:
    same = [{"name": name, "schedule": "gpipe", "transport": {"model": "mean"}} for name in ("ours", "theirs")]
    (beside, other), half = (
        (simulated(name, variants=same, rate="200Mbit") for name in ("ours beside theirs", "theirs beside ours")),
        simulated("ours", variants=same, rate="100Mbit"),
    )
    assert beside.windows_ns == other.windows_ns
    for one, alone in zip(beside.windows_ns, half.windows_ns, strict=True):
        assert one == pytest.approx(alone, rel=0.01)


def test_both_members_of_a_combination_tell_the_same_time_until_which_all_ran() -> None:
    ours, theirs = simulated("ours beside theirs"), simulated("theirs beside ours")
    assert ours.while_all_ran_ns == theirs.while_all_ran_ns
    assert ours.while_all_ran_ns == min(int(each.spans.end_ns.max()) for each in (ours, theirs))


def test_each_member_counts_its_own_traffic_alone() -> None:
    ours, theirs = simulated("ours beside theirs"), simulated("theirs beside ours")
    assert {(each.source, each.destination) for each in ours.traffic}.isdisjoint(
        (each.source, each.destination) for each in theirs.traffic
    )
    alone = simulated("ours")
    assert sum(each.wire_bytes[-1] for each in ours.traffic) == sum(each.wire_bytes[-1] for each in alone.traffic)
