"""What fails is checked while the file is read, and every variant is placed anew on the hosts that would be left."""

from pathlib import Path
from typing import Any

import pytest

from ground.strict_model import InputError
from runner.planner.experiment_file import parse_experiment
from runner.resolve.experiment import SweepPoint
from runner.resolve.faults.planned_fault import PlannedFault
from runner.resolve.resolved_variant import ResolvedVariant

DOCUMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "5ms"},
    },
    "compute": {"forward": "1ms", "backward": "2ms", "activation": "1KiB"},
    "training": {"microbatches": 2},
    "variants": [{"name": "gpipe", "schedule": "gpipe"}],
}
RANK_1 = [{"rank": 1, "at": "1s"}]


def point(**changes: Any) -> SweepPoint:
    (only,) = parse_experiment({**DOCUMENT, **changes}, "exp.yaml", Path()).points()
    return only


def hosts(variant: ResolvedVariant | str) -> list[str]:
    assert isinstance(variant, ResolvedVariant)
    return [place.host.name for place in variant.placement.places]


def test_faults_are_in_order_of_time() -> None:
    plan = point(fail=[{"host": "east-1", "at": "2s"}, {"gateway": "west", "at": "1s"}]).faults
    assert [str(fault) for fault in plan.faults] == ["gateway of west", "host east-1"]
    assert [fault.hosts for fault in plan.faults] == [("west-0", "west-1"), ("east-1",)]


def test_a_variant_goes_on_without_the_hosts_that_are_lost_by_then() -> None:
    faults = [{"host": "east-1", "at": "2s"}, {"rank": 0, "at": "1s"}, {"gateway": "west", "at": "3s"}]
    found = point(fail=faults, recovery="restart")
    (variant,), plan = found.variants, found.faults
    assert plan.variant_left(variant, frozenset()) is variant
    assert hosts(plan.variant_left(variant, frozenset({"east-1"}))) == ["east-0", "west-0", "west-1"]
    assert hosts(plan.variant_left(variant, frozenset({"east-1", "west-0", "west-1"}))) == ["east-0"]


def test_a_variant_that_does_not_fit_on_the_hosts_left_has_a_reason() -> None:
    training = {"microbatches": 2, "stages": 4}
    found = point(fail=[{"host": "east-1", "at": "2s"}], recovery="restart", training=training)
    reason = found.faults.variant_left(found.variants[0], frozenset({"east-1"}))
    assert isinstance(reason, str)
    assert reason.startswith("training.stages: ")


STAR: dict[str, Any] = {
    "model": {"layers": 2, "hidden": 64, "context": 64, "heads": 2, "vocabulary": 256},
    "training": {"pipelines": 3, "stages": 1, "iterations": 8, "warmup": 2},
    "variants": [
        {"name": "star", "schedule": "diloco", "options": {"sync_every": 2, "topology": "star", "quorum": 2}},
    ],
}


def test_a_replica_of_a_star_comes_back() -> None:
    found = point(**STAR, fail=[{"rank": 2, "at": "1s", "for": "2s"}, {"rank": 2, "at": "4s", "for": "1s"}])
    assert [fault.back_ns for fault in found.faults.faults] == [3 * 10**9, 5 * 10**9]
    assert found.faults.brings_back(found.variants[0])
    assert not point(**STAR, fail=[{"rank": 2, "at": "1s"}]).faults.brings_back(found.variants[0])


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (
            {"fail": [{"rank": 1, "at": "1s", "for": "2s"}]},
            "fail.0.for: only a replica of a star with a quorum comes back, and 'gpipe' has none: leave for out, or",
        ),
        (
            {**STAR, "fail": [{"rank": 0, "at": "1s", "for": "2s"}]},
            "fail.0.for: the others do not go on without rank 0, which gathers in 'star': leave for out, or let",
        ),
        (
            {**STAR, "fail": [{"rank": 1, "at": "1s", "for": "2s"}, {"rank": 1, "at": "3s"}]},
            "fail.1: rank 1 and rank 1 fail together in 'star', before one of them is back: give other times",
        ),
    ],
)
def test_what_cannot_come_back_is_refused(changes: dict[str, Any], refusal: str) -> None:
    with pytest.raises(InputError) as refused:
        point(**changes)
    assert refusal in str(refused.value)


def test_where_all_hosts_fail_none_is_left() -> None:
    faults = [{"gateway": "west", "at": "1s"}, {"gateway": "east", "at": "2s"}]
    found = point(fail=faults, recovery="restart")
    everybody = frozenset({"east-0", "east-1", "west-0", "west-1"})
    assert found.faults.variant_left(found.variants[0], everybody) == "no host is left"


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"fail": [{"host": "east-7", "at": "1s"}]}, "fail.0.host: 'east-7' is none, did you mean 'east-0'?"),
        ({"fail": [{"gateway": "mars", "at": "1s"}]}, "fail.0.gateway: 'mars' is none, there are east and west"),
        ({"fail": [{"rank": 4, "at": "1s"}]}, "fail.0.rank: 4, and 'gpipe' has ranks 0 to 3"),
        (
            {"fail": RANK_1, "engine": "simulate"},
            "fail: a simulation has no failures but of replicas of a star with a quorum, and 'gpipe' has none: "
            "leave fail out, or give engine: emulate (clock: virtual)",
        ),
        (
            {"recovery": "restart"},
            "recovery: nothing fails: give fail, like [{host: east-1, at: 20s}], or leave recovery out",
        ),
        (
            {"fail": RANK_1, "checkpoint_every": 2},
            "checkpoint_every: nothing is restored from checkpoints: give recovery: restart",
        ),
        (
            {"fail": [{"rank": 0, "at": "1s"}], "variants": [{"name": "own", "program": {"command": ["true"]}}]},
            "variants.0.program: fail knows ranks of schedules only: leave fail out, or the variant",
        ),
    ],
)
def test_what_cannot_fail_is_refused_in_one_line(changes: dict[str, Any], refusal: str) -> None:
    with pytest.raises(InputError) as refused:
        point(**changes)
    assert str(refused.value) == f"exp.yaml: {refusal}"


def averaging(options: dict[str, Any], **changes: Any) -> SweepPoint:
    variant = {"name": "diloco", "schedule": "diloco", "options": {"sync_every": 2, **options}}
    training = {"microbatches": 2, "stages": 1, "pipelines": 3, "iterations": 4, "warmup": 1}
    compute = {"forward": "1ms", "gradient": "1MiB"}
    return point(fail=RANK_1, **{"variants": [variant], "training": training, "compute": compute, **changes})


def test_replicas_that_average_with_a_quorum_can_lose_all_but_the_one_that_gathers() -> None:
    (variant,) = averaging({"topology": "star", "quorum": 2}).variants
    assert variant.goes_on_without == {1, 2}


@pytest.mark.parametrize(
    ("options", "changes", "fault"),
    [
        ({}, {}, "variants.0.schedule: replicas that synchronise seldom go on without one that fails only if"),
        ({"topology": "star"}, {}, "variants.0.schedule: replicas that synchronise seldom go on without one"),
        ({"topology": "star", "quorum": 2}, {"recovery": "restart"}, "recovery: the replicas of variants.0"),
    ],
)
def test_other_replicas_that_synchronise_seldom_know_no_failures(
    options: dict[str, Any], changes: dict[str, Any], fault: str
) -> None:
    with pytest.raises(InputError, match=fault):
        averaging(options, **changes)


def test_a_fault_is_over_before_another_only_if_it_is_back_by_then() -> None:
    def fault(at_ns: int, back_ns: int | None) -> PlannedFault:
        return PlannedFault("rank", "", 1, at_ns, (), back_ns)

    first = fault(10, 20)
    assert first.overlaps(fault(20, 30))
    assert fault(20, 30).overlaps(first)
    assert not first.overlaps(fault(21, 30))
    assert not fault(21, 30).overlaps(first)
    assert fault(10, None).overlaps(fault(10**12, 10**13))
    assert not first.overlaps(fault(21, None))


def test_a_host_hits_the_ranks_on_it_and_a_rank_itself() -> None:
    host, rank = PlannedFault("host", "a", -1, 0, ("a",)), PlannedFault("rank", "", 3, 0, ())
    assert [host.hits(0, name) for name in ("a", "b")] == [True, False]
    assert [rank.hits(number, "a") for number in (2, 3)] == [False, True]
    assert [str(each) for each in (host, rank, PlannedFault("gateway", "w", -1, 0, ("a",)))] == [
        "host a",
        "rank 3",
        "gateway of w",
    ]


def test_several_replicas_of_a_star_may_fail_and_all_come_back() -> None:
    found = point(**STAR, fail=[{"rank": 1, "at": "1s", "for": "2s"}, {"rank": 2, "at": "1500ms", "for": "1s"}])
    assert [fault.rank for fault in found.faults.faults] == [1, 2]
    east = {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 2}], "wan": {"latency": "5ms"}}
    both = point(**{**STAR, "topology": east}, fail=[{"host": "west-0", "at": "1s", "for": "2s"}])
    assert both.faults.brings_back(both.variants[0])
