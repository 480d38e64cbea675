import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.workloads.bubbletea.toy_datacenter import A100, LLAMA
from wanbed.workloads.bubbletea.group_timeline import ChunkTimes, GpuTimeline, GroupTimeline, PlannedPrefill
from wanbed.workloads.bubbletea.messages import ENDLESS_NS, BubbleReport
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.bubbletea.request import Reason
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS

TIMES = ChunkTimes(LLAMA, A100, PrefillSettings(slo_ns=1))


@given(st.integers(1, 20_000), st.one_of(st.just(ENDLESS_NS), st.integers(1_000_000, 3_000_000)))
def test_chunks_make_up_the_prompt_and_none_has_a_longer_layer_than_the_longest_bubble(
    prompt_tokens: int, longest_ns: int
) -> None:
    prior_tokens = 0
    while prior_tokens < prompt_tokens:
        chunk = TIMES.next_chunk(prompt_tokens, prior_tokens, longest_ns)
        if chunk is None:
            assert A100.largest_chunk(1, prior_tokens, longest_ns) == 0
            return
        assert chunk.prior_tokens == prior_tokens
        assert chunk.layer_ns == A100.chunk_ns(1, chunk.tokens, prior_tokens) <= longest_ns
        largest = chunk.tokens == min(512, prompt_tokens - prior_tokens)
        assert largest or A100.chunk_ns(1, chunk.tokens + 1, prior_tokens) > longest_ns
        prior_tokens += chunk.tokens
    assert prior_tokens == prompt_tokens


def test_a_layer_on_a_whole_prompt_is_the_sum_of_its_chunks() -> None:
    layer_ns = [A100.chunk_ns(1, 512, 0), A100.chunk_ns(1, 512, 512), A100.chunk_ns(1, 76, 1024)]
    assert TIMES.layer_ns(1100) == sum(layer_ns)


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


S = 1_000_000_000

ONE_A_TOKEN = PrefillProfile(fixed_ns=0, per_token_ns=1, per_token_pair_ns=0, source="paper", measured=False)

SETTINGS = PrefillSettings(slo_ns=1, chunk_tokens=10, transfer_latency_ns=5, transfer_rate_bps=10**15)

TRANSFER_NS = 6
"""5 ns of latency, and less than 1 ns for a chunk's bytes, rounded up."""


def group(
    depth: int, bubbles: tuple[tuple[int, int], ...] = ((0, 100),), *, period_ns: int = 100, dispatch_ns: int = 0
) -> GroupTimeline:
    """Return a group with two layers at each stage."""
    times = ChunkTimes(INFERENCE_MODELS["llama-tiny"], ONE_A_TOKEN, SETTINGS)
    made = GroupTimeline((2,) * depth, times, dispatch_ns)
    for stage in range(depth):
        made.report(stage, BubbleReport(stage, 0, period_ns, 0, bubbles))
    return made


def planned(group: GroupTimeline, now_ns: int, tokens: int, until_ns: int = ENDLESS_NS) -> PlannedPrefill:
    plan = group.plan(now_ns, tokens, until_ns)
    assert isinstance(plan, PlannedPrefill)
    return plan


def test_a_stage_starts_when_the_one_before_has_sent_and_it_is_free_itself() -> None:
    plan = planned(group(2), 0, 20)
    assert plan.start_ns == 0
    assert plan.ends_ns == ((20, 20 + TRANSFER_NS + 20), (40, 40 + TRANSFER_NS + 20))


def test_stages_wait_for_their_own_bubbles() -> None:
    times = ChunkTimes(INFERENCE_MODELS["llama-tiny"], ONE_A_TOKEN, SETTINGS)
    made = GroupTimeline((2, 2), times, 0)
    made.report(0, BubbleReport(0, 0, 100, 0, ((10, 35),)))
    made.report(1, BubbleReport(1, 0, 100, 0, ((30, 46), (50, 75))))
    assert planned(made, 0, 10).ends_ns == ((30, 60),), "one layer at 36 and one in the bubble after"


def test_what_is_taken_in_goes_behind_what_was_before() -> None:
    made = group(1)
    made.commit(0, 0, planned(made, 0, 10))
    assert (made.horizon_ns, made.outstanding_chunks) == (20, 1)
    assert planned(made, 0, 10).start_ns == 20
    assert planned(made, 50, 10).start_ns == 50


def test_a_plan_alone_changes_nothing() -> None:
    made = group(2)
    assert planned(made, 0, 30) == planned(made, 0, 30)


def test_commands_take_their_time_to_the_gpu() -> None:
    assert planned(group(1, dispatch_ns=7), 0, 10).start_ns == 7


def test_chunks_are_as_large_as_one_layer_in_the_longest_bubble_of_every_stage_allows() -> None:
    made = group(2, ((0, 9),), period_ns=20)
    made.report(1, BubbleReport(1, 0, 20, 0, ((0, 4), (5, 9))))
    assert [chunk.tokens for chunk in planned(made, 0, 10).chunks] == [4, 4, 2]


def test_the_reason_is_reported_where_there_is_no_plan() -> None:
    made = group(1)
    assert made.plan(0, 10, 19) is Reason.SLO
    made.report(0, BubbleReport(0, 0, 100, 0, ()))
    assert made.plan(0, 10, ENDLESS_NS) is Reason.FORECAST
    assert made.horizon_ns == ENDLESS_NS


def test_a_prompt_of_which_not_one_token_fits_never_fits() -> None:
    slow = PrefillProfile(fixed_ns=50, per_token_ns=1, per_token_pair_ns=0, source="paper", measured=False)
    made = GroupTimeline((2,), ChunkTimes(INFERENCE_MODELS["llama-tiny"], slow, SETTINGS), 0)
    made.report(0, BubbleReport(0, 0, 100, 0, ((0, 50),)))
    assert made.plan(0, 1, ENDLESS_NS) is Reason.NEVER_FITS


def test_after_a_report_the_plan_is_made_anew_of_what_is_not_done() -> None:
    made = group(2)
    made.commit(0, 0, planned(made, 0, 20))
    made.piece_done(0, 0, 0, 20)
    made.report(0, BubbleReport(0, 0, 200, 0, ((100, 200),)))
    made.report(1, BubbleReport(1, 0, 200, 0, ((0, 200),)))
    # Chunk 0 is at stage 1 from 26 to 46; chunk 1 is at stage 0 from 100 to 120, then at stage 1; then this one.
    assert planned(made, 30, 10).ends_ns == ((140, 140 + TRANSFER_NS + 20),)
    assert made.horizon_ns == 120 + TRANSFER_NS + 20


def test_pieces_that_end_late_correct_the_plan_once_in_a_while() -> None:
    made = group(1)
    assert planned(made, 0, 10).start_ns == 0
    made.commit(0, 0, planned(made, 0, 20))
    made.piece_done(0, 0, 0, 35)
    assert planned(made, 36, 10).start_ns == 40, "too soon to correct it"
    assert planned(made, S - 50, 10).start_ns == S - 50, "too soon still"
    assert planned(made, S, 10).start_ns == S + 20, "the second chunk is still to be done"


def test_pieces_may_be_reported_in_any_order() -> None:
    made = group(2)
    made.commit(0, 0, planned(made, 0, 20))
    made.piece_done(0, 1, 1, 60)
    assert made.outstanding_chunks == 2
    made.piece_done(0, 1, 0, 40)
    made.piece_done(0, 0, 1, 46)
    made.piece_done(0, 0, 0, 20)
    assert made.outstanding_chunks == 0


def test_work_whose_layers_do_not_fit_any_more_takes_its_share_of_the_bubbles() -> None:
    made = group(1)
    made.commit(0, 0, planned(made, 0, 10))
    made.report(0, BubbleReport(0, 0, 100, 0, ((0, 5), (50, 55))))
    assert planned(made, 0, 1).start_ns == 200, "20 of work in 10 of every 100"
