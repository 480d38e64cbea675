"""Where the time of a program's profiled iterations went, on spans that can be added up by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.metrics.collectives import collective_times
from wanbed.results.metrics.program_time import (
    PROGRAM_PARTS,
    profiled_iterations,
    program_busy,
    program_parts,
    rank_times,
)


def frame(*rows: tuple[int, str, int, int, int], size_bytes: int = 8, group: str = "0,1") -> pd.DataFrame:
    """Spans given as (rank, kind, iteration, start, end)."""
    spans = pd.DataFrame(rows, columns=["rank", "kind", "iteration", "start_ns", "end_ns"])
    host = "east-" + spans["rank"].astype(str)
    return spans.assign(host=host, datacenter="east", gpu=0, size_bytes=size_bytes, tensor=group)


def parts(*rows: tuple[int, str, int, int, int]) -> dict[str, int]:
    """The parts of rank 0, whose iteration 0 lasts from 0 to 100."""
    spans = frame((0, "iteration", 0, 0, 100), *rows)
    (rank,) = rank_times(spans, np.array([0]))
    assert rank.parts_ns is not None
    assert sum(rank.parts_ns[part] for part in PROGRAM_PARTS) == 100
    return {part: time_ns for part, time_ns in rank.parts_ns.items() if time_ns}


def test_a_collective_behind_computation_is_not_waited_for() -> None:
    found = parts((0, "backward", 0, 0, 60), (0, "all_reduce", 0, 20, 50))
    assert found == {"compute": 60, "overlapped": 30, "other": 40}


def test_what_computation_does_not_hide_is_the_collectives() -> None:
    found = parts((0, "backward", 0, 0, 60), (0, "all_reduce", 0, 20, 90))
    assert found == {"compute": 60, "collective": 30, "overlapped": 40, "other": 10}


def test_collectives_at_the_same_time_count_once() -> None:
    found = parts((0, "all_gather", 0, 10, 50), (0, "reduce_scatter", 0, 30, 70))
    assert found == {"collective": 60, "other": 40}


def test_an_optimizer_works_beside_a_collective_and_does_not_while_it_waits_for_one() -> None:
    step = (0, "optimizer", 0, 20, 30), (0, "optimizer", 0, 70, 80)
    found = parts((0, "forward", 0, 0, 10), *step, (0, "broadcast", 0, 30, 75))
    assert found == {"compute": 10, "collective": 40, "optimizer": 20, "overlapped": 5, "other": 30}


def test_sends_and_receives_have_their_own_part() -> None:
    found = parts((0, "forward", 0, 0, 50), (0, "receive", 0, 40, 60), (0, "all_reduce", 0, 55, 70))
    assert found == {"compute": 50, "collective": 15, "transfer": 5, "other": 30}


def test_every_rank_is_measured_between_its_own_edges() -> None:
    spans = frame(
        (0, "iteration", 3, 0, 100),
        (1, "iteration", 3, 10, 130),
        (0, "forward", 3, 0, 40),
        (1, "forward", 3, 10, 40),
        (1, "forward", 3, 120, 140),
    )
    lengths = {
        each.rank: (each.end_ns - each.start_ns, dict(each.parts_ns or {})["compute"])
        for each in rank_times(spans, np.array([3]))
    }
    assert lengths == {0: (100, 40), 1: (120, 40)}


def test_a_rank_with_an_optimizer_only_was_not_profiled() -> None:
    spans = frame((0, "iteration", 0, 0, 100), (0, "optimizer", 0, 80, 90))
    (rank,) = rank_times(spans, np.array([0]))
    assert rank.parts_ns is None
    assert rank.share("compute") is None
    assert program_parts(spans, np.array([0])).empty


def test_the_last_iterations_are_the_profiled_ones() -> None:
    spans = frame(*((0, "iteration", number, number, number + 1) for number in range(5)))
    assert profiled_iterations(spans, 2).tolist() == [3, 4]
    assert profiled_iterations(spans, 9).tolist() == [0, 1, 2, 3, 4]
    assert profiled_iterations(spans, 0).tolist() == profiled_iterations(spans, None).tolist() == []


def test_busy_is_computation_and_optimizer() -> None:
    rows = (0, "iteration", 0, 0, 100), (0, "forward", 0, 0, 30), (0, "optimizer", 0, 40, 50)
    busy = program_busy(program_parts(frame(*rows, (0, "all_reduce", 0, 60, 70)), np.array([0])))
    assert (busy["busy_ns"].tolist(), busy["idle_ns"].tolist()) == ([40], [60])


def test_what_a_rank_computed_before_the_last_rank_began_its_iteration_counts() -> None:
    early, late = ((0, "iteration", 1, 0, 100), (0, "forward", 1, 5, 25)), ((1, "iteration", 1, 60, 160),)
    busy = program_busy(program_parts(frame(*early, *late, (1, "forward", 1, 70, 80)), np.array([1])))
    assert (busy["busy_ns"].tolist(), busy["idle_ns"].tolist()) == ([20, 10], [80, 90])


SPANS = st.tuples(
    st.integers(0, 2),
    st.sampled_from(("forward", "backward", "optimizer", "all_reduce", "all_gather", "send")),
    st.just(0),
    st.integers(0, 120),
    st.integers(0, 120),
)


@given(st.lists(SPANS, min_size=1, max_size=30))
def test_parts_add_up_to_the_time_of_every_gpu(rows: list[tuple[int, str, int, int, int]]) -> None:
    edges = [(rank, "iteration", 0, 10 + rank, 100) for rank in range(3)]
    spans = frame(*edges, *((*row[:3], min(row[3:]), max(row[3:])) for row in rows))
    found = program_parts(spans, np.array([0]))
    ranks = [int(host.removeprefix("east-")) for host, _ in found.index]
    assert found.sum(axis="columns").tolist() == [90 - rank for rank in ranks]
    assert (found >= 0).all(axis=None)


def test_collectives_are_means_of_a_rank_and_iteration() -> None:
    spans = frame(
        (0, "backward", 0, 0, 10),
        (0, "all_reduce", 0, 5, 30),
        (1, "all_reduce", 0, 15, 30),
        (0, "all_reduce", 0, 40, 60),
        (1, "all_reduce", 0, 36, 60),
    )
    (found,) = collective_times(spans, np.array([0]))
    assert (found.count, found.size_bytes, found.ranks) == (2, 16, 2)
    assert found.time_ns == pytest.approx((25 + 20 + 15 + 24) / 2)
    assert found.exposed_ns == pytest.approx((20 + 20 + 15 + 24) / 2)
    assert found.waited_ns == pytest.approx((10 + 4) / 2)
    assert found.last == {0: 1, 1: 1}


def test_collectives_that_do_not_match_name_nobody() -> None:
    (found,) = collective_times(frame((0, "all_reduce", 0, 0, 9), (0, "all_reduce", 0, 9, 12)), np.array([0]))
    assert (found.waited_ns, found.last, found.slowest_rank) == (None, None, None)


def test_what_hides_a_collective_is_computation_of_its_own_rank() -> None:
    spans = frame(
        (0, "all_reduce", 0, 10, 40),
        (1, "all_reduce", 0, 10, 40),
        (1, "backward", 0, 30, 70),
        (2, "backward", 0, 0, 100),
    )
    (found,) = collective_times(spans, np.array([0]))
    assert (found.ranks, found.time_ns, found.exposed_ns) == (2, 30, (30 + 20) / 2)


def test_collectives_are_listed_by_kind_and_group_the_most_exposed_first() -> None:
    whole = frame(
        (0, "all_gather", 0, 0, 10),
        (1, "all_gather", 0, 0, 10),
        (0, "all_reduce", 0, 20, 50),
        (1, "all_reduce", 0, 24, 50),
        (0, "all_reduce", 1, 60, 70),
        (1, "all_reduce", 1, 62, 70),
        (0, "all_reduce", 2, 80, 99),
        (1, "all_reduce", 2, 80, 99),
    )
    alone = frame((0, "all_reduce", 0, 52, 58), size_bytes=3, group="0")
    found = collective_times(pd.concat((whole, alone)), np.array([0, 1]))
    assert [(each.kind, each.group, each.exposed_ns) for each in found] == [
        ("all_reduce", "0,1", (30 + 26 + 10 + 8) / 4),
        ("all_gather", "0,1", 5),
        ("all_reduce", "0", 3),
    ]
    assert [(each.count, each.size_bytes, each.smallest_bytes, each.largest_bytes) for each in found] == [
        (1, 8, 8, 8),
        (0.5, 4, 8, 8),
        (0.5, 1.5, 3, 3),
    ]
    assert (found[0].waited_ns, found[0].last, found[0].slowest_rank) == ((4 + 2) / 4, {1: 2}, 1)


def test_the_slowest_rank_is_the_one_that_began_last_most_often() -> None:
    rows = [
        (rank, "all_reduce", 0, 10 * number + (rank == last), 10 * number + 9)
        for number, last in enumerate((0, 1, 1))
        for rank in (0, 1)
    ]
    (found,) = collective_times(frame(*rows), np.array([0]))
    assert (found.last, found.slowest_rank) == ({0: 1, 1: 2}, 1)


def test_a_rank_is_measured_over_its_iterations_and_a_span_at_its_edge_is_not_in_them() -> None:
    spans = frame(
        (0, "iteration", 1, 100, 200),
        (0, "iteration", 2, 200, 400),
        (0, "forward", 1, 150, 250),
        (0, "all_reduce", 0, 50, 100),
        (1, "iteration", 1, 100, 200),
        (1, "forward", 3, 200, 300),
    )
    zero, one = rank_times(spans, np.array([1, 2]))
    assert (zero.rank, zero.host, zero.iterations, zero.start_ns, zero.end_ns) == (0, "east-0", 2, 100, 400)
    assert zero.iteration_ns == 150
    assert (zero.share("compute"), zero.share("collective")) == (100 / 300, 0)
    assert (one.rank, one.iterations, one.parts_ns) == (1, 1, None)
