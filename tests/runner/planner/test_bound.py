"""The bound is below all prices, and equals the price where it accounts for the whole iteration."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runner.planner_instances import document, random_task, task_of
from wanbed.runner.planner.bound import IterationBound
from wanbed.runner.planner.planning import ceiling, search_space
from wanbed.runner.planner.pricing import simulated_pricing
from wanbed.runner.planner.search import every_candidate
from wanbed.runner.planner.search_space import Candidate
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.workloads.schedules.planning import shortened_planner

GPIPE = [{"name": "v", "schedule": "gpipe", "transport": {"connections": "auto"}}]


@pytest.fixture(scope="module", autouse=True)
def quick_plans() -> Iterator[None]:
    """Make plans in little time: here they have to be right, and need not be short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortened_planner, "_SHORTENED_ACTIONS", 2_000)
        patch.setattr(shortened_planner, "_PRICED_ACTIONS", 1_000)
        yield


def bound_ms(task_document: dict[str, Any], candidate: Candidate) -> float:
    task = task_of(task_document)
    top = ceiling(task)(candidate.pipelines, candidate.runs, candidate.pipelines_per_cell)
    return round(candidate.pipelines * task.microbatches * task.counted_per_sequence / top * 1e3, 3)


@settings(max_examples=100)
@given(
    st.integers(0, 10_000),
    st.one_of(
        st.sampled_from([(name, {}) for name in ("gpipe", "1f1b", "varuna", "zb-h1", "zb-2p", "atlas")]),
        st.sampled_from([("atlas", {"split": split}) for split in ("always", "auto")]),
    ),
    st.sampled_from([TcpEffects(), IDEAL]),
    st.sampled_from(
        [
            {},
            {"all_reduce_overlap": True, "bucket": "4MiB"},
            {"activation": {"wire": "int8", "encode": "1GB/s"}},
            {"activation": {"wire": "topk", "kept": "1%"}},
        ]
    ),
    st.data(),
)
def test_no_simulated_candidate_gives_more_than_its_ceiling(
    seed: int,
    schedule: tuple[str, dict[str, str]],
    effects: TcpEffects,
    transport: dict[str, Any],
    data: st.DataObject,
) -> None:
    name, options = schedule
    task = random_task(seed, name, options=options, **transport)
    candidate = data.draw(st.sampled_from(list(every_candidate(search_space(task)))))
    pricing = simulated_pricing(task.topology, task.resolve, task.counted_per_sequence, effects, task.iterations)
    price = pricing(candidate)
    assert price.tokens_per_s <= ceiling(task)(candidate.pipelines, candidate.runs, candidate.pipelines_per_cell)


@given(st.integers(0, 10_000), st.data())
def test_a_beginning_has_a_ceiling_no_lower_than_what_begins_like_that(seed: int, data: st.DataObject) -> None:
    task = random_task(seed)
    top = ceiling(task)
    candidate = data.draw(st.sampled_from(list(every_candidate(search_space(task)))))
    tops = [top(candidate.pipelines, candidate.runs[:count], None) for count in range(len(candidate.runs) + 1)]
    tops.append(top(candidate.pipelines, candidate.runs, candidate.pipelines_per_cell))
    assert all(later <= earlier * (1 + 1e-8) for earlier, later in pairwise(tops))


@pytest.mark.parametrize("parts_ms", [(10, 15), (12, 4), (25, 9)])
def test_where_a_plan_decides_the_bound_is_below_those_of_whole_and_of_split_backwards(
    parts_ms: tuple[int, int],
) -> None:
    task = task_of(document({"a": 1, "b": 1}, 2, training={"stages": 2, "microbatches": 8}))
    input_ns, weight_ns = ((part_ms * 1_000_000,) * 2 for part_ms in parts_ms)
    work = replace(task.costs.least, backward_input_ns=input_ns, backward_weight_ns=weight_ns)

    def bound_ns(splits: bool | None) -> float:
        return IterationBound(task.topology, work, task.transport, 8, splits_backward=splits).of(APART)

    assert work.backward_ns == (20_000_000,) * 2
    assert 0.7 * bound_ns(False) < bound_ns(None) <= min(bound_ns(False), bound_ns(True))


ONE, EIGHT = ({"stages": 2, "microbatches": count} for count in (1, 8))
APART, TOGETHER = Candidate(1, 1, (("a", 1), ("b", 1))), Candidate(2, 1, (("a", 2),))

LARGE: dict[str, Any] = {"forward": "1ms", "activation": "4MiB", "gradient": "1MiB"}
SUMMED: dict[str, Any] = {"forward": "10ms", "activation": "1B", "gradient": "125000000B"}
IN_BUCKETS = [{**GPIPE[0], "transport": {"all_reduce_overlap": True, "bucket": "12500000B"}}]


@pytest.mark.parametrize(
    ("gpus", "sections", "candidate", "expected_ms"),
    [
        # 2 x (10 + 20) ms of computation; 1 MiB at 1 Gbit/s lasts 8.389 ms, and 10 ms more on the way, there and back.
        pytest.param(
            {"a": 1, "b": 1}, {"training": ONE}, APART, 60 + 2 * 18.388608, id="every stage and every link, twice"
        ),
        # 8 x (30 + 60) ms in stage 1, which is reached, and left for stage 0, over 18.388608 ms each way.
        pytest.param(
            {"a": 1, "b": 1},
            {
                "training": EIGHT,
                "compute": {"forward": ["10ms", "30ms"], "activation": "1MiB", "gradient": "1MiB"},
            },
            APART,
            30 + 720 + 2 * 18.388608,
            id="the slowest stage computes all microbatches",
        ),
        # 4 MiB at 1 Gbit/s last 33.554 ms: 8 of them one after the other, and the round trip of the last.
        pytest.param(
            {"a": 1, "b": 1},
            {"training": EIGHT, "compute": LARGE},
            APART,
            6 + 20 + 9 * 33.554432,
            id="a link that is slower than computation carries all microbatches",
        ),
        pytest.param(
            {"a": 2, "b": 2},
            {
                "training": EIGHT,
                "compute": {**LARGE, "gradient": "2B"},
                "links": [{"between": ["a", "b"], "rate": "1Gbit"}],
            },
            Candidate(2, 1, (("a", 1), ("b", 1))),
            6 + 20 + 17 * 33.554432,
            id="the trunk carries the transfers of all pipelines",
        ),
        # 4 MiB are 4 windows of 1 MiB: three round trips of 20 ms pass until the last of them may leave.
        pytest.param(
            {"a": 1, "b": 1},
            {
                "training": ONE,
                "compute": LARGE,
                "variants": [{**GPIPE[0], "transport": {"connections": 1, "window": "1MiB"}}],
            },
            APART,
            6 + 20 + 2 * 60,
            id="one connection moves a window each round trip",
        ),
        # A ring of 2 sends all of 125 MB over a port of 100 Gbit/s: 10 ms, beside what the other datacenter does.
        pytest.param(
            {"a": 4},
            {"training": ONE, "compute": SUMMED},
            TOGETHER,
            60 + 2 * 0.05 + 10,
            id="replicas sum their gradients after the last backward",
        ),
        # Of 10 ms in all, 10 buckets of 1 ms each: beside a backward of 20 ms, whose last tenth completes the last of
        # them, one is left; beside one of 5 ms, the 5.5 ms that do not fit into the 4.5 ms after the first bucket.
        *(
            pytest.param(
                {"a": 4},
                {"training": ONE, "compute": {**SUMMED, "backward": backward}, "variants": IN_BUCKETS},
                TOGETHER,
                expected_ms,
                id=f"of a sum in buckets only what a last backward of {backward} does not hide",
            )
            for backward, expected_ms in (("20ms", 60 + 2 * 0.05 + 1), ("5ms", 30 + 2 * 0.05 + 5.5))
        ),
        pytest.param(
            {"a": 1, "b": 1},
            {"training": ONE, "links": [{"between": ["a", "b"], "jitter": "4ms"}]},
            APART,
            60 + 2 * (18.388608 - 4),
            id="jitter may make a latency shorter",
        ),
    ],
)
def test_a_bound_is_the_time_that_no_iteration_can_do_without(
    gpus: dict[str, int], sections: dict[str, Any], candidate: Candidate, expected_ms: float
) -> None:
    assert bound_ms(document(gpus, 2, **{"variants": GPIPE, **sections}), candidate) == round(expected_ms, 3)


def of_beginning(runs: tuple[tuple[str, int], ...], pipelines: int, gpus_per_host: int = 2) -> float:
    """Return the bound in ms of two stages that begin like this. Hosts of b have several GPUs, those of a one."""
    content = document(
        {"a": 4, "b": 2},
        2,
        variants=GPIPE,
        training={"stages": 2, "microbatches": 1},
        compute={"forward": "10ms", "activation": "1MiB", "gradient": "125000000B"},
    )
    content["topology"]["datacenters"][1]["gpus_per_host"] = gpus_per_host
    task = task_of(content)
    return round(pipelines * task.counted_per_sequence / ceiling(task)(pipelines, runs, 1) * 1e3, 3)


def test_replicas_on_one_host_sum_without_the_network() -> None:
    # 60 ms of computation; 10 ms for a ring of two over ports of 100 Gbit/s; 1 MiB takes 0.084 ms and 0.05 ms each way.
    assert of_beginning((("b", 2),), 2) == 60
    assert of_beginning((("a", 2),), 2) == round(60 + 10 + 2 * (0.05 + 0.08388608), 3)
    # Three do not fit on a host of two: a ring of three sends 4 / 3 of the gradients.
    assert of_beginning((("b", 2),), 3) == round(60 + 40 / 3, 3)
    assert of_beginning((("b", 2),), 3, gpus_per_host=3) == 60


def test_a_stage_that_is_not_placed_yet_may_be_on_the_largest_host() -> None:
    assert of_beginning((), 2) == of_beginning((), 1) == 60
    assert of_beginning((), 3) == round(60 + 40 / 3, 3)
    # Then the second stage is in b: 10 ms and 1 MiB at 1 Gbit/s there and back, and a's ring.
    assert of_beginning((("a", 1),), 2) == round(60 + 10 + 2 * 18.388608, 3)
