from pathlib import Path

import pytest

from tests.support.runner.two_jobs import two_jobs
from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant


def point(**changes: object) -> SweepPoint:
    (found,) = parse_experiment(two_jobs(**changes), "file", Path()).points()
    return found


def hosts(variant: ResolvedVariant) -> set[str]:
    return {place.host.name for place in variant.placement.places}


def test_every_variant_runs_alone_and_then_every_combination_at_once() -> None:
    variants = [
        {"name": "x", "schedule": "gpipe"},
        {"name": "y", "schedule": "1f1b"},
        {"name": "z", "schedule": "varuna"},
    ]
    jobs = [
        {"name": "a", "hosts": {"east": 2, "west": 2}, "variants": ["x", "y"]},
        {"name": "b", "hosts": {"east": 2, "west": 2}, "variants": ["z"]},
    ]
    found = point(variants=variants, jobs=jobs)
    assert [variant.name for variant in found.variants] == [
        "x",
        "y",
        "z",
        "x beside z",
        "z beside x",
        "y beside z",
        "z beside y",
    ]
    assert [trial.variant for trial in found.trials()] == [variant.name for variant in found.variants]
    beside = found.variant("z beside y")
    assert [other.name for other in beside.beside] == ["y"]
    assert (beside.jobs.job, beside.jobs.alone) == ("b", "z")
    assert [each.name for each in beside.at_once] == ["y", "z beside y"]


def test_jobs_take_hosts_in_order_and_share_none() -> None:
    found = point()
    ours, theirs = (found.variant(name) for name in ("ours", "theirs"))
    assert hosts(ours) == {"east-0", "east-1", "west-0", "west-1"}
    assert hosts(theirs) == {"east-2", "east-3", "west-2", "west-3"}
    assert hosts(found.variant("ours beside theirs")) == hosts(ours)


def test_a_job_may_train_for_other_iterations() -> None:
    jobs = two_jobs()["jobs"]
    found = point(jobs=[jobs[0], {**jobs[1], "iterations": 9}])
    assert [found.iterations(found.variant(name)) for name in ("ours", "theirs", "theirs beside ours")] == [4, 9, 9]


def test_the_network_must_carry_jobs_at_once() -> None:
    together = point(rate="unlimited")
    alone = point(rate="unlimited", jobs=None)
    assert together.demand.wan_bps == 2 * 2 * 2 * 200_000_000
    assert together.demand.wan_bps == alone.demand.wan_bps


def test_names_that_clash_with_those_beside_others_are_refused() -> None:
    variants = [{"name": "ours", "schedule": "gpipe"}, {"name": "theirs", "schedule": "1f1b"}]
    variants.append({"name": "ours beside theirs", "schedule": "gpipe"})
    jobs = two_jobs()["jobs"]
    jobs[0]["variants"] = ["ours", "ours beside theirs"]
    with pytest.raises(InputError, match="a variant is named 'ours beside theirs', as that one is beside others"):
        point(variants=variants, jobs=jobs)
