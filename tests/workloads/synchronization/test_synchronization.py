"""When synchronisations begin and when they are applied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.synchronization.synchronization import SumTopology, Synchronization


@st.composite
def synchronizations(draw: st.DrawFn) -> Synchronization:
    fragments, period = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    return Synchronization(fragments * period, fragments, delay=draw(st.integers(0, period - 1)))


def test_diloco_synchronises_everything_after_every_so_many_iterations() -> None:
    diloco = Synchronization(3)
    assert [diloco.fragment_begun(iteration) for iteration in range(6)] == [None, None, 0, None, None, 0]


def test_fragments_take_turns_and_begin_a_delay_before_they_are_applied() -> None:
    streaming = Synchronization(8, fragments=4, delay=1)
    assert [streaming.fragment_begun(iteration) for iteration in range(8)] == [0, None, 1, None, 2, None, 3, None]
    assert [streaming.fragment_applied(iteration) for iteration in range(8)] == [None, 0, None, 1, None, 2, None, 3]


@given(synchronizations(), st.integers(0, 100))
def test_each_synchronisation_that_began_is_applied_after_its_delay(each: Synchronization, iteration: int) -> None:
    begun = each.fragment_begun(iteration)
    if begun is not None:
        assert each.fragment_applied(each.applied_after(iteration)) == begun


@given(synchronizations(), st.integers(0, 100))
def test_no_synchronisation_begins_while_one_is_under_way(each: Synchronization, iteration: int) -> None:
    if each.fragment_begun(iteration) is not None:
        later = range(iteration + 1, each.applied_after(iteration) + 1)
        assert all(each.fragment_begun(other) is None for other in later)


@given(synchronizations(), st.integers(1, 100))
def test_the_count_is_that_of_the_applied_ones(each: Synchronization, iterations: int) -> None:
    applied = [each.fragment_applied(iteration) for iteration in range(iterations)]
    assert each.count(iterations) == sum(fragment is not None for fragment in applied)


@given(synchronizations())
def test_every_fragment_is_synchronised_once_in_sync_every_iterations(each: Synchronization) -> None:
    found = [each.fragment_applied(iteration) for iteration in range(each.sync_every)]
    assert sorted(fragment for fragment in found if fragment is not None) == list(range(each.fragments))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sync_every": 0}, "sync_every: 0 is below 1"),
        ({"sync_every": 9, "fragments": 2}, "fragments: 2 do not divide sync_every"),
        ({"sync_every": 8, "fragments": 4, "delay": 2}, "delay: 2, and a fragment is synchronised every 2 iterations"),
        ({"sync_every": 8, "alpha": 1.5}, "alpha: 1.5 is not 0 to 1"),
        ({"sync_every": 8, "outer_learning_rate": 0.0}, "outer_learning_rate: 0.0 is not above 0"),
        ({"sync_every": 8, "outer_momentum": 1.0}, "outer_momentum: 1.0 is not 0 to below 1"),
        ({"sync_every": 8, "quorum": 2}, "quorum: a ring waits for all replicas"),
        ({"sync_every": 8, "quorum": 0, "topology": SumTopology.STAR}, "quorum: 0 is below 1"),
    ],
)
def test_what_cannot_be_is_refused_by_field(values: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Synchronization(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values",
    [
        {"sync_every": 1},
        {"sync_every": 8, "fragments": 8},
        {"sync_every": 8, "fragments": 4, "delay": 1},
        {"sync_every": 8, "delay": 7},
        {"sync_every": 8, "alpha": 1.0},
        {"sync_every": 8, "outer_learning_rate": 1e-9},
        {"sync_every": 8, "outer_momentum": 0.0},
        {"sync_every": 8, "quorum": 1, "topology": SumTopology.STAR},
    ],
)
def test_what_lies_at_a_limit_is_taken(values: dict[str, int]) -> None:
    made = Synchronization(**values)  # type: ignore[arg-type]
    assert {name: getattr(made, name) for name in values} == values


def test_below_a_limit_the_field_is_named() -> None:
    for name, value in (("fragments", 0), ("delay", -1), ("alpha", -0.1), ("outer_momentum", -0.1)):
        with pytest.raises(ValueError, match=f"^{name}: {value} is "):
            Synchronization(**{"sync_every": 8, name: value})  # type: ignore[arg-type]


def test_what_is_left_out_is_diloco_as_it_was_published_round_a_ring_in_full_precision() -> None:
    plain = Synchronization(500)
    assert (plain.fragments, plain.delay, plain.alpha, plain.period) == (1, 0, 0.0, 500)
    assert (plain.outer_learning_rate, plain.outer_momentum) == (0.7, 0.9)
    assert (plain.wire, plain.topology, plain.quorum) == ("fp32", "ring", None)
