"""Properties of the controller and the fillers together, for random arrivals and bubbles."""

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.workloads.bubbletea.toy_datacenter import A100, LARGE, LLAMA, MS, Pattern, ToyDatacenter, typical
from wanbed.workloads.bubbletea.controller import Admission, Admitted, HoldQueue, PrefillController
from wanbed.workloads.bubbletea.group_timeline import ChunkTimes
from wanbed.workloads.bubbletea.messages import ENDLESS_NS, BubbleReport, PieceDone
from wanbed.workloads.bubbletea.prefill_group import GroupGpus, PrefillGroup, SharedGpuMemory, working_bytes
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings
from wanbed.workloads.bubbletea.request import Outcome, Reason, Request, RequestRecord


def record(number: int) -> RequestRecord:
    return RequestRecord(number, "dc", 1, 0)


def test_who_came_first_is_first_and_no_more_wait_than_may() -> None:
    queue = HoldQueue(2)
    first, second = record(5), record(3)
    queue.add(first, 10)
    assert not queue.full
    queue.add(second, 10)
    assert queue.full
    assert queue.first is first
    queue.remove(first)
    assert queue.first is second
    queue.remove(second)
    assert queue.first is None


def test_each_waits_until_it_would_be_late_and_is_given_out_once() -> None:
    queue = HoldQueue(9)
    records = [record(number) for number in range(3)]
    for waiting, last_start_ns in zip(records, (30, 10, 20), strict=True):
        queue.add(waiting, last_start_ns)
    queue.remove(records[2])
    assert queue.expired(10) == []
    assert queue.expired(11) == [records[1]]
    assert queue.expired(99) == [records[0]]
    assert (queue.expired(99), len(queue)) == ([], 0)


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


watching_briefly = partial(PrefillSettings, warmup_iterations=3)

SETTINGS = watching_briefly(slo_ns=10 * S)

ENDS = ("admitted", "off_loaded", "held", *(f"rejected_{reason}" for reason in Reason if reason is not Reason.FORECAST))


def steady(rate_per_s: float, seconds: int, tokens: tuple[int, int], seed: int = 1) -> list[Request]:
    chance = Random(seed)
    arrivals = sorted(chance.randrange(seconds * S) for _ in range(round(rate_per_s * seconds)))
    return [Request(number, arrival, chance.randint(*tokens), 100) for number, arrival in enumerate(arrivals)]


def assert_each_request_has_one_outcome(toy: ToyDatacenter, requests: Sequence[Request]) -> None:
    counts = toy.controller.counts()
    assert sum(counts[name] for name in ENDS) == len(requests)
    assert counts["unfinished"] == 0


patterns = st.builds(
    Pattern,
    st.lists(st.tuples(st.integers(0, 60 * MS), st.integers(0, 60 * MS)), min_size=2, max_size=8)
    .filter(lambda actions: sum(idle + busy for idle, busy in actions) > 20 * MS)
    .map(tuple),
    st.sampled_from([0, 0, MS, 5 * MS]),
)

groups = st.sampled_from([1, 2, 4]).flatmap(
    lambda depth: st.lists(st.lists(patterns, min_size=depth, max_size=depth), min_size=1, max_size=2)
)

prompts = st.lists(st.tuples(st.integers(0, 300 * MS), st.integers(1, 5000)), min_size=1, max_size=25)


def requests_of(prompts: Sequence[tuple[int, int]]) -> list[Request]:
    now_ns, requests = 0, []
    for number, (gap_ns, tokens) in enumerate(prompts):
        now_ns += gap_ns
        requests.append(Request(number, now_ns, tokens, 1))
    return requests


@given(groups, prompts, st.integers(0, 400), st.sampled_from([FillPolicy.PLANNED, FillPolicy.GREEDY]), st.booleans())
@examples(25, drawn_anew=60)
def test_memory_is_never_exceeded_and_every_request_has_one_outcome(groups, prompts, room_mb, policy, pool) -> None:
    weights = max(
        LLAMA.weight_bytes(layers, embedding=True, head=True)
        for group in groups
        for layers in LLAMA.stage_layers(len(group))
    )
    requests = requests_of(prompts)
    toy = ToyDatacenter(
        watching_briefly(slo_ns=2 * S, policy=policy, hold_limit=5),
        [*groups, [None]] if pool else groups,
        memory=SharedGpuMemory(weights + (400 + room_mb) * 10**6 + (16 * 10**9 if pool else 0), 10**8),
        iterations=30,
    )
    toy.run(requests)
    assert_each_request_has_one_outcome(toy, requests)
    for group in toy.controller.groups:
        for gpu, ledger in zip(group.gpus, group.ledgers, strict=True):
            assert toy.gpus[gpu].peak_bytes <= ledger.peak_bytes <= toy.gpus[gpu].memory.total_bytes
            assert ledger.room_bytes == ledger.largest_bytes, "something was not given back"


@given(groups, prompts)
@examples(25, drawn_anew=60)
def test_without_jitter_training_is_as_if_alone_and_every_promise_is_kept(groups, prompts) -> None:
    still = [[Pattern(pattern.actions) for pattern in group] for group in groups]
    toy = ToyDatacenter(watching_briefly(slo_ns=5 * S), still, iterations=40, kv_ns=0)
    toy.run(requests_of(prompts))
    assert toy.overruns == toy.delayed_ns == 0
    counts = toy.controller.counts()
    assert counts["late"] == counts["broken_promises"] == 0


@given(groups, st.integers(0, 1000))
@examples(15, drawn_anew=40)
def test_training_waits_only_for_actions_that_came_earlier_than_the_margin(groups, seed) -> None:
    jittery = [[Pattern(pattern.actions, 4 * MS) for pattern in group] for group in groups]
    toy = ToyDatacenter(watching_briefly(slo_ns=60 * S), jittery, iterations=60, seed=seed)
    toy.run(steady(40, 3, (200, 2000), seed))
    for gpu in toy.gpus.values():
        too_early = sum(early > margin for early, margin in zip(gpu.earliness, gpu.margins, strict=True))
        assert gpu.filler.deadline_overruns <= too_early


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_planned_prefill_never_delays_training_where_greedy_prefill_does(depth: int) -> None:
    # An action comes at most 2 ms late, so none is earlier than predicted by more than that.
    requests = steady(5, 30, (200, 2000))
    overruns = {}
    for policy in (FillPolicy.PLANNED, FillPolicy.GREEDY):
        own = watching_briefly(slo_ns=10 * S, policy=policy, guard_ns=2 * MS, warmup_iterations=SETTINGS.window)
        toy = ToyDatacenter(own, [[typical(stage, 2 * MS) for stage in range(depth)]], iterations=16)
        toy.run(requests)
        overruns[policy] = toy.overruns
        print(
            f"\ndepth {depth} {policy}: {toy.overruns} overruns, training waited {toy.delayed_ns / 1e6:.1f} ms in all"
        )
        assert toy.controller.counts()["admitted"] > 0
    assert overruns[FillPolicy.PLANNED] == 0
    assert overruns[FillPolicy.GREEDY] > 0


@pytest.mark.parametrize("depth", [1, 2, 4, pytest.param(8, marks=pytest.mark.soak)])
def test_at_saturation_predicted_bubbles_are_full(depth: int) -> None:
    pattern = typical(7)
    toy = ToyDatacenter(watching_briefly(slo_ns=30 * S), [[pattern] * depth], iterations=14)
    requests = [Request(number, number * 10 * MS, 2048, 1) for number in range(2500)]
    toy.run(requests)
    from_ns, until_ns = 5 * pattern.period_ns, 12 * pattern.period_ns
    bubbles_ns = 7 * (pattern.idle_ns - len(pattern.actions) * toy.settings.switch_ns)
    shares = [toy.filled_ns(gpu, from_ns, until_ns) / bubbles_ns for gpu in toy.gpus]
    print(f"\ndepth {depth}: " + ", ".join(f"{share:.1%}" for share in shares))
    assert toy.overruns == 0
    assert min(shares) >= 0.95


@pytest.mark.parametrize("depth", [1, 2, 4, pytest.param(8, marks=pytest.mark.soak)])
def test_a_prompt_longer_than_any_bubble_is_chunked_and_on_time(depth: int) -> None:
    small = [Pattern(((6 * MS, 30 * MS), (9 * MS, 20 * MS), (3 * MS, 40 * MS))) for _ in range(depth)]
    toy = ToyDatacenter(watching_briefly(slo_ns=120 * S, chunk_tokens=8192), [small], iterations=1200, kv_ns=0)
    requests = [Request(0, S, 20_000, 1), Request(1, S, 900, 1)]
    toy.run(requests)
    assert toy.overruns == 0
    assert toy.controller.records[0].chunks > 20_000 // 8192 + 1
    for record in toy.controller.records.values():
        assert record.outcome is Outcome.ADMITTED
        assert record.kv_moved_ns is not None
        assert record.promised_ns is not None
        assert record.kv_moved_ns <= record.promised_ns


def test_a_prompt_that_cannot_be_in_time_is_rejected_as_that_at_once() -> None:
    toy = ToyDatacenter(SETTINGS, [[typical(0)]], iterations=8)
    toy.run([Request(0, 8 * S, 90_000, 1)])
    record = toy.controller.records[0]
    assert (record.outcome, record.reason, record.was_held) == (Outcome.REJECTED, Reason.SLO, False)


@pytest.mark.parametrize(("groups", "depth"), [(4, 1), (2, 2), pytest.param(400, 2, marks=pytest.mark.soak)])
def test_a_burst_is_sorted_out_with_a_bounded_queue(groups: int, depth: int) -> None:
    chance = Random(3)
    arrivals = sorted(3 * S + chance.randrange(S) for _ in range(10_000))
    requests = [Request(number, arrival, chance.randint(100, 4000), 1) for number, arrival in enumerate(arrivals)]
    own = watching_briefly(slo_ns=10 * S, hold_limit=100)
    parts = [
        GroupGpus(tuple(range(first, first + depth)), (SharedGpuMemory(80 * 10**9, 20 * 10**9),) * depth)
        for first in range(0, groups * depth, depth)
    ]
    controller = PrefillController("dc", parts, LLAMA, A100, own)
    for gpu in range(groups * depth):
        bubbles, at_ns = [], 0
        for idle_ns, busy_ns in typical(gpu).actions:
            bubbles.append((at_ns, at_ns + idle_ns))
            at_ns += idle_ns + busy_ns
        controller.bubbles_reported(0, BubbleReport(gpu, 0, 2700 * MS, 0, tuple(bubbles)))
    commands = 0
    for request in requests:
        commands += len(controller.arrived(request.arrival_ns, request))
        assert controller.held <= own.hold_limit
    controller.expire(20 * S)
    counts = controller.counts()
    print(f"\n{groups} groups of {depth}: {commands} commands, {counts}")
    assert sum(counts[name] for name in ENDS) == 10_000
    assert counts["held"] == 0
    assert counts["admitted"] > 0


def test_a_burst_played_to_its_end_leaves_no_request_without_an_outcome() -> None:
    chance = Random(4)
    arrivals = sorted(6 * S + chance.randrange(S) for _ in range(10_000))
    requests = [Request(number, arrival, chance.randint(100, 3000), 1) for number, arrival in enumerate(arrivals)]
    toy = ToyDatacenter(watching_briefly(slo_ns=5 * S, hold_limit=100), [[typical(0)], [typical(1)]], iterations=10)
    toy.run(requests)
    assert_each_request_has_one_outcome(toy, requests)
    assert toy.overruns == 0
    assert toy.most_held == 100


def test_a_dedicated_pool_takes_what_the_bubbles_do_not_and_everything_under_the_policy_none() -> None:
    requests = steady(12, 12, (1000, 3000))
    toy = ToyDatacenter(watching_briefly(slo_ns=2 * S), [[typical(0)], [None], [None]], iterations=10)
    toy.run(requests)
    counts = toy.controller.counts()
    assert counts["admitted"] > 0 < counts["off_loaded"]
    alone = ToyDatacenter(
        watching_briefly(slo_ns=2 * S, policy=FillPolicy.NONE), [[typical(0)], [None], [None]], iterations=10
    )
    alone.run(requests)
    assert alone.controller.counts()["off_loaded"] > counts["off_loaded"]
    assert alone.controller.counts()["admitted"] == 0
    assert not alone.gpus[0].filled


def test_a_request_held_for_memory_is_taken_in_when_memory_is_free() -> None:
    weights = LLAMA.weight_bytes(32, embedding=True, head=True)
    memory = SharedGpuMemory(weights + 400 * 10**6, 0)
    toy = ToyDatacenter(SETTINGS, [[typical(0)]], iterations=10, memory=memory)
    toy.run([Request(0, 3 * S, 2000, 1), Request(1, 3 * S, 2000, 1), Request(2, 3 * S, 9000, 1)])
    first, second, third = (toy.controller.records[number] for number in range(3))
    assert (second.outcome, second.was_held) == (Outcome.ADMITTED, True)
    assert second.admitted_ns == first.kv_moved_ns
    assert (third.outcome, third.reason) == (Outcome.REJECTED, Reason.NEVER_FITS)


def test_a_request_before_the_first_forecast_waits_for_it() -> None:
    toy = ToyDatacenter(SETTINGS, [[typical(0)]], iterations=10)
    toy.run([Request(0, 0, 500, 1)])
    record = toy.controller.records[0]
    assert (record.outcome, record.was_held) == (Outcome.ADMITTED, True)
    assert record.admitted_ns is not None
    assert record.admitted_ns >= 2700 * MS


def test_one_that_waits_for_a_forecast_in_vain_is_late_in_the_end() -> None:
    toy = ToyDatacenter(watching_briefly(slo_ns=S), [[typical(0)]], iterations=6)
    toy.run([Request(0, 0, 500, 1), Request(1, 15 * S, 500, 1)])
    record = toy.controller.records[0]
    assert (record.outcome, record.reason, record.was_held) == (Outcome.REJECTED, Reason.SLO, True)
    assert toy.controller.records[1].outcome is Outcome.ADMITTED


def test_the_plan_follows_bubbles_that_shrink() -> None:
    """Greedy filling plans as if GPUs were always idle. Measured ends of pieces keep its backlog bounded."""
    own = watching_briefly(slo_ns=3 * S, policy=FillPolicy.GREEDY)
    toy = ToyDatacenter(own, [[typical(0)]], iterations=20)
    requests = steady(20, 40, (1000, 2000))
    toy.run(requests)
    waits = [record.queue_ns for record in toy.controller.records.values() if record.queue_ns is not None]
    counts = toy.controller.counts()
    assert counts["late"] > 0
    assert max(waits) < 4 * own.slo_ns


def one_group(depth: int, own: PrefillSettings = SETTINGS, room_mb: int = 5000) -> PrefillController:
    """GPUs that are idle for 90 ms of every 100 ms, with some free memory beside the weights."""
    weights = LLAMA.weight_bytes(LLAMA.stage_layers(depth)[0], embedding=True, head=depth == 1)
    memory = SharedGpuMemory(weights + room_mb * 10**6, 0)
    parts = [GroupGpus(tuple(range(depth)), (memory,) * depth)]
    controller = PrefillController("dc", parts, LLAMA, A100, own)
    for gpu in range(depth):
        controller.bubbles_reported(0, BubbleReport(gpu, 0, 100 * MS, 0, ((10 * MS, 100 * MS),)))
    return controller


def test_activation_memory_is_freed_once_it_is_not_needed() -> None:
    controller = one_group(2)
    sender, receiver = controller.groups[0].ledgers
    controller.arrived(0, Request(0, 0, 700, 1))
    taken = sender.used_bytes, receiver.used_bytes
    first = LLAMA.activation_bytes(512)
    controller.piece_done(30 * MS, PieceDone(0, 0, 0, 10 * MS, 30 * MS))
    assert (sender.used_bytes, receiver.used_bytes) == taken
    controller.activation_arrived(31 * MS, 0, 1, 0)
    assert (sender.used_bytes, receiver.used_bytes) == (taken[0] - first, taken[1])
    controller.piece_done(60 * MS, PieceDone(0, 1, 0, 31 * MS, 60 * MS))
    assert (sender.used_bytes, receiver.used_bytes) == (taken[0] - first, taken[1] - first)


def test_who_has_waited_too_long_makes_room_for_who_comes() -> None:
    controller = one_group(1, watching_briefly(slo_ns=S, hold_limit=1), room_mb=300 + 50)
    for number, now_ns in enumerate((0, 1, 2, 2 * S)):
        controller.arrived(now_ns, Request(number, now_ns, 2000, 1))
    reasons = [record.reason for record in controller.records.values()]
    assert reasons == [None, Reason.MEMORY, Reason.HOLD_FULL, Reason.MEMORY]
    outcomes = [record.outcome for record in controller.records.values()]
    assert outcomes == [Outcome.ADMITTED, Outcome.REJECTED, Outcome.REJECTED, Outcome.HELD]


def test_messages_of_different_hosts_may_overtake_each_other() -> None:
    controller = one_group(2)
    room = [ledger.room_bytes for ledger in controller.groups[0].ledgers]
    controller.arrived(0, Request(0, 0, 400, 1))
    controller.kv_moved(90 * MS, 0)
    controller.piece_done(91 * MS, PieceDone(0, 1, 0, 31 * MS, 60 * MS))
    controller.activation_arrived(92 * MS, 0, 1, 0)
    controller.piece_done(93 * MS, PieceDone(0, 0, 0, 10 * MS, 30 * MS))
    assert [ledger.room_bytes for ledger in controller.groups[0].ledgers] == room
    record = controller.records[0]
    assert (record.queue_ns, record.ttft_without_kv_ns, record.ttft_ns) == (10 * MS, 60 * MS, 90 * MS)


def test_unknown_and_repeated_events_are_refused() -> None:
    controller = one_group(1)
    controller.arrived(0, Request(0, 0, 400, 1))
    with pytest.raises(ValueError, match="request 0 has arrived before"):
        controller.arrived(1, Request(0, 0, 400, 1))
    with pytest.raises(ValueError, match="request 7 has no pieces"):
        controller.piece_done(1, PieceDone(7, 0, 0, 0, 1))
    controller.kv_moved(2, 0)
    with pytest.raises(ValueError, match="request 0 has no KV cache here"):
        controller.kv_moved(3, 0)


def test_groups_that_share_a_gpu_and_weights_that_do_not_fit_are_refused_by_name() -> None:
    memory = SharedGpuMemory(80 * 10**9, 0)
    with pytest.raises(ValueError, match=r"^groups: a GPU is in two"):
        PrefillController("dc", [GroupGpus((0,), (memory,)), GroupGpus((0,), (memory,))], LLAMA, A100, SETTINGS)
    with pytest.raises(ValueError, match=r"^gpu 3: memory: .* take a deeper pipeline"):
        PrefillController("dc", [GroupGpus((3,), (SharedGpuMemory(10**10, 0),))], LLAMA, A100, SETTINGS)


def test_a_request_is_forgotten_once_its_pieces_are_done_and_its_cache_has_moved_in_either_order() -> None:
    for moved_first in (True, False):
        controller = one_group(1)
        assert len(controller.arrived(0, Request(0, 0, 400, 1))) == 1
        if moved_first:
            controller.kv_moved(50 * MS, 0)
        controller.piece_done(60 * MS, PieceDone(0, 0, 0, 10 * MS, 40 * MS))
        if not moved_first:
            controller.kv_moved(70 * MS, 0)
        with pytest.raises(ValueError, match="request 0 has no pieces that are not done"):
            controller.piece_done(80 * MS, PieceDone(0, 0, 0, 10 * MS, 40 * MS))
        assert controller.records[0].prefilled_ns == 40 * MS


def test_a_prefill_begins_with_its_first_chunk_at_the_first_stage_and_ends_with_its_last_at_the_last() -> None:
    controller = one_group(2)
    assert len(controller.arrived(5, Request(0, 5, 700, 1))) == 4, "two chunks at each of two stages"
    record = controller.records[0]
    assert (record.chunks, record.group, record.admitted_ns) == (2, 0, 5)
    seen = []
    for number, (stage, chunk) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1)), 1):
        controller.piece_done(number * MS, PieceDone(0, stage, chunk, number * MS - 10, number * MS - 1))
        seen.append((record.started_ns, record.prefilled_ns))
    begun = MS - 10
    assert seen == [(begun, None), (begun, None), (begun, None), (begun, 4 * MS - 1)]


def test_one_that_is_held_is_rejected_the_moment_after_it_could_have_been_in_time_and_not_before() -> None:
    # 400 tokens take 32 layers of 60 us + 400 x 2.5 us + 0.45 ns x 80,000; 131,072 B a token move at 100 Gbit/s.
    needed_ns = 32 * (60_000 + 1_000_000 + 36_000) + SETTINGS.transfer_ns(400 * 131_072)
    parts = [GroupGpus((0,), (SharedGpuMemory(80 * 10**9, 0),))]
    for late_ns, outcome in ((0, Outcome.HELD), (1, Outcome.REJECTED)):
        controller = PrefillController("dc", parts, LLAMA, A100, SETTINGS)
        controller.arrived(7, Request(0, 7, 400, 1))
        assert controller.held == 1
        controller.expire(7 + SETTINGS.slo_ns - needed_ns + late_ns)
        assert controller.records[0].outcome is outcome
        assert controller.held == 1 - late_ns


def test_a_report_lets_in_who_waits_in_order_of_arrival_until_one_does_not_fit() -> None:
    weights = LLAMA.weight_bytes(32, embedding=True, head=True)
    parts = [GroupGpus((0,), (SharedGpuMemory(weights + 800 * 10**6, 0),))]
    controller = PrefillController("dc", parts, LLAMA, A100, SETTINGS)
    for number, tokens in enumerate((2000, 5000, 100)):
        assert controller.arrived(number, Request(number, number, tokens, 1)) == []
    commands = controller.bubbles_reported(10, BubbleReport(0, 0, 100 * MS, 0, ((10 * MS, 100 * MS),)))
    assert {command.piece.request for command in commands} == {0}
    outcomes = [(record.outcome, record.reason) for record in controller.records.values()]
    assert outcomes == [(Outcome.ADMITTED, None), (Outcome.HELD, Reason.MEMORY), (Outcome.HELD, Reason.FORECAST)]


def test_greedy_counts_gpus_as_always_idle_and_takes_no_report() -> None:
    own = watching_briefly(slo_ns=S, policy=FillPolicy.GREEDY)
    parts = [GroupGpus((0,), (SharedGpuMemory(80 * 10**9, 0),))]
    controller = PrefillController("dc", parts, LLAMA, A100, own)
    assert controller.bubbles_reported(0, BubbleReport(0, 0, 100 * MS, 0, ())) == []
    assert len(controller.arrived(0, Request(0, 0, 400, 1))) == 1
    assert controller.records[0].outcome is Outcome.ADMITTED


def test_a_datacenter_without_groups_rejects_at_once() -> None:
    controller = PrefillController("dc", [], LLAMA, A100, SETTINGS)
    controller.arrived(0, Request(0, 0, 400, 1))
    record = controller.records[0]
    assert (record.outcome, record.reason, record.was_held) == (Outcome.REJECTED, Reason.NEVER_FITS, False)
