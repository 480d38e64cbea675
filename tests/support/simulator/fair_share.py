"""Compute max-min fair rates: no flow can get more without another flow, which has no more, getting less.

Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2 (progressive filling). Rates are in whole bit/s, rounded
down, so that no resource exceeds its capacity.
"""

from collections.abc import Mapping, Sequence


def fair_rates_bps(flows: Sequence[Sequence[int]], capacities_bps: Mapping[int, int]) -> list[int]:
    """Return the rate of each flow, given the numbers of the resources that it crosses (at least one).

    Of resources that are saturated at the same rate, the one with the lowest number is filled first. A rate is at least
    1 bit/s.
    """
    rates = [0] * len(flows)
    left_bps: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for flow, resources in enumerate(flows):
        for resource in resources:
            members.setdefault(resource, []).append(flow)
            left_bps[resource] = capacities_bps[resource]
    waiting = set(range(len(flows)))
    open_count = {resource: len(crossing) for resource, crossing in members.items()}
    while waiting:
        share_bps, full = min((left_bps[each] // count, each) for each, count in open_count.items() if count)
        for flow in members[full]:
            if flow not in waiting:
                continue
            waiting.discard(flow)
            rates[flow] = max(share_bps, 1)
            for resource in flows[flow]:
                left_bps[resource] -= share_bps
                open_count[resource] -= 1
    return rates
