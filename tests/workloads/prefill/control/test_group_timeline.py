from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.prefill.control.group_timeline import GroupTimeline, PlannedPrefill
from wanbed.workloads.prefill.control.outcome import Reason
from wanbed.workloads.prefill.control.prompt_chunks import ChunkTimes
from wanbed.workloads.prefill.messages import ENDLESS_NS, BubbleReport
from wanbed.workloads.prefill.prefill_profile import PrefillProfile
from wanbed.workloads.prefill.prefill_settings import PrefillSettings

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
