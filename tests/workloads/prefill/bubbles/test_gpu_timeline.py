import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wanbed.workloads.prefill.bubbles.gpu_timeline import GpuTimeline
from wanbed.workloads.prefill.messages import ENDLESS_NS, BubbleReport

NEVER = ENDLESS_NS


def timeline(*bubbles: tuple[int, int], period_ns: int = 100, anchor_ns: int = 1000) -> GpuTimeline:
    gpu = GpuTimeline()
    gpu.update(BubbleReport(0, anchor_ns, period_ns, 0, bubbles))
    return gpu


@pytest.mark.parametrize(
    ("from_ns", "layers", "layer_ns", "placed"),
    [
        (1000, 2, 10, (1010, 1030)),
        (1015, 2, 10, (1015, 1035)),
        (1025, 2, 10, (1025, 1070)),
        (1035, 1, 10, (1060, 1070)),
        (1000, 5, 10, (1010, 1080)),
        (1000, 6, 10, (1010, 1120)),
        (1085, 1, 10, (1110, 1120)),
        (1000, 11, 10, (1010, 1220)),
        (1000, 1, 30, (1010, 1040)),
        (900, 1, 10, (910, 920)),
    ],
)
def test_layers_go_into_bubbles_one_after_the_other(
    from_ns: int, layers: int, layer_ns: int, placed: tuple[int, int]
) -> None:
    assert timeline((10, 40), (60, 80)).place(from_ns, layers, layer_ns, NEVER) == placed


def test_what_is_too_late_or_never_fits_is_not_placed() -> None:
    gpu = timeline((10, 40), (60, 80))
    assert gpu.place(1000, 2, 10, 1030) == (1010, 1030)
    assert gpu.place(1000, 2, 10, 1029) is None
    assert gpu.place(1000, 1, 31, NEVER) is None
    assert GpuTimeline().place(0, 1, 1, NEVER) is None


def test_a_gpu_that_does_not_train_has_one_bubble_without_end() -> None:
    gpu = timeline(period_ns=0)
    assert gpu.place(7, 3, 10, NEVER) == (7, 37)
    assert gpu.place(7, 3, 10, 36) is None
    assert gpu.stretched_ns(7, 30) == 37


def test_work_that_uses_all_bubbles_takes_their_share_of_time() -> None:
    assert timeline((10, 40), (60, 80)).stretched_ns(1000, 100) == 1200
    assert timeline().stretched_ns(1000, 1) == GpuTimeline().stretched_ns(1000, 1) == ENDLESS_NS


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6),
    st.integers(0, 500),
    st.integers(1, 30),
    st.integers(1, 40),
    st.integers(0, 300),
)
def test_every_layer_is_in_a_bubble_and_no_earlier_start_ends_later(
    gaps: list[tuple[int, int]], from_ns: int, layers: int, layer_ns: int, later_ns: int
) -> None:
    bubbles, at_ns = [], 0
    for busy_ns, idle_ns in gaps:
        bubbles.append((at_ns + busy_ns, at_ns + busy_ns + idle_ns))
        at_ns += busy_ns + idle_ns
    assume(any(end - start >= layer_ns for start, end in bubbles))
    placed = timeline(*bubbles, period_ns=at_ns, anchor_ns=0).place(from_ns, layers, layer_ns, NEVER)
    left, base_ns, end_ns = layers, 0, 0
    while left:
        for start_ns, until_ns in bubbles:
            now_ns = max(from_ns, base_ns + start_ns)
            while left and now_ns + layer_ns <= base_ns + until_ns:
                now_ns += layer_ns
                left -= 1
                end_ns = now_ns
        base_ns += at_ns
    assert placed is not None
    assert placed[1] == end_ns
    later = timeline(*bubbles, period_ns=at_ns, anchor_ns=0).place(from_ns + later_ns, layers, layer_ns, NEVER)
    assert later is not None
    assert later[1] >= end_ns
