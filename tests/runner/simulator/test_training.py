"""A rank computes, sends, sums, waits for what it has sent, and updates: one training by hand, and how far it is."""

from typing import Any

import pytest

from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.simulation_of import simulation_of
from wanbed.runner.resolve.tcp_effects import IDEAL
from wanbed.runner.simulator.deadlock import DeadlockError
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.gpipe import GPipe

MS = 10**6
NAMES = {code: kind for kind, code in KIND_CODES.items()}


def document(schedule: str = "gpipe", *, stages: int = 2, **training: Any) -> dict[str, Any]:
    """Stages in datacenters 10 ms apart, whose activations take a second."""
    return {
        "topology": {
            "datacenters": [{"name": f"dc{stage}", "hosts": 2} for stage in range(stages)],
            **({"wan": {"latency": "10ms", "node_pair_rate": "8Mbit"}} if stages > 1 else {}),
        },
        "compute": {
            "forward": "10ms",
            "backward": "20ms",
            "optimizer": "5ms",
            "activation": "1000KB",
            "gradient": "1B",
        },
        "training": {"stages": stages, "pipelines": 1, "microbatches": 1, "iterations": 1, "warmup": 0, **training},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": schedule}],
    }


def simulated(written: dict[str, Any], iterations: int, **options: Any) -> Simulation:
    return simulation_of(written, iterations, effects=IDEAL, **options)


def spans_ms(simulation: Simulation, rank: int, iteration: int) -> list[tuple[str, float, float]]:
    """Return the kind, start and end of each span of a rank in an iteration, in order."""
    spans = simulation.spans
    own = (spans.rank == rank) & (spans.iteration == iteration)
    rows = zip(spans.kind[own].tolist(), spans.start_ns[own].tolist(), spans.end_ns[own].tolist(), strict=True)
    return [(NAMES[kind], start_ns / MS, end_ns / MS) for kind, start_ns, end_ns in rows]


def test_the_optimizer_waits_until_all_that_was_sent_has_left_and_the_next_iteration_for_no_other_rank() -> None:
    simulation = simulated(document(), 2)
    assert spans_ms(simulation, 0, 0) == [
        ("forward", 0, 10),
        ("send", 10, 1010),
        ("receive", 1060, 2060),
        ("backward", 2060, 2080),
        ("optimizer", 2080, 2085),
    ]
    assert spans_ms(simulation, 1, 0) == [
        ("receive", 20, 1020),
        ("forward", 1020, 1030),
        ("backward", 1030, 1050),
        ("send", 1050, 2050),
        ("optimizer", 2050, 2055),
    ]
    assert spans_ms(simulation, 0, 1) == [
        (kind, begin + 2085, end + 2085) for kind, begin, end in spans_ms(simulation, 0, 0)
    ]
    spans = simulation.spans
    sizes = {NAMES[kind]: size for kind, size in zip(spans.kind.tolist(), spans.size_bytes.tolist(), strict=True)}
    assert sizes == {"forward": 0, "backward": 0, "optimizer": 0, "send": 10**6, "receive": 10**6}
    peers = {(NAMES[kind], rank): peer for kind, rank, peer in zip(spans.kind, spans.rank, spans.peer, strict=True)}
    assert [peers[kind, rank] for kind in ("send", "receive") for rank in (0, 1)] == [1, 0, 1, 0]
    assert {peers[kind, 0] for kind in ("forward", "backward", "optimizer")} == {-1}


def test_replicas_wait_for_each_other_in_their_sum_before_they_update() -> None:
    written = document("dp", stages=1, pipelines=2)
    written["topology"]["intra"] = {"latency": "3ms"}
    written["compute"]["gradient"] = "2B"
    # Around a ring of two a part and then its sum: a latency each.
    for rank in (0, 1):
        assert spans_ms(simulated(written, 1), rank, 0) == [
            ("forward", 0, 10),
            ("backward", 10, 30),
            ("all_reduce", 30, 36),
            ("optimizer", 36, 41),
        ]


@pytest.mark.parametrize(("schedule", "kinds"), [("gpipe", 2), ("zb-h1", 3)])
def test_a_pulse_every_thousand_instants_tells_the_share_of_the_spans_that_have_ended(
    schedule: str, kinds: int
) -> None:
    shares: list[float] = []
    written = document(schedule, stages=1, microbatches=50)
    written["compute"]["optimizer"] = "0ms"
    # On one rank that sends nothing each instant ends one span, but one more of each iteration, which begins the next.
    simulated(written, 26, pulse=shares.append)
    an_iteration = kinds * 50
    told = range(1000, 26 * (an_iteration + 1), 1000)
    assert shares == [pytest.approx((each - each // (an_iteration + 1)) / (26 * an_iteration)) for each in told]


def test_a_share_is_at_most_all_although_optimizer_steps_are_not_counted() -> None:
    shares: list[float] = []
    simulated(document(stages=1), 1200, pulse=shares.append)
    # Three spans an iteration, of which two are counted: half of all is told as three quarters.
    assert shares == [pytest.approx(1000 / 2400), pytest.approx(2000 / 2400), 1.0]


def test_over_each_boundary_four_spans_of_a_microbatch_are_counted() -> None:
    shares: list[float] = []
    written = document(stages=3, microbatches=60)
    written["compute"]["optimizer"] = "0ms"
    simulation = simulated(written, 8, pulse=shares.append)
    # Two spans of each stage and four of each boundary: the rest ends in less than a thousand instants.
    spans = (2 * 3 + 4 * 2) * 60 * 8
    assert len(simulation.spans.rank) == spans
    assert all(share * spans == pytest.approx(round(share * spans)) for share in shares)
    assert max(1 - 1000 / spans * 3, 0.5) < shares[-1] <= 1.0


class Stubborn(GPipe):
    """GPipe that never runs the last microbatch's backward at the last stage."""

    def choose(self, stage: int) -> Action | None:
        action = super().choose(stage)
        return None if stage == 1 and action == Action(ActionKind.BACKWARD, 1) else action


def test_a_deadlock_names_the_last_five_events() -> None:
    point = sweep_point(document(microbatches=2))
    vars(point.variants[0])["schedule"] = f"{__name__}:Stubborn"
    with pytest.raises(DeadlockError) as told:
        simulate_variant(point.topology, point.variants[0], 1, effects=IDEAL)
    _, _, events = str(told.value).partition("; last events: ")
    # The second activation arrives at 2020 ms, and the gradient of the first leaves in the second after its backward.
    assert events.split("; ") == [
        "2020 ms stage 1 of pipeline 0 received the activation of microbatch 1",
        "2030 ms stage 1 of pipeline 0 ended forward of microbatch 1",
        "2050 ms stage 1 of pipeline 0 ended backward of microbatch 0",
        "3060 ms stage 0 of pipeline 0 received the gradient of microbatch 0",
        "3080 ms stage 0 of pipeline 0 ended backward of microbatch 0",
    ]
