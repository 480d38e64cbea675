import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.prefill.toy_datacenter import A100, LARGE, LLAMA, MS
from wanbed.workloads.prefill.control.admission import Admission, Admitted
from wanbed.workloads.prefill.control.memory_ledger import SharedGpuMemory
from wanbed.workloads.prefill.control.outcome import Reason
from wanbed.workloads.prefill.control.prefill_group import GroupGpus, PrefillGroup, working_bytes
from wanbed.workloads.prefill.control.prompt_chunks import ChunkTimes
from wanbed.workloads.prefill.messages import ENDLESS_NS, BubbleReport
from wanbed.workloads.prefill.prefill_settings import PrefillSettings

S = 1_000_000_000


def groups_of(own: PrefillSettings, memories: list[SharedGpuMemory], period_ns: int = 100 * MS) -> list[PrefillGroup]:
    """Return groups of one GPU each, idle in the second half of its period, the second GPU a little later."""
    times = ChunkTimes(LLAMA, A100, own)
    groups = []
    for number, memory in enumerate(memories):
        group = PrefillGroup(number, GroupGpus((number,), (memory,)), LLAMA, times, own)
        group.timeline.report(0, BubbleReport(number, number * MS, period_ns, 0, ((period_ns // 2, period_ns),)))
        groups.append(group)
    return groups


def take_in(admission: Admission, now_ns: int, request: int, tokens: int, due_ns: int = ENDLESS_NS) -> Admitted:
    admitted = admission.choose(now_ns, tokens, due_ns)
    assert isinstance(admitted, Admitted)
    admitted.group.take_in(now_ns, request, tokens, admitted.planned)
    admission.changed(admitted.group)
    return admitted


@given(st.lists(st.tuples(st.integers(0, 40 * MS), st.integers(1, 3000)), max_size=30), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_with_as_many_candidates_as_groups_it_is_the_group_that_ends_first(
    arrivals: list[tuple[int, int]], count: int
) -> None:
    own = PrefillSettings(slo_ns=S, candidates=count)
    groups = groups_of(own, [LARGE] * count)
    admission = Admission(groups, LLAMA, own)
    now_ns = 0
    for request, (gap_ns, tokens) in enumerate(arrivals):
        now_ns += gap_ns
        plans = [group.timeline.plan(now_ns, tokens, ENDLESS_NS) for group in groups]
        best_ns = min(plan.end_ns for plan in plans if not isinstance(plan, Reason))
        assert take_in(admission, now_ns, request, tokens).planned.end_ns == best_ns


def test_the_promise_is_the_end_of_the_prefill_and_the_way_of_the_cache() -> None:
    own = PrefillSettings(slo_ns=S, transfer_latency_ns=3, transfer_rate_bps=8_000_000_000)
    admission = Admission(groups_of(own, [LARGE]), LLAMA, own)
    admitted = take_in(admission, 0, 0, 1000)
    assert admitted.promised_ns == admitted.planned.end_ns + 3 + 131_072 * 1000
    due_ns = admitted.promised_ns
    again = Admission(groups_of(own, [LARGE]), LLAMA, own)
    assert again.choose(0, 1000, due_ns - 1) is Reason.SLO
    assert isinstance(again.choose(0, 1000, due_ns), Admitted)


def test_memory_is_a_reason_to_wait_and_never_fitting_is_not() -> None:
    weights = LLAMA.weight_bytes(32, embedding=True, head=True)
    own = PrefillSettings(slo_ns=S)
    admission = Admission(groups_of(own, [SharedGpuMemory(weights + 500 * 10**6, 0)] * 2), LLAMA, own)
    assert admission.choose(0, 5000, ENDLESS_NS) is Reason.NEVER_FITS
    take_in(admission, 0, 0, 2500)
    take_in(admission, 0, 1, 2500)
    assert admission.choose(0, 2500, ENDLESS_NS) is Reason.MEMORY


def test_groups_that_could_never_hold_a_request_do_not_keep_it_from_one_that_can() -> None:
    weights = LLAMA.weight_bytes(32, embedding=True, head=True)
    own = PrefillSettings(slo_ns=S, candidates=1)
    small = SharedGpuMemory(weights + 300 * 10**6, 0)
    admission = Admission(groups_of(own, [small, small, LARGE]), LLAMA, own)
    assert take_in(admission, 0, 0, 20_000).group.number == 2


def test_without_a_group_nothing_ever_fits() -> None:
    assert Admission([], LLAMA, PrefillSettings(slo_ns=S)).choose(0, 1, ENDLESS_NS) is Reason.NEVER_FITS


@pytest.mark.parametrize(("depth", "stage", "boundaries"), [(1, 0, 0), (2, 0, 1), (4, 1, 2), (4, 3, 1)])
def test_a_request_is_given_room_for_its_cache_and_all_its_activations_on_their_way(
    depth: int, stage: int, boundaries: int
) -> None:
    own = PrefillSettings(slo_ns=S)
    gpus = GroupGpus(tuple(range(depth)), (LARGE,) * depth)
    group = PrefillGroup(0, gpus, LLAMA, ChunkTimes(LLAMA, A100, own), own)
    expected = 131_072 // depth * 700 + boundaries * 700 * 4096 * 2
    assert group.request_bytes(stage, 700) == expected


def test_only_so_many_groups_are_asked_as_there_are_candidates() -> None:
    weights = LLAMA.weight_bytes(32, embedding=True, head=True)
    for candidates, expected in ((1, Reason.MEMORY), (2, Admitted)):
        own = PrefillSettings(slo_ns=S, candidates=candidates)
        tight = SharedGpuMemory(weights + 500 * 10**6, 0)
        groups = groups_of(own, [tight, LARGE])
        groups[0].ledgers[0].reserve(7, 400 * 10**6)
        offer = Admission(groups, LLAMA, own).choose(0, 2000, ENDLESS_NS)
        if expected is Admitted:
            assert isinstance(offer, Admitted)
            assert offer.group is groups[1]
        else:
            assert offer is expected


def test_the_first_of_two_equal_offers_is_taken() -> None:
    own = PrefillSettings(slo_ns=S)
    groups = groups_of(own, [LARGE] * 2)
    groups[1].timeline.report(0, BubbleReport(1, 0, 100 * MS, 0, ((50 * MS, 100 * MS),)))
    admission = Admission(groups, LLAMA, own)
    assert [take_in(admission, 0, request, 1000).group.number for request in range(4)] == [0, 1, 0, 1]


def test_the_reason_that_may_end_soonest_is_said_when_groups_refuse_for_several() -> None:
    weights = LLAMA.weight_bytes(32, embedding=True, head=True)
    own = PrefillSettings(slo_ns=S)
    small, tight = SharedGpuMemory(weights + 300 * 10**6, 0), SharedGpuMemory(weights + 800 * 10**6, 0)

    def reason(memories: list[SharedGpuMemory], due_ns: int = ENDLESS_NS, *, blind: int | None = None) -> object:
        groups = groups_of(own, memories)
        for group, memory in zip(groups, memories, strict=True):
            if memory is tight:
                group.ledgers[0].reserve(7, 600 * 10**6)
        if blind is not None:
            groups[blind].timeline.report(0, BubbleReport(blind, 0, 100 * MS, 0, ()))
        return Admission(groups, LLAMA, own).choose(0, 3000, due_ns)

    assert reason([small, small]) is Reason.NEVER_FITS
    assert reason([small, tight]) is Reason.MEMORY
    assert reason([LARGE, tight, small], 1) is Reason.MEMORY
    assert reason([LARGE, LARGE], 1, blind=0) is Reason.FORECAST
    assert reason([LARGE, small], 1) is Reason.SLO


def test_a_layer_works_on_input_output_and_two_products_of_its_feed_forward() -> None:
    # 4096 wide and 14,336 in the feed-forward, 2 bytes an element.
    assert working_bytes(LLAMA, 100) == 100 * 2 * (2 * 4096 + 2 * 14_336)
