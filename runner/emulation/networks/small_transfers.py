"""Find transfers so small that the burst of a shared rate limit after a pause determines their duration.

Trunks and host ports that several senders can fill have a token bucket. After a pause it passes a burst at once. A
transfer smaller than ``TIMES`` the burst finishes more than a tenth of its time too early.
"""

from collections.abc import Iterable, Iterator, Mapping

from wanbed.results.text import size_text
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.measurement.calibration import LinkMeasurement, MeasuredLink
from wanbed.testbed.network.gateway_plan import GatewayPlan

TIMES = 10

Bursts = Mapping[tuple[str, str], int]
"""Burst in bytes by source and destination datacenter: of their trunk, or of host ports if both are the same."""


def bursts_of(plan: GatewayPlan, links: Iterable[MeasuredLink]) -> dict[tuple[str, str], int]:
    """Return the measured burst of each trunk, and the configured burst of the host ports in each datacenter."""
    trunks = {
        (link.source, link.destination): link.burst_bytes
        for link in links
        # Of a link that changes, in its first conditions.
        if isinstance(link, LinkMeasurement) and link.burst_bytes is not None and link.scope == "wan" and not link.at_ns
    }
    ports = {
        (gateway.datacenter, gateway.datacenter): shared.rate_bytes_per_s * shared.burst_us // 10**6
        for gateway in plan.gateways
        for port in gateway.host_ports
        if (shared := port.shared) is not None
    }
    return {**trunks, **ports}


def path_text(ends: tuple[str, str]) -> str:
    """Return the name of the trunk between two datacenters, or of the ports in one."""
    return f"ports in {ends[0]}" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def small_transfers(variant: ResolvedVariant, bursts: Bursts) -> list[str]:
    """Return a sentence for each kind of transfer that is small compared with the burst of its path; [] if none is."""
    worst: dict[str, tuple[float, str]] = {}
    for transfer in variant.transfers():
        for ends, burst_bytes in _on_the_way(transfer.pair, bursts):
            if transfer.size_bytes >= TIMES * burst_bytes:
                continue
            share = burst_bytes / max(1, transfer.size_bytes)
            sentence = (
                f"{variant.name}: {transfer.what} of {size_text(transfer.size_bytes)} is small beside the "
                f"{size_text(burst_bytes)} that {path_text(ends)} let go at once after a pause: it may be as much early"
            )
            worst[transfer.what] = max(worst.get(transfer.what, (0.0, "")), (share, sentence))
    return [sentence for _, sentence in worst.values()]


def _on_the_way(pair: Pair, bursts: Bursts) -> Iterator[tuple[tuple[str, str], int]]:
    one, other = pair
    if one.host.name == other.host.name:
        return
    for here, there in ((one.datacenter, other.datacenter), (other.datacenter, one.datacenter)):
        for ends in {(here, there), (there, there)}:
            if ends in bursts:
                yield ends, bursts[ends]
