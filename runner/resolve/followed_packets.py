"""Say which trials a simulation can follow packet by packet, and which of them have few packets."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import Final

from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.packet_draws import draws_packets
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.network.ethernet import ETHERNET_HEADER_BYTES
from wanbed.testbed.network.gateway_layout import super_packets
from wanbed.testbed.network.goodput import TCP_OVERHEAD_BYTES
from wanbed.testbed.network.shared_rate import Timers, most_frames
from wanbed.testbed.network.topology import Topology

MODELLED_CONGESTION_CONTROLS: Final = frozenset({"cubic", "reno"})
"""The congestion controls that are modelled without loss. The mean of connections takes any other for one of them."""

MOST_PACKETS: Final = 400_000
"""The most packets of a trial that are followed with ``auto``: each takes 10 to 30 us, compiled."""

_LEAST_FRAMES_PER_S: Final = 2 * 10
"""Two frames in a tenth of a second. At a lower rate, packets time out again and again."""


def reason_not_followed(topology: Topology, variant: ResolvedVariant, *, background: bool) -> str | None:
    """Return why the packets of a trial, and of the jobs beside it, cannot be followed; None if they can.

    ``background`` is whether flows that train nothing share its network.
    """
    if background:
        return "beside flows in the background"
    if not isinstance(variant, PipelineVariant) or variant.is_star:
        return "where training is no pipeline, or sums over a star"
    if topology.changes:
        return "over links that change"
    if variant.transport.congestion not in MODELLED_CONGESTION_CONTROLS and not draws_packets(
        topology, variant.transport
    ):
        return f"of {variant.transport.congestion} without loss"
    if any(other.transport.model != variant.transport.model for other in variant.beside):
        return "beside jobs whose packets are not"
    return None


def follows_packets(topology: Topology, variant: ResolvedVariant, iterations: int) -> bool:
    """Return whether a simulation follows the packets of a variant, and of the jobs beside it.

    With ``auto`` it does if it can, and they are few. Over links with losses or jitter ``auto`` is the mean, which
    draws these packet by packet. Where receives block it is the mean, too: by packets an interleaved 1F1B came out 8 %
    too slow, for a reason that was not found.
    """
    if variant.transport.model == "packets":
        return True
    if not isinstance(variant, PipelineVariant) or variant.transport.model != "auto":
        return False
    reason = reason_not_followed(topology, variant, background=bool(variant.background))
    blocks = any(each.receives_block for each in variant.at_once)
    if reason is not None or blocks or draws_packets(topology, variant.transport):
        return False
    return _are_few_packets(topology, variant.at_once, iterations)


def _are_few_packets(topology: Topology, at_once: Sequence[PipelineVariant], iterations: int) -> bool:
    """Return whether variants that train at once send ``MOST_PACKETS`` between hosts at most.

    They are never few where a connection's rate is below ``_LEAST_FRAMES_PER_S``.
    """
    most = most_frames(topology.mtu_bytes + ETHERNET_HEADER_BYTES)
    frames = min(each or most for each in super_packets(topology, Timers.VIRTUAL).values())
    packets = 0.0
    for variant in at_once:
        sizes = _PacketSizes(topology, variant, frames)
        for pair, sent_bytes in _sent_bytes(variant):
            size_bytes = sizes.between(pair)
            packets += (variant.iterations or iterations) * sent_bytes / size_bytes if size_bytes else inf
            if packets > MOST_PACKETS:
                return False
    return True


class _PacketSizes:
    """The payload of the packets of a variant's connections that are neither slow at first nor held up by others.

    They hold what a connection sends in a millisecond, more over short round trips, and ``frames`` at most
    (Linux: ``tcp_tso_autosize``).
    """

    def __init__(self, topology: Topology, variant: PipelineVariant, frames: int) -> None:
        self._topology, self._variant, self._frames = topology, variant, frames
        self._known: dict[tuple[str, str], float] = {}

    def between(self, pair: Pair) -> float:
        """Return the bytes of a packet between two places, 0 where the rate is below ``_LEAST_FRAMES_PER_S``."""
        one, other = pair
        ends = one.datacenter, other.datacenter
        if ends not in self._known:
            (connections,) = count_connections(self._topology, [pair], self._variant.transport).values()
            rtt_ns, line_bps = self._topology.rtt_ns(*ends), self._topology.line_rate_bps(*ends)
            window_bps = self._variant.tcp.window_bytes * 8e9 / rtt_ns if rtt_ns else inf
            rate_bps = window_bps if line_bps is None else min(window_bps, line_bps / connections)
            size_bytes = rate_bps / 8 / 1024 + (65_536 >> min(rtt_ns // 512_000, 31))
            segment_bytes = self._topology.mtu_bytes - TCP_OVERHEAD_BYTES
            segments = min(max(min(size_bytes / segment_bytes, self._frames) // 1, 2), self._frames)
            least_bps = _LEAST_FRAMES_PER_S * 8 * (self._topology.mtu_bytes + ETHERNET_HEADER_BYTES)
            self._known[ends] = 0 if rate_bps < least_bps else segments * segment_bytes
        return self._known[ends]


def _sent_bytes(variant: PipelineVariant) -> Iterator[tuple[Pair, int]]:
    """Yield two neighbours on different hosts, with what they send each other in an iteration, time and again."""
    work = variant.work
    for chain in variant.chains:
        for boundary, (one, other) in enumerate(pairwise(chain)):
            if one.host != other.host:
                yield (one, other), 2 * variant.microbatches * work.activation_bytes[boundary]
    if variant.pipelines == 1:
        return
    for stage, gradient_bytes in enumerate(work.gradient_bytes):
        rings = variant.rings(stage)
        hop_bytes = 2 * gradient_bytes if rings.butterfly is None else rings.summed_bytes(gradient_bytes)[0]
        hop_bytes *= variant.sums_an_iteration
        yield from ((pair, hop_bytes) for pair in rings.pairs if pair[0].host != pair[1].host)
