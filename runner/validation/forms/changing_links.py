"""Check links that change within a transfer in small cases, as ``wanbed.runner.validation.closed_forms`` does.

The only forward ends at f. From then on A bytes leave at the rate W, and arrive one latency c after they have left.
"""

from typing import Any

from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.case import Changes, ClosedForm, LawCheck, arrival_ns, chain, side_by_side, simulated

MS = 1_000_000
_FORWARD_MS, _TRANSFER_MS, _LATENCY_MS = 10, 100, 20
_BYTES = 12_500_000
"""Takes 100 ms at 1 Gbit/s."""


def _arrival_ns(simulate: Simulate, changes: Changes, effects: TcpEffects = IDEAL, **transport: Any) -> int:
    simulation = simulated(
        simulate,
        chain([_LATENCY_MS * MS], node_pair_rate="1Gbit"),
        compute={"forward": f"{_FORWARD_MS}ms", "activation": f"{_BYTES}B"},
        training={"stages": 2, "microbatches": 1},
        variant={"schedule": "gpipe", "transport": transport},
        effects=effects,
        changes=changes,
    )
    return arrival_ns(simulation, 1)


def rate_step(simulate: Simulate) -> LawCheck:
    """Check a node pair that has half, and twice, the rate from d after the beginning of a transfer on.

    W d has left by then, and the rest leaves at the new rate. A queue stands at the far end of the link. So the change
    counts for what has left a latency before.
    """
    after_ms = 50
    at_ns = (_FORWARD_MS + after_ms + _LATENCY_MS) * MS
    rates_mbps = (500, 2000)
    expected = (after_ms + (_TRANSFER_MS - after_ms) * 1000 // mbps + _LATENCY_MS for mbps in rates_mbps)
    return LawCheck(
        "a transfer of 100 ms, the rate halved, doubled, after half of it",
        "d + (A - W d) / W' + c",
        tuple(expected_ms * MS for expected_ms in expected),
        tuple(_arrival_ns(simulate, [(at_ns, {"node_pair_rate_bps": mbps * 10**6})]) for mbps in rates_mbps),
    )


def latency_step(simulate: Simulate) -> LawCheck:
    """Check a latency that rises, and falls, within a transfer.

    The last byte leaves later and takes the longer latency. After a shorter one it does not arrive before those that
    left earlier: the line delivers one after the other, without a pause. So it arrives as if nothing had changed.
    """
    at_ns = (_FORWARD_MS + 60) * MS
    latencies_ms = (50, 5)
    return LawCheck(
        "the same, the latency 20 ms to 50 ms, to 5 ms, within it",
        "A / W + max(c, c')",
        tuple((_TRANSFER_MS + max(_LATENCY_MS, each)) * MS for each in latencies_ms),
        tuple(_arrival_ns(simulate, [(at_ns, {"latency_ns": each * MS})]) for each in latencies_ms),
    )


def latency_falls_between(simulate: Simulate) -> LawCheck:
    """Check that what leaves after a pause takes the shorter latency, and that of what is under way does not change.

    The second transfer leaves a forward after the first.
    """
    forward_ms, shorter_ms = 200, 5
    simulation = simulated(
        simulate,
        chain([_LATENCY_MS * MS], node_pair_rate="1Gbit"),
        compute={"forward": f"{forward_ms}ms", "activation": f"{_BYTES}B"},
        training={"stages": 2, "microbatches": 2},
        variant={"schedule": "gpipe"},
        changes=[((forward_ms + _TRANSFER_MS + 1) * MS, {"latency_ns": shorter_ms * MS})],
    )
    return LawCheck(
        "2 transfers, the latency 20 ms to 5 ms after the first has left",
        "A / W + c, f + A / W + c'",
        ((_TRANSFER_MS + _LATENCY_MS) * MS, (forward_ms + _TRANSFER_MS + shorter_ms) * MS),
        tuple(arrival_ns(simulation, 1, microbatch) for microbatch in range(2)),
    )


def outage(simulate: Simulate) -> LawCheck:
    """Check an outage of o within a transfer, without TCP: what has left arrives, the rest leaves afterwards."""
    outage_ms = 300
    down_ns = (_FORWARD_MS + 50) * MS
    changes = [(down_ns, {"up": False}), (down_ns + outage_ms * MS, {"up": True})]
    return LawCheck(
        "the same, the link down for 300 ms within it",
        "A / W + o + c",
        ((_TRANSFER_MS + outage_ms + _LATENCY_MS) * MS,),
        (_arrival_ns(simulate, changes),),
    )


def outage_over_tcp(simulate: Simulate) -> LawCheck:
    """Check a transfer that begins in an outage of a second, over TCP with an open window.

    A probe is sent 2 RTT and two ticks of 10 ms later. RTT + 200 ms after it the first segment is sent again, and twice
    as long after each time: 340, 820 and 1780 ms after the begin. Only the last finds the link up. A timer of fewer
    than 63 ticks is late by half a tick on average, the last, of 96 ticks, by 4.5: 60 ms in all.
    """
    changes = [(_FORWARD_MS // 2 * MS, {"up": False}), (1000 * MS, {"up": True})]
    effects = TcpEffects(window=True, slow_start=False, headers=False)
    rtt_ms = 2 * _LATENCY_MS
    again_ms = 2 * rtt_ms + 20 + (rtt_ms + 200) * (1 + 2 + 4) + 60
    return LawCheck(
        "the same over TCP, the link down at its begin, and for a second",
        "2 RTT + 20 ms + (RTT + 200 ms) (1 + 2 + 4) + 60 ms + A / W + c",
        ((again_ms + _TRANSFER_MS + _LATENCY_MS) * MS,),
        (_arrival_ns(simulate, changes, effects, window="64MiB"),),
    )


def trunk_step(simulate: Simulate) -> LawCheck:
    """Check two node pairs capped at 60 Mbit/s over a trunk of 90 that has 30, and 150, from a time on.

    Each has its max-min fair share before, 45 Mbit/s, and after: 15, and 60 by its own cap. As in ``rate_step``, the
    change counts for what has left a latency before, here 500 ms after the forward.
    """
    sent_ms, rates_mbps, shares_mbps = 500, (30, 150), (15, 60)
    at_ns = (_FORWARD_MS + sent_ms + _LATENCY_MS) * MS
    megabits = 45
    left_kilobits = megabits * 1000 - 45 * sent_ms
    expected = tuple(sent_ms + left_kilobits // share_mbps + _LATENCY_MS for share_mbps in shares_mbps)
    measured = []
    for rate_mbps in rates_mbps:
        simulation = simulated(
            simulate,
            side_by_side(2, rate="90Mbit", node_pair_rate="60Mbit", latency=f"{_LATENCY_MS}ms"),
            compute={"forward": f"{_FORWARD_MS}ms", "activation": f"{megabits * 125_000}B"},
            training={"stages": 2, "pipelines": 2, "microbatches": 1},
            variant={"schedule": "gpipe"},
            changes=[(at_ns, {"rate_bps": rate_mbps * 10**6})],
        )
        measured += [arrival_ns(simulation, 1), arrival_ns(simulation, 3)]
    return LawCheck(
        "45 Mbit by each of 2 pairs of 60 Mbit/s over a trunk of 90, then 30, then 150",
        "d + (A - R d / 2) / min(R' / 2, W) + c",
        tuple(expected_ms * MS for expected_ms in expected for _ in range(2)),
        tuple(measured),
    )


CHANGING_LINKS: tuple[ClosedForm, ...] = (
    rate_step,
    latency_step,
    latency_falls_between,
    outage,
    outage_over_tcp,
    trunk_step,
)
