"""Check the simulator in small cases with a closed form. Each formula is derived where it is computed.

All cases are ideal (no window, no slow start, no headers) except for the one effect that a case checks. The numbers are
chosen so that every time is a whole number of nanoseconds. Arrivals count from the end of the forward that made the
first activation. An activation has arrived when its last byte has arrived.
"""

from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.case import (
    ClosedForm,
    LawCheck,
    all_reduce_ns,
    arrival_ns,
    chain,
    iteration_ns,
    side_by_side,
    simulated,
)
from wanbed.runner.validation.forms.changing_links import CHANGING_LINKS
from wanbed.runner.validation.forms.pipelines import PIPELINES
from wanbed.runner.validation.forms.rings import DIFFERING_REPLICAS, RINGS
from wanbed.workloads.transport.frame import HEADER_BYTES, Cutting

MS, S = 1_000_000, 1_000_000_000
_FORWARDS_MS, _BACKWARDS_MS, _LATENCIES_MS = (10, 30, 20, 25), (40, 50, 90, 60), (5, 80, 20)


def _unequal_gpipe(simulate: Simulate, microbatches: int) -> int:
    simulation = simulated(
        simulate,
        chain([latency_ms * MS for latency_ms in _LATENCIES_MS]),
        compute={
            "forward": [f"{forward_ms}ms" for forward_ms in _FORWARDS_MS],
            "backward": [f"{backward_ms}ms" for backward_ms in _BACKWARDS_MS],
        },
        training={"stages": len(_FORWARDS_MS), "microbatches": microbatches},
        variant={"schedule": "gpipe"},
    )
    return iteration_ns(simulation)


def unequal_stages_and_links(simulate: Simulate) -> LawCheck:
    """Check GPipe with one microbatch: nothing waits for anything else, so all durations add up."""
    expected_ms = sum(_FORWARDS_MS) + sum(_BACKWARDS_MS) + 2 * sum(_LATENCIES_MS)
    return LawCheck(
        "GPipe, 1 microbatch, unequal stages and links",
        "sum of f + sum of b + 2 x sum of c",
        (expected_ms * MS,),
        (_unequal_gpipe(simulate, 1),),
    )


def slowest_stage(simulate: Simulate) -> LawCheck:
    """Check GPipe with M microbatches: add the slowest forward and the slowest backward M - 1 times.

    The two may be at different stages. Microbatch k leaves stage s at the length of the longest path to (s, k), where a
    step to the next stage costs its latency, a step to the next microbatch costs nothing, and each node costs its
    stage's f. A path to the last node makes S - 1 steps of the first kind and M - 1 of the second. It visits each stage
    once and M - 1 nodes more, which cost most if all are at the stage with the largest f. Backwards begin at the last
    stage when its last forward ends; the same holds for them with b.
    """
    microbatches = 8
    once_ms = sum(_FORWARDS_MS) + sum(_BACKWARDS_MS) + 2 * sum(_LATENCIES_MS)
    expected_ms = once_ms + (microbatches - 1) * (max(_FORWARDS_MS) + max(_BACKWARDS_MS))
    return LawCheck(
        f"GPipe, {microbatches} microbatches, the same stages and links",
        "that + (M - 1)(largest f + largest b)",
        (expected_ms * MS,),
        (_unequal_gpipe(simulate, microbatches),),
    )


def recompute(simulate: Simulate) -> LawCheck:
    """Check that GPipe recomputes when the gradient has arrived: r and b together act as one longer backward."""
    stages, microbatches, latency_ms = 4, 8, 50
    simulation = simulated(
        simulate,
        chain([latency_ms * MS] * (stages - 1)),
        compute={"forward": "50ms", "backward": "100ms", "recompute": "30ms"},
        training={"stages": stages, "microbatches": microbatches},
        variant={"schedule": "gpipe"},
    )
    expected_ms = (microbatches + stages - 1) * (50 + 30 + 100) + 2 * (stages - 1) * latency_ms
    return LawCheck(
        "GPipe, S = 4, M = 8, c = 50 ms, with a recompute of 30 ms",
        "(M + S - 1)(f + r + b) + 2(S - 1)c",
        (expected_ms * MS,),
        (iteration_ns(simulation),),
    )


def transfers_queue(simulate: Simulate) -> LawCheck:
    """Check that transfers over one node pair run one after the other, each for A / W.

    Each arrives one latency after its last byte has left. Forwards are shorter than a transfer, so the queue never
    empties: microbatch k, from 1, arrives at k A / W + c.
    """
    microbatches, forward_ms, transfer_ms, latency_ms = 4, 10, 100, 20
    simulation = simulated(
        simulate,
        chain([latency_ms * MS], node_pair_rate="1Gbit"),
        compute={"forward": f"{forward_ms}ms", "activation": "12500000B"},
        training={"stages": 2, "microbatches": microbatches},
        variant={"schedule": "gpipe"},
    )
    return LawCheck(
        "4 transfers of 100 ms over one node pair",
        "k A / W + c",
        tuple((k * transfer_ms + latency_ms) * MS for k in range(1, microbatches + 1)),
        tuple(arrival_ns(simulation, 1, microbatch) for microbatch in range(microbatches)),
    )


def directions_are_independent(simulate: Simulate) -> LawCheck:
    """Check that two pipelines that send in opposite directions at once each get the full rate."""
    simulation = simulated(
        simulate,
        side_by_side(2, rate="1Gbit", latency="20ms"),
        compute={"activation": "12500000B"},
        training={"stages": 2, "pipelines": 2, "microbatches": 1},
        variant={"schedule": "gpipe", "placement": [["east", "west"], ["west", "east"]]},
    )
    return LawCheck(
        "a transfer of 100 ms each way over one trunk at once",
        "A / R + c",
        (120 * MS,) * 2,
        (arrival_ns(simulation, 1), arrival_ns(simulation, 3)),
    )


def trunk_is_shared(simulate: Simulate) -> LawCheck:
    """Check that two node pairs capped at 60 Mbit/s on a trunk of 90 Mbit/s get half of it each: 45 Mbit take 1 s."""
    simulation = simulated(
        simulate,
        side_by_side(2, rate="90Mbit", node_pair_rate="60Mbit", latency="20ms"),
        compute={"activation": "5625000B"},
        training={"stages": 2, "pipelines": 2, "microbatches": 1},
        variant={"schedule": "gpipe"},
    )
    return LawCheck(
        "45 Mbit by each of 2 pairs of 60 Mbit/s over a trunk of 90",
        "A / (R / 2) + c",
        (1020 * MS,) * 2,
        (arrival_ns(simulation, 1), arrival_ns(simulation, 3)),
    )


def trunk_is_shared_while_there_are_two(simulate: Simulate) -> LawCheck:
    """Check the same node pairs with 105 Mbit each. The second transfer begins 1 s after the first.

    The first transfer moves 60 Mbit alone in its first second, and its other 45 Mbit in the next second, beside the
    second transfer. That one moves 45 Mbit in this second, and its other 60 Mbit alone in the next. So each takes 2 s.
    Of three stages, the first pipeline has one in the east and the second has two. Therefore the first crosses the WAN
    after one forward of 1 s, the second after two.
    """
    simulation = simulated(
        simulate,
        side_by_side(3, rate="90Mbit", node_pair_rate="60Mbit", latency="20ms"),
        compute={"forward": "1s", "activation": "13125000B"},
        training={"stages": 3, "pipelines": 2, "microbatches": 1},
        variant={"schedule": "gpipe", "placement": [["east", "west", "west"], ["east", "east", "west"]]},
    )
    return LawCheck(
        "105 Mbit by each of them, one a second after the other",
        "60 + 45 Mbit in 2 s, 45 + 60 in 2 s, + c",
        (2020 * MS,) * 2,
        (arrival_ns(simulation, 1), arrival_ns(simulation, 5)),
    )


def window_per_round_trip(simulate: Simulate) -> LawCheck:
    """Check that a connection has one window in flight: B bytes leave as B / window bursts, one RTT apart.

    No rate limits the transfers here. Four connections have four windows. Of a window of 140 kB 48 pairs of segments
    are used.
    """
    latency_ms, bursts = 20, 10
    in_flight_bytes = 140_000 // (2 * 1448) * (2 * 1448)
    arrivals_ns = []
    for connections in (1, 4):
        simulation = simulated(
            simulate,
            chain([latency_ms * MS]),
            compute={"activation": f"{connections * bursts * in_flight_bytes}B"},
            training={"stages": 2, "microbatches": 1},
            variant={"schedule": "gpipe", "transport": {"connections": connections, "window": "140kB"}},
            effects=TcpEffects(window=True, slow_start=False, headers=False),
        )
        arrivals_ns.append(arrival_ns(simulation, 1))
    return LawCheck(
        "10 windows over 1 connection, 40 over 4, RTT 40 ms",
        "(B / (n window) - 1) RTT + c",
        (((bursts - 1) * 2 * latency_ms + latency_ms) * MS,) * 2,
        tuple(arrivals_ns),
    )


INITIAL_WINDOW_BYTES = 10 * 1448


def slow_start(simulate: Simulate) -> LawCheck:
    """Check that a new connection sends ten segments, and after each round trip twice as much as before.

    After n bursts ``IW (2^n - 1)`` bytes have left, so B bytes take ``ceil(log2(B / IW + 1))`` bursts. The last burst
    arrives one latency after it has left. Cases: exactly one burst, one byte more, exactly two bursts, exactly three,
    one byte more.
    """
    latency_ms = 20
    cases = (
        (INITIAL_WINDOW_BYTES, 1),
        (INITIAL_WINDOW_BYTES + 1, 2),
        (3 * INITIAL_WINDOW_BYTES, 2),
        (7 * INITIAL_WINDOW_BYTES, 3),
        (7 * INITIAL_WINDOW_BYTES + 1, 4),
    )
    arrivals_ns = []
    for size_bytes, _ in cases:
        simulation = simulated(
            simulate,
            chain([latency_ms * MS]),
            compute={"activation": f"{size_bytes}B"},
            training={"stages": 2, "microbatches": 1},
            variant={"schedule": "gpipe"},
            effects=TcpEffects(window=False, slow_start=True, headers=False),
        )
        arrivals_ns.append(arrival_ns(simulation, 1))
    return LawCheck(
        "IW, IW + 1, 3 IW, 7 IW, 7 IW + 1 bytes over a new connection, RTT 40 ms",
        "(ceil(log2(B / IW + 1)) - 1) RTT + c",
        tuple(((bursts - 1) * 2 * latency_ms + latency_ms) * MS for _, bursts in cases),
        tuple(arrivals_ns),
    )


def headers(simulate: Simulate) -> LawCheck:
    """Check that 1448 bytes of payload take a frame of 1514 bytes: 1000 full segments are 12.112 Mbit on the wire.

    The segments hold the activation and one transport header for each of its chunks.
    """
    payload_bytes = 1000 * 1448
    own_bytes = Cutting(payload_bytes, node_pairs=1).chunks * HEADER_BYTES
    simulation = simulated(
        simulate,
        chain([20 * MS], node_pair_rate="121.12Mbit"),
        compute={"activation": f"{payload_bytes - own_bytes}B"},
        training={"stages": 2, "microbatches": 1},
        variant={"schedule": "gpipe"},
        effects=TcpEffects(window=False, slow_start=False, headers=True),
    )
    return LawCheck(
        "1000 full segments, the transport's headers among them, over 121.12 Mbit/s",
        "(A + headers) x 1514 / 1448 / W + c",
        (120 * MS,),
        (arrival_ns(simulation, 1),),
    )


def _ring(simulate: Simulate, gradient: str, **wan: str) -> int:
    replicas = ("north", "east", "south", "west")
    simulation = simulated(
        simulate,
        {"datacenters": [{"name": name, "hosts": 1} for name in replicas], "wan": wan},
        compute={"gradient": gradient},
        training={"stages": 1, "pipelines": len(replicas), "microbatches": 1},
        variant={"schedule": "dp"},
    )
    return all_reduce_ns(simulation)


def ring_by_rate(simulate: Simulate) -> LawCheck:
    """Check that all P replicas send A / P at the same time in each of 2(P - 1) steps: here 1 s per step."""
    return LawCheck(
        "ring all-reduce of 40 MB over 4 replicas at 80 Mbit/s, without latency",
        "2 (P - 1) / P x A / R",
        (6 * S,),
        (_ring(simulate, "40MB", node_pair_rate="80Mbit"),),
    )


def ring_by_latency(simulate: Simulate) -> LawCheck:
    """Check that without a rate limit each step takes one latency: it forwards what arrived in the step before."""
    return LawCheck(
        "ring all-reduce over 4 replicas 50 ms apart, without a rate",
        "2 (P - 1) c",
        (300 * MS,),
        (_ring(simulate, "40MB", latency="50ms"),),
    )


def ring_by_both(simulate: Simulate) -> LawCheck:
    """Check that segments are forwarded in chunks, so that a step begins before the previous one has fully arrived.

    Sending a segment takes 1 s, longer than the latency. Therefore no replica's line is ever idle, and the latency
    counts only once, for the last chunk.
    """
    return LawCheck(
        "the same at 80 Mbit/s and 50 ms",
        "2 (P - 1) / P x A / R + c",
        (6 * S + 50 * MS,),
        (_ring(simulate, "40MB", latency="50ms", node_pair_rate="80Mbit"),),
    )


def _first_arrivals(simulate: Simulate, **transport: str | int) -> tuple[int, ...]:
    pipelines = 4
    simulation = simulated(
        simulate,
        side_by_side(pipelines, node_pair_rate="1Gbit"),
        compute={"activation": "50000000B"},
        training={"stages": 2, "pipelines": pipelines, "microbatches": 1},
        variant={"schedule": "atlas", "transport": transport},
    )
    return tuple(sorted(arrival_ns(simulation, 2 * pipeline + 1) for pipeline in range(pipelines)))


def temporal_sharing(simulate: Simulate) -> LawCheck:
    """Check that a transfer over the node pairs of C pipelines takes 1/C of its time A / W over one node pair.

    C = 4 pipelines have an activation ready at the same time, and A / W = 400 ms. They take turns: the first activation
    arrives after 100 ms, the last one when all would arrive without sharing. Scatter and gather take no time here.
    """
    return LawCheck(
        "first activations of 4 pipelines, A / W = 400 ms, shared",
        "k A / (C W)",
        tuple(turn * 100 * MS for turn in range(1, 5)),
        _first_arrivals(simulate, sharing="temporal", pipelines_per_cell=4),
    )


def no_sharing(simulate: Simulate) -> LawCheck:
    """Check the same without sharing: all transfers run at once, each over its own node pair."""
    return LawCheck("the same, not shared", "A / W", (400 * MS,) * 4, _first_arrivals(simulate, sharing="none"))


CLOSED_FORMS: tuple[ClosedForm, ...] = (
    unequal_stages_and_links,
    slowest_stage,
    recompute,
    transfers_queue,
    directions_are_independent,
    trunk_is_shared,
    trunk_is_shared_while_there_are_two,
    window_per_round_trip,
    slow_start,
    headers,
    ring_by_rate,
    ring_by_latency,
    ring_by_both,
    *RINGS,
    temporal_sharing,
    no_sharing,
    *DIFFERING_REPLICAS,
    *PIPELINES,
    *CHANGING_LINKS,
)
