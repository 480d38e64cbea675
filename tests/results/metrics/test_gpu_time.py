"""A gap is told by what the computation at its end had waited for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed import results
from wanbed.results import metrics
from wanbed.results.metrics import IDLE_CAUSES, Window

MakeSpans = Callable[..., pd.DataFrame]

WEST = {"host": "west-0", "stage": 1}

HERE: dict[str, Any] = {}


def west(spans: pd.DataFrame, window: Window, host: str = "west-0") -> dict[str, int]:
    found = metrics.idle_causes(spans, window).loc[(host, 0)]
    return {cause: int(found[cause]) for cause in IDLE_CAUSES if found[cause]}


def test_an_activation_is_awaited_until_computed_and_then_the_link_until_it_arrives(
    spans: MakeSpans,
) -> None:
    frame = spans(
        ("forward", 0, 10, HERE),
        ("forward", 10, 50, {"microbatch": 1}),
        ("forward", 12, 22, WEST),
        ("receive", 55, 70, {**WEST, "microbatch": 1, "tensor": "activation"}),
        ("forward", 75, 85, {**WEST, "microbatch": 1}),
    )
    assert west(frame, Window(12, 85)) == {"activation": 50 - 22, "link": 70 - 50, "schedule": 75 - 70}


def test_virtual_stages_wait_for_the_one_before_in_the_model(spans: MakeSpans) -> None:
    # A V over two stages: the west has virtual stages 1 and 2, the east 0 and 3.
    frame = spans(
        ("forward", 0, 10, HERE),
        ("receive", 12, 15, {**WEST, "tensor": "activation"}),
        ("forward", 15, 25, WEST),
        ("forward", 27, 37, WEST),
        ("receive", 40, 44, {"tensor": "activation"}),
        ("forward", 44, 54, HERE),
    ).assign(virtual_stage=[0, 1, 1, 2, 3, 3])
    # What is handed over on one GPU is there at once: the schedule held the second part back.
    assert west(frame, Window(15, 37)) == {"schedule": 2}
    assert west(frame, Window(0, 54), "east-0") == {"activation": 37 - 10, "link": 44 - 37}


def test_a_recomputation_waits_for_its_gradient(spans: MakeSpans) -> None:
    frame = spans(
        ("forward", 0, 10, HERE),
        ("backward", 20, 40, WEST),
        ("receive", 45, 60, {"tensor": "gradient"}),
        ("recompute", 60, 70, HERE),
        ("backward", 70, 90, HERE),
    )
    assert west(frame, Window(0, 90), "east-0") == {"gradient": 40 - 10, "link": 60 - 40}


def test_a_split_backward_hands_its_gradient_on_when_its_first_part_is_done(spans: MakeSpans) -> None:
    frame = spans(
        ("forward", 0, 10, HERE),
        ("backward_input", 20, 30, WEST),
        ("backward_weight", 30, 50, WEST),
        ("receive", 35, 40, {"tensor": "gradient"}),
        ("backward_input", 40, 50, HERE),
        ("backward_weight", 55, 65, HERE),
    )
    assert west(frame, Window(0, 65), "east-0") == {"gradient": 20, "link": 10, "schedule": 5}


def test_idle_before_the_first_computation_is_fill_and_after_the_last_is_drain(
    spans: MakeSpans,
) -> None:
    frame = spans(
        ("forward", 0, 10, HERE),
        ("receive", 14, 18, {**WEST, "tensor": "activation"}),
        ("forward", 20, 30, WEST),
        ("backward", 30, 50, WEST),
        ("receive", 50, 55, {"tensor": "gradient"}),
        ("backward", 55, 75, HERE),
    )
    window = Window(0, 75)
    # 10 to fill, 8 on the link, 2 more until the first forward began, and 25 to drain.
    assert west(frame, window) == {"link": 8, "fill_drain": 10 + 2 + 25}
    assert west(frame, window, "east-0") == {"gradient": 40, "link": 5}


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_a_collective_is_a_cause_in_any_gap(spans: MakeSpans, kind: str) -> None:
    frame = spans(
        ("forward", 0, 10, HERE),
        (kind, 15, 35, HERE),
        ("optimizer", 40, 45, HERE),
        ("forward", 50, 60, {"iteration": 1}),
    )
    assert west(frame, Window(0, 60), "east-0") == {"all_reduce": 20, "schedule": 10, "fill_drain": 5}


def test_the_first_stage_needs_no_activation_and_the_last_no_gradient(spans: MakeSpans) -> None:
    frame = spans(
        ("forward", 0, 10, HERE), ("forward", 15, 20, {"microbatch": 1}), ("backward", 30, 40, {"microbatch": 1})
    )
    assert west(frame, Window(0, 40), "east-0") == {"schedule": 5 + 10}


def test_a_tensor_whose_arrival_was_not_logged_had_arrived_when_it_was_used(spans: MakeSpans) -> None:
    frame = spans(
        ("forward", 0, 10, HERE),
        ("forward", 10, 40, {"microbatch": 1}),
        ("forward", 15, 20, WEST),
        ("forward", 60, 70, {**WEST, "microbatch": 1}),
    )
    assert west(frame, Window(15, 70)) == {"activation": 20, "link": 20}


def test_where_sends_block_a_gpu_waits_for_the_link_until_its_own_tensor_has_left(spans: MakeSpans) -> None:
    frame = spans(
        ("forward", 0, 10, HERE),
        ("send", 10, 40, {"tensor": "activation"}),
        ("forward", 42, 52, {"microbatch": 1}),
        ("send", 52, 82, {"microbatch": 1, "tensor": "activation"}),
        ("receive", 60, 70, {"tensor": "gradient"}),
        ("backward", 82, 100, HERE),
    )
    window = Window(0, 100)
    causes = metrics.idle_causes(frame, window, sends_block=True).loc[("east-0", 0)]
    assert {cause: int(causes[cause]) for cause in IDLE_CAUSES if causes[cause]} == {"link": 30 + 30, "schedule": 2}
    assert west(frame, window, "east-0")["schedule"] > 2


def test_a_gpu_that_never_computed_idled_outside_any_iteration(spans: MakeSpans) -> None:
    frame = spans(("forward", 0, 10, HERE), ("send", 2, 5, {"host": "north-0"}))
    assert west(frame, Window(0, 10), "north-0") == {"fill_drain": 10}


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["forward", "recompute", "backward", "optimizer", "all_reduce", "send", "receive", "prefill"]),
        st.integers(0, 80),
        st.integers(0, 30),
        st.fixed_dictionaries(
            {
                "stage": st.integers(0, 2),
                "pipeline": st.integers(0, 1),
                "iteration": st.integers(0, 1),
                "microbatch": st.integers(-1, 1),
                "tensor": st.sampled_from(["activation", "gradient", ""]),
            }
        ),
    ).map(
        lambda row: (row[0], row[1], row[1] + row[2], {**row[3], "host": f"h{row[3]['stage']}-{row[3]['pipeline']}"})
    ),
    min_size=1,
    max_size=25,
)


@given(rows=ROWS, edges=st.tuples(st.integers(0, 120), st.integers(0, 120)), sends_block=st.booleans())
def test_the_causes_add_up_to_the_idle_time_of_every_gpu_whatever_was_logged(
    spans: MakeSpans, rows: list[tuple[Any, ...]], edges: tuple[int, int], sends_block: bool
) -> None:
    frame, window = spans(*rows), Window(min(edges), max(edges))
    causes = metrics.idle_causes(frame, window, sends_block=sends_block)
    alone, both = (metrics.gpu_busy(frame, window, with_prefill=asked) for asked in (False, True))
    assert (causes.sum(axis=1) == both["idle_ns"]).all()
    assert (causes.sum(axis=1) + metrics.prefill_ns(frame, window) == alone["idle_ns"]).all()
    assert (causes >= 0).all(axis=None)


@given(rows=ROWS, edges=st.tuples(st.integers(0, 120), st.integers(0, 120)))
def test_prefill_only_ever_takes_from_a_cause_and_adds_to_none(
    spans: MakeSpans, rows: list[tuple[Any, ...]], edges: tuple[int, int]
) -> None:
    # An all-reduce keeps every GPU among those that train when its prefill is taken away.
    there = [("all_reduce", 0, 0, row[3]) for row in rows]
    frame, window = spans(*rows, *there), Window(min(edges), max(edges))
    without = frame[frame["kind"] != "prefill"]
    assert (metrics.idle_causes(frame, window) <= metrics.idle_causes(without, window)).all(axis=None)


def test_prefill_in_a_gap_is_subtracted_from_the_part_it_lies_in(spans: MakeSpans) -> None:
    frame = spans(
        ("forward", 0, 10, HERE),
        ("forward", 10, 50, {"microbatch": 1}),
        ("forward", 12, 22, WEST),
        ("prefill", 30, 60, {**WEST, "microbatch": -1, "request": 0}),
        ("receive", 55, 70, {**WEST, "microbatch": 1, "tensor": "activation"}),
        ("forward", 75, 85, {**WEST, "microbatch": 1}),
    )
    assert west(frame, Window(12, 85)) == {"activation": 30 - 22, "link": 70 - 60, "schedule": 75 - 70}


def test_buckets_that_are_summed_beside_a_backward_make_no_gpu_idle(spans: MakeSpans) -> None:
    frame = spans(
        ("backward", 0, 40, HERE),
        ("all_reduce", 20, 35, HERE),
        ("all_reduce", 40, 55, HERE),
        ("optimizer", 55, 60, HERE),
    )
    assert west(frame, Window(0, 60), "east-0") == {"all_reduce": 15}


def test_the_gradient_norm_counts_as_the_all_reduce_that_it_is(spans: MakeSpans) -> None:
    frame = spans(
        ("backward", 0, 10, HERE),
        ("norm", 10, 30, HERE),
        ("optimizer", 30, 40, HERE),
    )
    assert west(frame, Window(0, 40), "east-0") == {"all_reduce": 20}


def test_prefill_during_the_all_reduce_is_subtracted_from_it(spans: MakeSpans) -> None:
    frame = spans(
        ("backward", 0, 10, HERE),
        ("all_reduce", 10, 30, HERE),
        ("prefill", 15, 25, {"microbatch": -1, "request": 0}),
        ("optimizer", 30, 35, HERE),
    )
    assert west(frame, Window(0, 35), "east-0") == {"all_reduce": 10}


def test_gpus_that_only_prefill_do_not_count_among_training_s(spans: MakeSpans) -> None:
    frame = spans(("forward", 0, 10, HERE), ("prefill", 0, 10, {"host": "east-serving-0", "stage": 9, "request": 0}))
    assert list(metrics.idle_causes(frame, Window(0, 10)).index) == [("east-0", 0)]
    assert metrics.gpu_utilization(metrics.gpu_busy(frame, Window(0, 10), with_prefill=True)) == 1
    assert metrics.prefill_gpu_time_ns(frame, Window(0, 8)) == 8


def test_a_run_waits_longer_for_a_slower_link(build_run: Callable[..., Path]) -> None:
    run = results.load(build_run(variants=("one", "many"), latencies=("40ms",)))
    link_ns = []
    for trial in run.trials:
        frame = run.spans[run.spans["variant"] == trial.variant]
        window = metrics.measured_window(metrics.iteration_windows(frame), 1)
        assert window is not None
        causes = metrics.idle_causes(frame, window)
        assert (causes.sum(axis=1) == metrics.gpu_busy(frame, window)["idle_ns"]).all()
        link_ns.append(causes["link"].sum())
    assert link_ns[0] > 1.5 * link_ns[1]


@pytest.mark.parametrize("empty", [True, False])
def test_no_spans_give_no_gpus(spans: MakeSpans, empty: bool) -> None:
    frame = spans(("forward", 0, 1, HERE))[: 0 if empty else 1]
    assert len(metrics.idle_causes(frame, Window(0, 1))) == (0 if empty else 1)


def test_an_iteration_that_ends_waits_for_what_it_sent_to_have_left(spans: MakeSpans) -> None:
    frame = spans(
        ("backward", 0, 10, WEST),
        ("send", 5, 40, {**WEST, "tensor": "gradient"}),
        ("all_reduce", 12, 20, WEST),
        ("optimizer", 45, 50, WEST),
    )
    assert west(frame, Window(0, 50)) == {"link": 2 + 20, "all_reduce": 8, "schedule": 5}


def test_without_an_optimizer_the_next_iteration_waits_for_it(spans: MakeSpans) -> None:
    frame = spans(
        ("forward", 0, 10, HERE),
        ("send", 10, 40, {"tensor": "activation"}),
        ("forward", 45, 50, {"iteration": 1}),
        ("send", 50, 70, {"iteration": 1, "tensor": "activation"}),
    )
    assert west(frame, Window(0, 80), "east-0") == {"link": 30 + 20, "fill_drain": 5 + 10}


@settings(max_examples=8)
@given(rows=ROWS, edges=st.tuples(st.integers(0, 120), st.integers(0, 120)))
def test_how_high_microbatches_are_numbered_does_not_matter(
    spans: MakeSpans, rows: list[tuple[Any, ...]], edges: tuple[int, int]
) -> None:
    far = [
        (*row[:3], {**row[3], "microbatch": row[3]["microbatch"] + 2**21 if row[3]["microbatch"] >= 0 else -1})
        for row in rows
    ]
    window = Window(min(edges), max(edges))
    pd.testing.assert_frame_equal(
        metrics.idle_causes(spans(*far), window), metrics.idle_causes(spans(*rows), window), check_dtype=False
    )


def test_of_two_tensors_of_one_number_the_first_counts(spans: MakeSpans) -> None:
    for number in (1, 2**21):
        frame = spans(
            ("forward", 0, 10, {"microbatch": number}),
            ("forward", 12, 22, WEST),
            ("receive", 25, 30, {**WEST, "microbatch": number, "tensor": "activation"}),
            ("receive", 35, 40, {**WEST, "microbatch": number, "tensor": "activation"}),
            ("forward", 45, 55, {**WEST, "microbatch": number}),
        )
        assert west(frame, Window(12, 55)) == {"link": 30 - 22, "schedule": 45 - 30}
