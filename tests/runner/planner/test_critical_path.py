"""The critical path of spans that were written by hand."""

import numpy as np

from tests.support.runner.planner_instances import document, task_of
from wanbed.results.records.span_columns import SpanColumns
from wanbed.runner.planner.candidate import Candidate
from wanbed.runner.planner.critical_path import Part, critical_path_ns
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation

Row = tuple[int, str, int, int, int, int]
"""Rank, kind, microbatch, start, end and peer."""

GPU_A, GPU_B = Part("computing", ("a",), 0), Part("computing", ("b",), 1)
HELD_A, LINK = Part("schedule", ("a",), 0), Part("link", ("a", "b"))


def path_of(
    rows: list[Row], begin_ns: int = 0, cells: int = 1, *, overlap: bool = True
) -> tuple[dict[Part, int], dict[Part, int]]:
    """Return the critical path of one iteration of two stages, one in each datacenter."""
    variant_document = {"name": "v", "schedule": "gpipe", "transport": {"overlap": overlap}}
    task = task_of(document({"a": 2, "b": 2}, 2, variants=[variant_document]))
    variant = task.resolve(Candidate(cells, 1, (("a", 1), ("b", 1))))
    in_order = sorted(rows, key=lambda row: (row[0], row[3], row[4]))
    rank, kind, microbatch, start, end, peer = (np.array(column) for column in zip(*in_order, strict=True))
    codes, zeros = np.array([KIND_CODES[each] for each in kind]), np.zeros(len(rows), np.int64)
    columns = SpanColumns(rank, codes, zeros, microbatch, start, end, zeros, peer, zeros - 1)
    return critical_path_ns(variant, Simulation(columns, (), {}), begin_ns)


ONE: list[Row] = [
    (0, "forward", 0, 0, 10, -1),
    (1, "receive", 0, 15, 30, 0),
    (1, "forward", 0, 30, 40, -1),
    (1, "backward", 0, 40, 60, -1),
    (0, "receive", 0, 70, 75, 1),
    (0, "backward", 0, 75, 95, -1),
]


def test_a_microbatch_goes_through_gpus_and_links_and_every_nanosecond_counts_once() -> None:
    parts, crossings = path_of(ONE)
    assert parts == {GPU_A: 10 + 20, LINK: 20 + 15, GPU_B: 10 + 20}
    assert crossings == {LINK: 2}


def test_the_path_before_the_warm_up_ends_is_left_out() -> None:
    parts, crossings = path_of(ONE, begin_ns=20)
    assert parts == {GPU_A: 20, LINK: 10 + 15, GPU_B: 30}
    assert crossings == {LINK: 1}


def test_a_gpu_that_was_busy_when_its_tensor_arrived_is_the_cause_itself() -> None:
    earlier = [*ONE[:4], (0, "receive", 0, 62, 64, 1), (0, "forward", 1, 64, 75, -1), ONE[5]]
    parts, _ = path_of(earlier)
    # Before the second forward the GPU had nothing to wait for: its schedule held it back since the first one.
    assert parts == {GPU_A: 10 + 11 + 20, HELD_A: 54}


def test_a_computation_that_begins_after_its_tensor_has_arrived_was_held_back() -> None:
    parts, _ = path_of([*ONE[:5], (0, "backward", 0, 80, 100, -1)])
    assert parts == {GPU_A: 30, LINK: 35, GPU_B: 30, HELD_A: 5}


def test_an_all_reduce_goes_back_to_the_replica_that_was_ready_last() -> None:
    rows: list[Row] = [
        (0, "backward", 0, 0, 10, -1),
        (0, "all_reduce", -1, 10, 50, -1),
        (2, "backward", 0, 0, 30, -1),
        (2, "all_reduce", -1, 30, 50, -1),
    ]
    parts, _ = path_of(rows, cells=2)
    assert parts == {Part("all_reduce", ("a",), 0): 20, GPU_A: 30}


def test_the_gradient_norm_goes_back_to_the_rank_of_any_stage_that_was_ready_last() -> None:
    rows: list[Row] = [
        (0, "backward", 0, 0, 10, -1),
        (0, "norm", -1, 10, 45, -1),
        (0, "optimizer", -1, 45, 50, -1),
        (1, "backward", 0, 0, 30, -1),
        (1, "norm", -1, 30, 40, -1),
    ]
    parts, _ = path_of(rows)
    assert parts == {GPU_A: 5, Part("norm", ()): 15, GPU_B: 30}


def test_buckets_go_back_to_the_bucket_before_or_into_the_backward_that_completed_them() -> None:
    """Both replicas complete a bucket at 20 and at 40 of a backward of 40; each is summed for 30."""
    rows: list[Row] = []
    for rank in (0, 2):
        rows += [
            (rank, "backward", 0, 0, 40, -1),
            (rank, "all_reduce", -1, 20, 50, -1),
            (rank, "all_reduce", -1, 50, 80, -1),
            (rank, "optimizer", -1, 80, 85, -1),
        ]
    parts, _ = path_of(rows, cells=2)
    assert parts == {Part("all_reduce", ("a",), 0): 60, GPU_A: 20 + 5}


def test_a_bucket_that_waited_for_the_backward_leaves_the_one_before_it_out() -> None:
    rows: list[Row] = []
    for rank in (0, 2):
        rows += [
            (rank, "backward", 0, 0, 40, -1),
            (rank, "all_reduce", -1, 20, 35, -1),
            (rank, "all_reduce", -1, 40, 55, -1),
        ]
    parts, _ = path_of(rows, cells=2)
    assert parts == {Part("all_reduce", ("a",), 0): 15, GPU_A: 40}


def test_an_optimizer_step_that_waits_for_the_last_send_waits_for_the_link() -> None:
    rows: list[Row] = [
        (1, "backward", 0, 0, 10, -1),
        (1, "send", 0, 10, 40, 0),
        (1, "optimizer", -1, 40, 45, -1),
    ]
    parts, _ = path_of(rows)
    assert parts == {GPU_B: 15, LINK: 30}


def test_waiting_for_the_last_send_crosses_no_link() -> None:
    _, crossings = path_of([(1, "backward", 0, 0, 10, -1), (1, "send", 0, 10, 40, 0), (1, "optimizer", -1, 40, 45, -1)])
    assert crossings == {}


def test_where_sends_block_a_computation_after_a_send_waits_for_the_link() -> None:
    rows: list[Row] = [
        (0, "forward", 0, 0, 10, -1),
        (0, "send", 0, 10, 40, 1),
        (0, "forward", 1, 42, 52, -1),
    ]
    assert path_of(rows, overlap=False) == ({GPU_A: 10 + 10, LINK: 30, HELD_A: 2}, {})
    assert path_of(rows) == ({GPU_A: 10 + 10, HELD_A: 32}, {})


def test_where_sends_block_a_tensor_that_arrives_during_a_send_is_not_waited_for() -> None:
    parts, _ = path_of([*ONE[:5], (0, "send", 0, 10, 80, 1), (0, "backward", 0, 80, 100, -1)], overlap=False)
    assert parts == {GPU_A: 10 + 20, LINK: 70}
