from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.user_programs.hook.wanbed_hook.busy_time import Stretch, cpu_busy, cut, gpu_busy
from wanbed.workloads.user_programs.hook.wanbed_hook.optimizer_steps import Step
from wanbed.workloads.user_programs.hook.wanbed_hook.trace import Event

MS = 1_000_000


def operator(name: str, start_ns: int, end_ns: int, thread: int = 1) -> Event:
    return Event("cpu_op", name, thread, start_ns, end_ns, {})


def test_the_class_is_that_of_the_innermost_window() -> None:
    events = [
        operator("aten::linear", 0, 10 * MS),
        operator("autograd::engine::evaluate_function: MmBackward0", 10 * MS, 40 * MS, thread=2),
        operator("MmBackward0", 10 * MS, 40 * MS, thread=2),
        operator("aten::mm", 12 * MS, 20 * MS, thread=2),
        # An optimizer that steps within the backward pass.
        operator("aten::_fused_adamw_", 30 * MS, 40 * MS, thread=2),
        operator("aten::add_", 50 * MS, 60 * MS),
    ]
    steps = [Step(2, 30 * MS, 40 * MS), Step(1, 50 * MS, 60 * MS)]
    assert cpu_busy(events, steps) == [
        Stretch("forward", 0, 10 * MS),
        Stretch("backward", 12 * MS, 20 * MS),
        Stretch("optimizer", 30 * MS, 40 * MS),
        Stretch("optimizer", 50 * MS, 60 * MS),
    ]


def test_an_operator_that_calls_others_may_wait_unless_it_is_atens() -> None:
    events = [
        operator("MyFunctionBackward", 0, 90 * MS),
        operator("aten::mm", 0, 10 * MS),
        operator("aten::linear", 20 * MS, 40 * MS),
        operator("aten::addmm", 25 * MS, 30 * MS),
        operator("mylib::fused", 50 * MS, 60 * MS),
    ]
    assert [(each.start_ns, each.end_ns) for each in cpu_busy(events, [])] == [
        (0, 10 * MS),
        (20 * MS, 40 * MS),
        (50 * MS, 60 * MS),
    ]


def test_waiting_for_a_collective_is_no_computation_even_within_an_operator() -> None:
    events = [
        operator("aten::mm", 0, 10 * MS),
        operator("_c10d_functional::wait_tensor", 2 * MS, 8 * MS),
        operator("c10d::allreduce_", 20 * MS, 30 * MS),
    ]
    assert cpu_busy(events, []) == [Stretch("forward", 0, 2 * MS), Stretch("forward", 8 * MS, 10 * MS)]


def test_a_compiled_region_counts_as_a_whole() -> None:
    events = [operator("Torch-Compiled Region: 0/0", 0, 10 * MS), operator("aten::mm", 2 * MS, 3 * MS)]
    assert cpu_busy(events, []) == [Stretch("forward", 0, 10 * MS)]


def test_python_between_operators_does_not_end_a_stretch() -> None:
    events = [operator("aten::mm", 0, MS), operator("aten::mm", MS + 150_000, 2 * MS)]
    assert cpu_busy(events, []) == [Stretch("forward", 0, 2 * MS)]


def test_a_gap_in_which_a_collective_was_called_stays_open() -> None:
    events = [
        operator("aten::mm", 0, MS),
        operator("c10d::allreduce_", MS + 10_000, MS + 20_000),
        operator("aten::mm", MS + 150_000, 2 * MS),
    ]
    assert cpu_busy(events, []) == [Stretch("forward", 0, MS), Stretch("forward", MS + 150_000, 2 * MS)]


def test_kernels_are_of_the_code_that_launched_them_and_communication_is_none() -> None:
    def launch(number: int, at_ns: int, thread: int) -> Event:
        return Event("cuda_runtime", "cudaLaunchKernel", thread, at_ns, at_ns + 5_000, {"correlation": number})

    def kernel(number: int, name: str, start_ns: int, end_ns: int) -> Event:
        return Event("kernel", name, 7, start_ns, end_ns, {"correlation": number})

    events = [
        launch(1, 0, thread=1),
        operator("autograd::engine::evaluate_function: MmBackward0", MS, 2 * MS, thread=2),
        launch(2, MS + 1, thread=2),
        launch(3, 3 * MS, thread=1),
        launch(4, 4 * MS, thread=1),
        kernel(1, "gemm", 10 * MS, 20 * MS),
        kernel(2, "gemm_backward", 20 * MS, 30 * MS),
        kernel(3, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 25 * MS, 90 * MS),
        kernel(4, "multi_tensor_apply", 40 * MS, 50 * MS),
        operator("aten::mm", 60 * MS, 70 * MS),
    ]
    assert gpu_busy(events, [Step(1, 4 * MS - 1, 5 * MS)]) == [
        Stretch("forward", 10 * MS, 20 * MS),
        Stretch("backward", 20 * MS, 30 * MS),
        Stretch("optimizer", 40 * MS, 50 * MS),
    ]


def test_a_stretch_is_cut_at_the_edges_of_iterations() -> None:
    stretches = [Stretch("forward", 5, 35)]
    assert cut(stretches, [(3, 10, 20), (4, 25, 40)]) == [
        (3, Stretch("forward", 10, 20)),
        (4, Stretch("forward", 25, 35)),
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 10), st.integers(1, 3), st.booleans()).map(
            lambda drawn: (drawn[0], drawn[0] + drawn[1], drawn[2], drawn[3])
        ),
        max_size=12,
    )
)
def test_no_moment_counts_twice_and_none_is_lost(drawn: list[tuple[int, int, int, bool]]) -> None:
    """Operators of several threads, some within a step; milliseconds, so that no gap is closed."""
    events = [operator("aten::mm", start * MS, end * MS, thread) for start, end, thread, _ in drawn]
    steps = [Step(thread, start * MS, end * MS) for start, end, thread, is_step in drawn if is_step]
    busy = cpu_busy(sorted(events, key=lambda event: event.start_ns), steps)
    moments = {moment for start, end, _, _ in drawn for moment in range(start, end)}
    assert sum(each.end_ns - each.start_ns for each in busy) == len(moments) * MS
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(busy))
    assert all(each.kind in {"forward", "optimizer"} for each in busy)


@pytest.mark.parametrize("busy", [cpu_busy, gpu_busy])
def test_nothing_recorded_is_nothing_computed(busy: object) -> None:
    assert callable(busy)
    assert busy([], []) == []
