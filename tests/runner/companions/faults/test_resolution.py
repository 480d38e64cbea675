"""What fails is checked while the file is read, and every variant is placed anew on the hosts that would be left."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.chakra_traces import all_reduce, computation, write_trace
from tests.support.runner.prefill_documents import document as prefill_document
from tests.support.runner.small_experiment import sweep_point
from wanbed.ground.errors import InputError
from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.workloads.compute.backends.torch_backend import TorchBackend

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
    return sweep_point({**DOCUMENT, **changes})


def refusal(**changes: Any) -> str:
    return refused(lambda: point(**changes)).removeprefix("exp.yaml: ")


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


def test_where_all_hosts_fail_none_is_left() -> None:
    found = point(fail=[{"gateway": "west", "at": "1s"}, {"gateway": "east", "at": "2s"}], recovery="restart")
    everybody = frozenset({"east-0", "east-1", "west-0", "west-1"})
    assert found.faults.variant_left(found.variants[0], everybody) == "no host is left"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fail": [{"host": "east-7", "at": "1s"}]}, "fail.0.host: 'east-7' is none, did you mean 'east-0'?"),
        ({"fail": [{"gateway": "mars", "at": "1s"}]}, "fail.0.gateway: 'mars' is none, there are east and west"),
        ({"fail": [{"rank": 4, "at": "1s"}]}, "fail.0.rank: 4, and 'gpipe' has ranks 0 to 3"),
        (
            {"fail": RANK_1, "engine": "simulate"},
            "fail: a simulation has no failures but of replicas of a star with a quorum, and 'gpipe' has none: "
            "give engine: emulate (clock: virtual), or leave fail out",
        ),
        (
            {"recovery": "restart"},
            "recovery: nothing fails: give fail, like [{host: east-1, at: 20s}], or leave recovery out",
        ),
        (
            {"fail": RANK_1, "checkpoint_every": 2},
            "checkpoint_every: nothing is restored from checkpoints: give recovery: restart, or leave "
            "checkpoint_every out",
        ),
        (
            {"fail": [{"rank": 0, "at": "1s"}], "variants": [{"name": "own", "program": {"command": ["true"]}}]},
            "variants.0.program: fail knows ranks of schedules only: leave fail or the variant out",
        ),
    ],
)
def test_what_cannot_fail_is_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    assert refusal(**changes) == words


def averaging(options: dict[str, Any], **changes: Any) -> dict[str, Any]:
    variant = {"name": "diloco", "schedule": "diloco", "options": {"sync_every": 2, **options}}
    training = {"microbatches": 2, "stages": 1, "pipelines": 3, "iterations": 4, "warmup": 1}
    compute = {"forward": "1ms", "gradient": "1MiB"}
    return {"fail": RANK_1, "variants": [variant], "training": training, "compute": compute, **changes}


def test_replicas_that_average_with_a_quorum_can_lose_all_but_the_one_that_gathers() -> None:
    (variant,) = point(**averaging({"topology": "star", "quorum": 2})).variants
    assert variant.goes_on_without == {1, 2}


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


TORCH = {"kind": "torch", "checkpointing": False}

REPLICAS = {"stages": 2, "pipelines": 2, "microbatches": 2}

GLOO = {"name": "torch's own sums", "schedule": "gpipe", "transport": {"all_reduce": "gloo"}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"fail": [{"rank": 1, "at": "1s", "for": "2s"}]},
            "fail.0.for: only a replica of a star with a quorum comes back, and 'gpipe' has none: leave for or",
        ),
        (
            {**STAR, "fail": [{"rank": 0, "at": "1s", "for": "2s"}]},
            "fail.0.for: the others do not go on without rank 0, which gathers in 'star': let another one fail",
        ),
        (
            {**STAR, "fail": [{"rank": 1, "at": "1s", "for": "2s"}, {"rank": 1, "at": "3s"}]},
            "fail.1: rank 1 and rank 1 fail together in 'star', before one of them is back: give other times",
        ),
        (
            {"fail": RANK_1, "compute": TORCH, "variants": [{"name": "own", "schedule": "torch-gpipe"}]},
            "variants.0.schedule: torch's torch-gpipe has no part in fail: leave",
        ),
        (
            {"fail": RANK_1, "compute": TORCH, "training": REPLICAS, "variants": [*DOCUMENT["variants"], GLOO]},
            "variants.1.transport.all_reduce: gloo does not end at once where a rank fails: give ring",
        ),
        (
            {**prefill_document(), "engine": "emulate", "fail": RANK_1},
            "variants.0.prefill: prefill has no part in fail",
        ),
        *(
            (averaging(options), "variants.0.schedule: replicas that synchronise seldom go on without one")
            for options in ({}, {"topology": "star"})
        ),
        (averaging({}), "variants.0.schedule: replicas that synchronise seldom go on without one that fails only if"),
        (
            averaging({"topology": "star", "quorum": 2}, recovery="restart"),
            "recovery: the replicas of variants.0",
        ),
        ({"checkpoint_every": 2}, "checkpoint_every: nothing fails: give fail, like"),
        (
            {**STAR, "engine": "simulate", "fail": [{"rank": 1, "at": "1s"}, {"host": "east-1", "at": "2s"}]},
            "fail.1.host: in a simulation only ranks fail: give rank",
        ),
        (
            {**STAR, "engine": "simulate", "fail": [{"rank": 1, "at": "1s"}, {"rank": 0, "at": "2s"}]},
            "fail.1.rank: 0, and a simulation does not end with the replica that gathers",
        ),
        (
            {
                "fail": [{"rank": 2, "at": "1s"}],
                "variants": [
                    *DOCUMENT["variants"],
                    {"name": "two", "schedule": "gpipe", "training": {"stages": 2, "pipelines": 1}},
                ],
            },
            "fail.0.rank: 2, and 'two' has ranks 0 to 1",
        ),
    ],
)
def test_variants_that_know_no_failures_and_what_cannot_come_back_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    assert refusal(**changes).startswith(words)


@pytest.mark.parametrize("engine", ["emulate", "simulate"])
def test_a_trace_is_replayed_without_failures(tmp_path: Path, engine: str) -> None:
    write_trace(tmp_path / "t", {rank: [computation(0, 9), all_reduce(1, 8, [0])] for rank in range(3)})
    document = {"topology": DOCUMENT["topology"], "compute": {"trace": "t"}, "engine": engine, "fail": RANK_1}
    said = "fail: only ranks of pipelines are let fail, and 'trace' is no pipeline: leave fail out"
    with pytest.raises(InputError, match=f"^exp.yaml: {said}$"):
        parse_experiment(document, "exp.yaml", tmp_path)


def test_a_gateway_does_not_fail_at_either_end_of_a_flow_in_the_background() -> None:
    flow = {"name": "bulk", "from": "east", "to": "west", "rate": "1Mbit"}
    for name in ("east", "west"):
        said = refusal(fail=[*RANK_1, {"gateway": name, "at": "1s"}], background=[flow])
        assert said.startswith(f"fail.1.gateway: the flow 'bulk' in the background would end with that of {name}: let")
    topology = {**DOCUMENT["topology"], "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west", "far")]}
    elsewhere = point(topology=topology, background=[flow], fail=[{"gateway": "far", "at": "1s"}])
    assert len(elsewhere.faults.faults) == 1
    # Its hosts are nobody's to name, those of training are.
    assert refusal(fail=[{"host": "east-background-0", "at": "1s"}], background=[flow]).startswith("fail.0.host: ")
    assert point(fail=[{"host": "east-0", "at": "1s"}], background=[flow]).faults.faults[0].name == "east-0"


def test_the_last_rank_may_fail() -> None:
    assert point(fail=[{"rank": 3, "at": "1s"}]).faults.faults[0].rank == 3


def test_of_many_hosts_twenty_are_named() -> None:
    many = {"datacenters": [{"name": "east", "hosts": 30}, {"name": "west", "hosts": 2}], "wan": {"latency": "5ms"}}
    said = refusal(topology=many, fail=[{"host": "nowhere", "at": "1s"}])
    assert said.count("east-") == 20
    assert "east-19" in said


def test_a_back_end_that_trains_has_to_save_its_state_for_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    restart = {"fail": [{"host": "east-1", "at": "1s"}], "recovery": "restart"}
    left = frozenset({"east-1"})
    # Nothing is trained, so that there is nothing to save.
    for compute in (DOCUMENT["compute"], TORCH):
        found = point(**restart, compute=compute)
        assert hosts(found.faults.variant_left(found.variants[0], left)) == ["east-0", "west-0", "west-1"]
    monkeypatch.setattr(TorchBackend, "saves_state", False)
    assert " saves no checkpoints: leave recovery out" in refusal(**restart, compute=TORCH)
    assert point(fail=restart["fail"], compute=TORCH).faults


def test_variants_are_placed_anew_only_for_a_restart_without_hosts() -> None:
    faults = [{"rank": 0, "at": "1s"}, {"host": "west-1", "at": "2s"}, {"host": "east-1", "at": "3s"}]
    lost = [frozenset({"west-1"}), frozenset({"west-1", "east-1"})]
    assert list(point(fail=faults, recovery="restart").faults.left) == [("gpipe", each) for each in lost]
    none = point(fail=faults).faults
    assert (none.left, none.recovery, none.checkpoint_every, bool(none)) == ({}, "none", 1, True)
    assert point(fail=faults, recovery="restart", checkpoint_every=3).faults.checkpoint_every == 3
    assert not point().faults


def test_in_a_simulation_replicas_fail_that_do_not_gather() -> None:
    star = {**STAR, "engine": "simulate"}
    assert point(**star, fail=[{"rank": 1, "at": "1s"}, {"rank": 2, "at": "2s"}]).faults
