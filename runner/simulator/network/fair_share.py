"""Compute max-min fair rates: nobody can have more without somebody who has no more having less.

Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2 (progressive filling). In whole bit/s, rounded down, so
that no resource is ever above its capacity.
"""

from collections.abc import Mapping, Sequence


def fair_rates_bps(flows: Sequence[Sequence[int]], capacities_bps: Mapping[int, int]) -> list[int]:
    """Return the rate of each flow, given the resources that it crosses, at least one, by number.

    Among resources that run full at the same rate the one with the lowest number is filled first. A rate is 1 bit/s at
    least.
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
