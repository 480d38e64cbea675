"""A channel on a shared line or over a link that changes: when its bytes leave, and when its sender may go on."""

from dataclasses import replace
from typing import Any

import pytest

from tests.runner.simulator.channels.changing_topologies import Changes, with_courses
from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.events import run_all
from wanbed.flow.changing_path import ChangingPath, Retransmission, constant
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.shared_channel import ChangingChannel, SharedChannel
from wanbed.flow.window import TcpWindow
from wanbed.ground.errors import SimulationError
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.case import arrival_ns, chain
from wanbed.testbed.network.links.wan_link import LinkConditions, LinkCourse, course_of
from wanbed.workloads.transport.frame import HEADER_BYTES

MS = 1_000_000
LATENCY_MS = 10

RATE_BPS = 8_000_000
"""A kilobyte a millisecond."""

KB = 1000


class Lines:
    """Two directions of 1 kB a millisecond and 10 ms, each with a channel, and what their transfers have called."""

    def __init__(
        self,
        window_bytes: int | None = None,
        back_window_bytes: int | None = None,
        *,
        sees_opposite: bool = False,
        back_ms: int = LATENCY_MS,
        headers: bool = False,
    ) -> None:
        self.events = EventQueue()
        capacity = SharedCapacity(self.events, {0: RATE_BPS, 1: RATE_BPS}, own=[0, 1])
        there, back = NodePairFlow(0, [0]), NodePairFlow(1, [1])
        if sees_opposite:
            there.opposite, back.opposite = back, there
        self.there, self.back = (
            SharedChannel(
                Line(RATE_BPS, LATENCY_MS * MS, headers=headers, back_ns=back_ms * MS),
                TcpWindow((LATENCY_MS + back_ms) * MS, window, None),
                flow,
                capacity,
            )
            for window, flow in ((window_bytes, there), (back_window_bytes, back))
        )
        self.left: list[tuple[str, float, float]] = []
        self.accepted: list[tuple[str, float]] = []

    def queue(self, name: str, at_ms: float, size_bytes: int, *, back: bool = False) -> None:
        channel = self.back if back else self.there

        def queued(now_ns: int, _: None) -> None:
            channel.queue(
                now_ns,
                size_bytes,
                lambda first_ns, last_ns: self.left.append((name, first_ns / MS, last_ns / MS)),
                accepted=lambda at_ns: self.accepted.append((name, at_ns / MS)),
            )

        self.events.at(round(at_ms * MS), queued, None)

    def run(self) -> list[tuple[str, float, float]]:
        run_all(self.events)
        return self.left


def test_transfers_leave_one_after_the_other_each_once_it_is_there() -> None:
    lines = Lines()
    lines.queue("a", 1, 5 * KB)
    lines.queue("b", 2, 3 * KB)
    lines.queue("c", 20, KB)
    lines.queue("nothing", 30, 0)
    assert lines.run() == [("a", 1, 6), ("b", 6, 9), ("c", 20, 21), ("nothing", 30, 30)]
    # Without windows the network has taken a transfer when it has left.
    assert lines.accepted == [("a", 6), ("b", 9), ("c", 21), ("nothing", 30)]
    assert [each / MS for each in lines.there.history] == [
        *(1, 6, 5 * KB / MS),
        *(6, 9, 3 * KB / MS),
        *(20, 21, KB / MS),
    ]


def test_a_byte_arrives_a_latency_later_and_a_report_takes_the_way_back() -> None:
    lines = Lines(back_ms=7)
    assert lines.there.arrival_ns(5 * MS) == 15 * MS
    assert lines.there.report_ns(5 * MS) == 12 * MS


def test_a_request_overtakes_transfers_and_is_counted_where_it_is_alone() -> None:
    lines, known_ms = Lines(headers=True), []

    def ask(now_ns: int, _: None) -> None:
        lines.there.request(now_ns, HEADER_BYTES, lambda at_ns: known_ms.append(at_ns / MS))

    lines.queue("a", 5, 50 * KB)
    for at_ms in (0, 10):
        lines.events.at(at_ms * MS, ask, None)
    lines.run()
    own_ms = lines.there.line.duration_ns(HEADER_BYTES) / MS
    assert known_ms == [pytest.approx(own_ms + LATENCY_MS), 10 + LATENCY_MS]
    assert sum(lines.there.history[2::3]) == HEADER_BYTES + 50 * KB


def test_without_headers_a_request_takes_the_latency() -> None:
    lines, known_ns = Lines(), []
    lines.there.request(3 * MS, HEADER_BYTES, known_ns.append)
    assert known_ns == [13 * MS]
    assert not lines.there.history


def test_the_rest_of_a_transfer_waits_for_a_round_trip_where_a_window_is_narrow() -> None:
    lines = Lines(10 * KB)
    lines.queue("a", 0, 25 * KB)
    # 10 ms on the line, then until 20 ms nothing, and so on.
    assert lines.run() == [("a", 0, 45)]
    assert [
        (begin / MS, end / MS) for begin, end in zip(lines.there.history[::3], lines.there.history[1::3], strict=True)
    ] == [
        (0, 10),
        (20, 30),
        (40, 45),
    ]
    # The last of it was let out when the second ten were acknowledged.
    assert lines.accepted == [("a", 40)]


def test_a_sender_goes_on_when_windows_have_let_all_of_its_bytes_out() -> None:
    lines = Lines(100 * KB)
    lines.queue("a", 0, 60 * KB)
    lines.queue("b", 0, 60 * KB)
    assert lines.run() == [("a", 0, 60), ("b", 60, 120)]
    # Twenty of the window's hundred are on the line, and eighty may wait in line: of what is left at 60 ms all of it.
    assert dict(lines.accepted)["a"] == 0
    assert 20 <= dict(lines.accepted)["b"] <= 60


def test_of_more_than_a_window_the_last_byte_is_let_out_when_all_but_a_window_is_acknowledged() -> None:
    for window_kb, size_kb in ((100, 200), (100, 101), (60, 500)):
        lines = Lines(window_kb * KB)
        lines.queue("a", 0, size_kb * KB)
        assert lines.run() == [("a", 0, size_kb)]
        # What is not in the last window leaves first, and is acknowledged a round trip later, but for a byte under way.
        assert lines.accepted == [("a", size_kb - window_kb + 2 * LATENCY_MS + 0.001)]


def test_what_windows_have_let_out_is_queued_until_the_line_has_carried_it() -> None:
    lines = Lines(30 * KB, sees_opposite=True)
    lines.queue("a", 0, 50 * KB)
    queued = {}
    for at_ms in (1, 10, 15, 25, 49):
        lines.events.at(
            at_ms * MS,
            lambda now_ns, _: queued.update({now_ns // MS: lines.there.queued_bits_ns(now_ns) / 8 / 10**9 / KB}),
            None,
        )
    lines.run()
    # Thirty are let out at once; from 20 ms on acknowledgements let out as much as the line carries.
    assert queued[1] == 29
    assert queued[10] == 20
    assert queued[15] == 15
    assert queued[25] == 10
    assert queued[49] == 1


def test_acknowledgements_wait_for_what_the_other_direction_has_let_out() -> None:
    for sees_opposite, second_ms in ((False, 20), (True, 20 + 490)):
        lines = Lines(10 * KB, 1000 * KB, sees_opposite=sees_opposite)
        lines.queue("back", 0, 500 * KB, back=True)
        lines.queue("there", 0, 20 * KB)
        lines.run()
        # The first bytes arrive at 10 ms, when 490 of 500 kB are still to be carried back.
        assert ("there", 0, second_ms + 10) in lines.left
        assert ("back", 0, 500) in lines.left


def test_an_acknowledgement_waits_for_nothing_when_the_other_direction_is_through() -> None:
    lines = Lines(10 * KB, 1000 * KB, sees_opposite=True)
    lines.queue("back", 0, 5 * KB, back=True)
    lines.queue("there", 0, 20 * KB)
    lines.run()
    assert ("there", 0, 30) in lines.left


WINDOW_ONLY = TcpEffects(window=True, slow_start=False, headers=False)

OPEN = {"window": "44.8MiB"}
"""44.8 MiB in flight: at 1 Gbit/s far more than the line holds in a round trip of 40 ms."""


def arrives_ms(
    there: Changes, back: Changes | None = None, *, size: str = "12500000B", effects: TcpEffects = IDEAL, **options: Any
) -> float:
    """When a transfer of 12.5 MB arrives after its begin, at 10 ms: 1 Gbit/s, 20 ms from here to there and back."""
    (arrived,) = each_arrives_ms(there, back, size=size, effects=effects, **options)
    return arrived


def each_arrives_ms(
    there: Changes,
    back: Changes | None = None,
    *,
    size: str = "1250000B",
    effects: TcpEffects = IDEAL,
    forward_ms: int = 10,
    microbatches: int = 1,
    **options: Any,
) -> list[float]:
    """When each transfer of 1.25 MB, 10 ms on the line, arrives after the begin of the first one, at ``forward_ms``."""
    point = sweep_point(
        {
            "topology": chain([20 * MS], node_pair_rate="1Gbit"),
            "compute": {"activation": size, "gradient": "1B", "forward": f"{forward_ms}ms"},
            "training": {"iterations": 1, "warmup": 0, "stages": 2, "microbatches": microbatches},
            "engine": "simulate",
            "variants": [{"name": "any", "schedule": "gpipe", "transport": options.pop("transport", {})}],
        }
    )
    topology = with_courses(point.topology, there, back, **options)
    simulation = simulate_variant(topology, point.variants[0], 1, effects=effects)
    return [arrival_ns(simulation, 1, microbatch) / MS for microbatch in range(microbatches)]


TO_A_TENTH = {"node_pair_rate_bps": 10**8}
LET_OUT: dict[str, Any] = {"effects": WINDOW_ONLY, "transport": OPEN}
"""The window of 44.8 MiB lets out all 12.5 MB at once."""


def is_down(begin_ms: int, end_ms: int) -> Changes:
    return [(begin_ms * MS, {"up": False}), (end_ms * MS, {})]


@pytest.mark.parametrize(
    ("there", "options", "after_ms"),
    [
        # Before the rate falls to a tenth or rises from it, 20 ms at the first rate carry 2.5 MB, or 0.25.
        pytest.param([(50 * MS, TO_A_TENTH)], LET_OUT, 20 + 800 + 20, id="a window's bytes, and a rate that falls"),
        pytest.param(
            [(5 * MS, TO_A_TENTH), (50 * MS, {})], LET_OUT, 20 + 98 + 20, id="a window's bytes, and a rate that rises"
        ),
        pytest.param(
            is_down(30, 3000), LET_OUT, 120, id="what had been let out arrives though the link is down by then"
        ),
        # Of 100 MB 47 MB are always let out, 376 ms, so that bytes never wait for a round trip of 100 ms.
        pytest.param(
            [(310 * MS, {"latency_ns": 50 * MS})],
            {"size": "100000000B", **LET_OUT},
            820,
            id="a window beyond what the line holds hides a longer latency",
        ),
        pytest.param([], {"size": "100000000B", **LET_OUT}, 820, id="such a window without a change"),
        # Sent again 105, 350, 835 and 1840 ms after the begin (test_changing_path.py), for which the last is too
        # early. The next: 192 ticks, late by 4.5 of them.
        pytest.param(is_down(5, 1999), LET_OUT, 1840 + 1965 + 120, id="a retransmission long after the outage"),
        pytest.param([], {"back": is_down(30, 500), **LET_OUT}, 120, id="nothing waits for acknowledgements"),
        # 1 Gbit/s, 500 Mbit/s and 1.5 Gbit/s, 0.5 ms each: 1 Gbit/s on average. How much of a window waits is estimated
        # with the present rate: much faster changes than round trips blur it.
        *(
            pytest.param(
                [(MS // 2, {"node_pair_rate_bps": 500_000_000}), (MS, {"node_pair_rate_bps": 1_500_000_000})],
                {"size": "125000000B", "effects": effects, "transport": OPEN, "period_ns": 3 * MS // 2},
                pytest.approx(1020, rel=off),
                id=f"rates that alternate quickly are their mean: {off}",
            )
            for effects, off in ((IDEAL, 0.002), (WINDOW_ONLY, 0.035))
        ),
        # It begins at 10 ms, from which its arrival counts. 20 ms at 1 Gbit/s carry 2.5 of the 12.5 MB, 100 at
        # 400 Mbit/s 5 more, and 5 are left for 100 Mbit/s. A change counts for what left a latency before.
        pytest.param(
            [(50 * MS, {"node_pair_rate_bps": 4 * 10**8}), (150 * MS, TO_A_TENTH)],
            {},
            20 + 100 + 400 + 20,
            id="each rate of the node pair",
        ),
        pytest.param([(1 * MS, TO_A_TENTH), (530 * MS, {})], {}, 500 + 50 + 20, id="a narrow line that widens"),
        # From 30 ms on at the far end of the link: for all that leaves after 10 ms. From 80 ms on: 50 ms at 1 Gbit/s
        # are half of it.
        pytest.param([(30 * MS, {"rate_bps": 10**8})], {}, 1000 + 20, id="a trunk changes for what left before"),
        pytest.param([(80 * MS, {"rate_bps": 10**8})], {}, 50 + 500 + 20, id="a trunk changes half way"),
        pytest.param([(50 * MS, {"latency_ns": 50 * MS})], {}, 100 + 50, id="a longer latency delays what leaves"),
        pytest.param([(111 * MS, {"latency_ns": 50 * MS})], {}, 100 + 20, id="a longer latency when all has left"),
        # Down from 30 ms to 500: what had not left by then waits.
        pytest.param(is_down(30, 500), {}, 490 + 80 + 20, id="without TCP it goes on as soon as the link is up"),
        # All has left by 110 ms.
        *(
            pytest.param(is_down(begin_ms, 1000), {}, 100 + 20 + waits_ms, id=f"down from {begin_ms} ms on")
            for begin_ms, waits_ms in ((110, 0), (109, 1000 - 109), (60, 1000 - 60), (5, 1000 - 10))
        ),
        pytest.param(is_down(5, 10), {}, 100 + 20, id="an outage that is over as the transfer begins"),
        pytest.param([*is_down(60, 70), *is_down(90, 190)], {}, 100 + 20 + 10 + 100, id="two outages in a row"),
        pytest.param(
            [
                (60 * MS, {"up": False}),
                (90 * MS, {"node_pair_rate_bps": 5 * 10**8, "up": False}),
                (100 * MS, {"node_pair_rate_bps": 5 * 10**8}),
            ],
            {},
            50 + 40 + 100 + 20,
            id="a rate that changes while the link is down holds once it is up",
        ),
    ],
)
def test_a_transfer_over_a_link_that_changes_arrives_after(
    there: Changes, options: dict[str, Any], after_ms: float
) -> None:
    assert arrives_ms(there, **options) == after_ms


def test_a_window_that_the_line_holds_waits_for_the_longer_round_trip() -> None:
    # 2.94 MB in a round trip of 40 ms, then of 100 ms: the rest of the transfer takes 2.5 times as long.
    transport = {"window": "2.8MiB"}
    size = "60000000B"
    before = arrives_ms([(10**15, {"latency_ns": 1})], size=size, effects=WINDOW_ONLY, transport=transport)
    after = arrives_ms([(10 * MS + 1, {"latency_ns": 50 * MS})], size=size, effects=WINDOW_ONLY, transport=transport)
    assert after == pytest.approx(2.5 * before, rel=0.06)


def test_an_outage_of_acknowledgements_alone_delays_what_waits_for_them() -> None:
    narrow: dict[str, Any] = {"effects": WINDOW_ONLY, "transport": {"window": "0.7MiB"}}
    constant = arrives_ms([(10**15, {"latency_ns": 1})], **narrow)
    # From the first timeout that finds the way back: 350 and 835 ms after a byte that left between 10 and 50 ms.
    assert 835 < arrives_ms([], is_down(30, 500), **narrow) - constant < 915


def test_tcp_gives_up_and_training_ends_with_a_line() -> None:
    with pytest.raises(SimulationError, match=r"down .* for longer than TCP sends again, 924\.6 s"):
        arrives_ms([(5 * MS, {"up": False})], effects=WINDOW_ONLY)
    with pytest.raises(SimulationError, match=r"down from 0\.01 s on for ever"):
        arrives_ms([(5 * MS, {"up": False})])


def test_after_a_shorter_latency_bytes_keep_their_order_until_a_pause_has_made_up_for_it() -> None:
    # A second transfer follows the first without a pause, or after one that makes up for some of the 15 ms, or for all.
    for pause_ms, takes_ms in ((0, 20), (6, 14), (14, 6), (15, 5), (16, 5)):
        forward_ms = 10 + pause_ms
        shorter = [((forward_ms + 5) * MS, {"latency_ns": 5 * MS})]
        arrived = each_arrives_ms(shorter, forward_ms=forward_ms, microbatches=2)
        assert arrived == [10 + 20, forward_ms + 10 + takes_ms], pause_ms


def test_after_a_longer_latency_all_that_leaves_later_arrives_later_and_nothing_else() -> None:
    longer = [(35 * MS, {"latency_ns": 90 * MS})]
    # Microbatches leave from 20, 40 and 60 ms on, 10 ms each.
    assert each_arrives_ms(longer, forward_ms=20, microbatches=3) == [10 + 20, 30 + 90, 50 + 90]


def test_what_has_been_sent_openly_beyond_acknowledgements_that_are_lost_is_not_gone_on_with_before_they_come() -> None:
    size_bytes, window_bytes = 100_000_000, 46_976_204
    arrived = arrives_ms([], is_down(30, 500), size=f"{size_bytes}B", **LET_OUT)
    # Nothing is acknowledged before 500 ms: what the window does not hold leaves after that, at 125 kB a millisecond.
    assert arrived >= 500 - 10 + (size_bytes - window_bytes) / 125_000 + 20


UP = LinkConditions(latency_ns=20 * MS, node_pair_rate_bps=10**9)


def channel(there: LinkCourse, back: LinkCourse, *, tcp: bool = True, window_bytes: int = 10**6) -> ChangingChannel:
    """Return one that is alone: acknowledgements wait behind no other bytes."""
    path = ChangingPath(there, back, None, headers=False)
    capacity = SharedCapacity(EventQueue(), {0: 10**9})
    window = TcpWindow(path.line(0).rtt_ns, window_bytes, None)
    return ChangingChannel(path, window, NodePairFlow(0, [0]), capacity, Retransmission(path) if tcp else None)


def down(begin_ms: int, end_ms: int) -> LinkCourse:
    return course_of([(0, UP), (begin_ms * MS, replace(UP, up=False)), (end_ms * MS, UP)])


def stretches_ms(of: ChangingChannel, size_bytes: int) -> list[tuple[float, float, int]]:
    """Return when each stretch of a transfer begins and ends, and its bytes."""
    of.queue(0, size_bytes, lambda *_: None)
    run_all(of.events)
    numbers = of.history.tolist()
    stretches = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return [(begin_ns / MS, end_ns / MS, sent_bytes) for begin_ns, end_ns, sent_bytes in stretches]


def test_of_a_window_beyond_what_the_line_holds_the_rest_leaves_and_the_probe_follows_its_acknowledgement() -> None:
    # A window of 10 MB over a line that holds 5 MB and a byte: bytes wait for 40 ms, as long as a round trip.
    sent = stretches_ms(channel(down(100, 300), constant(UP), window_bytes=10**7), 50_000_000)
    waiting_bytes = 10**7 - 5_000_001
    assert [sent_bytes for *_, sent_bytes in sent] == [12_500_000, waiting_bytes, 37_500_000 - waiting_bytes]
    # What left at 100 ms is acknowledged at 180; the probe follows two round trips of 80 ms, 2.5 ticks of 10 later.
    expected = [(0, 100), (100, 140), (180 + 185, 180 + 185 + 260)]
    assert [(begin_ms, round(end_ms, 4)) for begin_ms, end_ms, _ in sent] == expected
    # Where only acknowledgements are lost, the last one has come at 120 ms, and that of the probe comes 40 ms later.
    sent = stretches_ms(channel(constant(UP), down(100, 300), window_bytes=10**7), 50_000_000)
    expected = [(0, 100), (100, 140), (120 + 185 + 40, 120 + 185 + 40 + 260)]
    assert [(begin_ms, round(end_ms, 4)) for begin_ms, end_ms, _ in sent] == expected


def test_of_a_window_that_the_line_holds_nothing_waits_and_the_next_round_follows_the_probe() -> None:
    # Rounds of 20 ms every 40; round trips are measured 10 ms longer, by half of what a transfer begins with.
    window = 2_500_000
    first = [(0, 20, window), (40, 60, window)]
    # What left at 80 ms is acknowledged at 120, and the probe follows 125 ms later.
    sent = stretches_ms(channel(down(90, 200), constant(UP), window_bytes=window), 4 * window)
    assert sent == [*first, (80, 90, window // 2), (245, 265, window), (285, 295, window // 2)]
    # The last acknowledgement lets out what leaves at 80 ms; the probe at 205 is acknowledged.
    sent = stretches_ms(channel(constant(UP), down(90, 200), window_bytes=window), 4 * window)
    assert sent == [*first, (80, 100, window), (245, 265, window)]


def test_a_round_trip_has_the_latencies_of_when_its_bytes_leave_and_are_acknowledged() -> None:
    there, back = (
        course_of([(0, replace(UP, latency_ns=before * MS)), (100 * MS, replace(UP, latency_ns=after * MS))])
        for before, after in ((20, 30), (10, 40))
    )
    # What leaves at 90 ms arrives at 110, and is acknowledged with the longer latency.
    begins_ms = [begin_ms for begin_ms, *_ in stretches_ms(channel(there, back), 7 * 10**6)]
    assert begins_ms == [0, 30, 60, 90, 150, 220, 290]
    begins_ms = [begin_ms for begin_ms, *_ in stretches_ms(channel(there, constant(UP)), 7 * 10**6)]
    assert begins_ms == [0, 40, 80, 120, 170, 220, 270]
    begins_ms = [begin_ms for begin_ms, *_ in stretches_ms(channel(constant(UP), back), 7 * 10**6)]
    assert begins_ms == [0, 30, 60, 90, 150, 210, 270]


def test_a_report_takes_the_latency_of_the_way_back_when_it_is_sent() -> None:
    longer = course_of([(0, UP), (50 * MS, LinkConditions(latency_ns=70 * MS))])
    for tcp in (False, True):
        of = channel(constant(UP), longer, tcp=tcp)
        assert [of.report_ns(at_ms * MS) // MS for at_ms in (0, 49, 50)] == [20, 69, 120]
        assert channel(longer, constant(UP), tcp=tcp).report_ns(60 * MS) == 80 * MS


def test_a_report_that_is_lost_is_sent_again_over_tcp() -> None:
    over_tcp = channel(constant(UP), down(50, 150))
    # The probe follows 105 ms later (test_changing_path.py).
    assert over_tcp.report_ns(60 * MS) == (60 + 105 + 20) * MS
    assert over_tcp.report_ns(49 * MS) == 69 * MS
    assert channel(constant(UP), down(50, 150), tcp=False).report_ns(60 * MS) == 80 * MS
    # The way there may be down meanwhile, but not when the acknowledgement of the report comes.
    assert channel(down(50, 150), constant(UP)).report_ns(60 * MS) == 80 * MS
