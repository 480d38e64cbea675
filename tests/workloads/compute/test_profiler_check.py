import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.compute.profiler_check import ProfiledEvent, ProfilerCheck, profiled_busy_ns


def test_operators_count_once_and_only_within_spans() -> None:
    events = [
        ProfiledEvent("wanbed forward", 100, 200, is_mark=True),
        ProfiledEvent("aten::linear", 110, 150),
        ProfiledEvent("aten::addmm", 120, 140),
        ProfiledEvent("aten::gelu", 190, 230),
        ProfiledEvent("aten::zero_", 300, 400),
        ProfiledEvent("somebody's own", 150, 190, is_mark=True),
    ]
    assert profiled_busy_ns(events, on_device=False) == 40 + 10


def test_kernels_count_but_for_copies_and_communication() -> None:
    events = [
        ProfiledEvent("wanbed forward", 0, 1000, on_device=True, is_mark=True),
        ProfiledEvent("aten::mm", 0, 1000),
        ProfiledEvent("sm90_gemm", 100, 200, on_device=True),
        ProfiledEvent("elementwise", 150, 260, on_device=True),
        ProfiledEvent("Memcpy DtoH (Device -> Pinned)", 300, 400, on_device=True),
        ProfiledEvent("ncclDevKernel_AllReduce_Sum_bf16", 500, 900, on_device=True),
    ]
    assert profiled_busy_ns(events, on_device=True) == 160


def test_kernels_of_prefill_in_a_stream_of_its_own_do_not_count() -> None:
    events = [
        ProfiledEvent("wanbed forward", 0, 1000, is_mark=True, stream=1),
        ProfiledEvent("wanbed forward", 100, 300, on_device=True, is_mark=True, stream=7),
        ProfiledEvent("sm90_gemm", 100, 200, on_device=True, stream=7),
        ProfiledEvent("flash_fwd_kernel", 250, 900, on_device=True, stream=13),
        ProfiledEvent("somebody's own", 250, 900, on_device=True, is_mark=True, stream=13),
        ProfiledEvent("flash_bwd_kernel", 400, 450, on_device=True, stream=7),
    ]
    assert profiled_busy_ns(events, on_device=True) == 150


moments = st.integers(0, 60)
intervals = st.lists(st.tuples(moments, moments).map(sorted), max_size=8)


@given(intervals, intervals)
def test_busy_is_every_nanosecond_of_an_operator_within_a_span(
    operators: list[list[int]], spans: list[list[int]]
) -> None:
    events = [ProfiledEvent("aten::mm", *each) for each in operators]
    events += [ProfiledEvent("wanbed backward", *each, is_mark=True) for each in spans]
    inside = {
        moment
        for moment in range(60)
        if any(start <= moment < end for start, end in operators) and any(a <= moment < b for a, b in spans)
    }
    assert profiled_busy_ns(events, on_device=False) == len(inside)


def test_the_profiler_sees_what_torch_computes_within_a_mark() -> None:
    check = ProfilerCheck(on_device=False)
    check.begin()
    matrix = torch.ones(256, 256)
    with check.mark("forward"):
        for _ in range(20):
            matrix = matrix @ matrix
    inside_ns = check.end()
    assert inside_ns > 0

    check = ProfilerCheck(on_device=False)
    check.begin()
    torch.ones(256, 256) @ torch.ones(256, 256)
    assert check.end() == 0


@pytest.mark.parametrize("on_device", [False, True])
def test_nothing_is_busy_where_nothing_was_seen(on_device: bool) -> None:
    assert profiled_busy_ns([], on_device=on_device) == 0
