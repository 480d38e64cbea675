import pytest

from tests.support.runner.emulated_run import Simulator, simulation
from wanbed.runner.resolve.tcp_effects import IDEAL
from wanbed.runner.simulator.simulation import NO_PEER
from wanbed.runner.validation.case import (
    LawCheck,
    all_reduce_ns,
    arrival_ns,
    chain,
    iteration_ns,
    side_by_side,
    simulated,
)

ONE_TRANSFER = (
    (0, "forward", 0, 0, 0, 50, NO_PEER),
    (0, "forward", 0, 1, 50, 100, NO_PEER),
    (0, "receive", 0, 0, 300, 310, 1),
    (1, "receive", 0, 0, 60, 80, 0),
    (1, "receive", 0, 1, 80, 120, 0),
    (1, "forward", 0, 0, 80, 180, NO_PEER),
)


def test_an_arrival_counts_from_the_end_of_the_forward_that_made_the_first_activation() -> None:
    assert arrival_ns(simulation(ONE_TRANSFER), 1) == 30
    assert arrival_ns(simulation(ONE_TRANSFER), 1, microbatch=1) == 70


def test_a_missing_arrival_raises_value_error() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        arrival_ns(simulation(ONE_TRANSFER), 1, microbatch=2)


def test_an_iteration_lasts_from_its_first_start_to_its_last_end() -> None:
    assert iteration_ns(simulation(ONE_TRANSFER)) == 310


def test_an_all_reduce_lasts_from_the_first_rank_that_begins_to_the_last_that_ends() -> None:
    found = simulation([(0, "all_reduce", 0, -1, 20, 50, NO_PEER), (1, "all_reduce", 0, -1, 10, 40, NO_PEER)])
    assert all_reduce_ns(found) == 40


def test_a_chain_has_a_datacenter_for_each_stage_and_a_latency_for_each_link() -> None:
    seen = []
    simulator = Simulator(lambda topology, variant: seen.append((topology, variant)) or 1.0)
    simulated(simulator, chain([5_000_000, 80_000_000]), compute={}, training={}, variant={"schedule": "gpipe"})
    ((topology, variant),) = seen
    assert [place.datacenter for place in variant.placement.places] == ["dc0", "dc1", "dc2"]
    first, second = topology.conditions("dc0", "dc1"), topology.conditions("dc1", "dc2")
    assert (first.latency_ns, second.latency_ns) == (5_000_000, 80_000_000)
    assert first.pair_rate_bps is None
    assert simulator.asked == [(IDEAL, 1.0)]


def test_side_by_side_nothing_takes_time_inside_a_datacenter() -> None:
    seen = []
    simulator = Simulator(lambda topology, *_: seen.append(topology) or 1.0)
    simulated(simulator, side_by_side(1, rate="1Gbit"), compute={}, training={}, variant={"schedule": "gpipe"})
    assert (seen[0].intra_latency_ns, seen[0].intra_rate_bps) == (0, None)
    assert seen[0].conditions("east", "west").rate_bps == 10**9


def test_a_check_is_exact_only_to_the_nanosecond() -> None:
    found = [LawCheck("case", "law", (100, 200), simulated).exact for simulated in ((100, 200), (100, 201), (100,))]
    assert found == [True, False, False]
