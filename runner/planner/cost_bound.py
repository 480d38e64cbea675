"""Lower bounds on the costs of candidates without simulating them: of their GPUs, and of what they send over the WAN.

Stages that are not placed yet cost no less than in the datacenters with the cheapest GPUs, each filled before the next.
Over every boundary between two datacenters all activations go one way and all gradients the other, with their headers;
of a boundary whose second datacenter is not known yet, the cheapest counts. What else is sent is left out.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from wanbed.flow.line import Line
from wanbed.runner.bound.lower_bound import BELOW
from wanbed.runner.planner.search_space import Runs
from wanbed.testbed.network.price_list import BYTES_PER_GB, PriceList


class CostBound:
    """Lower bounds on the costs of all candidates of one variant.

    ``free_gpus`` are those of every datacenter. ``activation_bytes`` has the size of a microbatch's activations over
    each boundary between stages, ``sequences`` are the microbatches of a pipeline in an iteration. Bytes on the wire
    are those of ``line``.
    """

    def __init__(
        self,
        prices: PriceList,
        free_gpus: Mapping[str, int],
        activation_bytes: Sequence[int],
        microbatches: int,
        line: Line,
    ) -> None:
        self._prices, self._free_gpus = prices, free_gpus
        self._activation_bytes, self._microbatches = activation_bytes, microbatches
        self._on_wire = line.frame_bytes / line.payload_bytes if line.headers else 1.0
        self._cheapest_first = sorted(free_gpus, key=prices.of_gpu.__getitem__)

    def gpus_usd_per_h(self, pipelines: int, runs: Runs) -> float:
        """Return a lower bound on what the GPUs cost an hour, wherever the stages after those of ``runs`` are."""
        stages = Counter(dict(runs))
        left = len(self._activation_bytes) + 1 - stages.total()
        for name in self._cheapest_first:
            if left and name not in stages:
                stages[name] = min(self._free_gpus[name] // pipelines, left)
                left -= stages[name]
        return self._prices.gpus_usd_per_h({name: count * pipelines for name, count in stages.items()}) * BELOW

    def egress_usd(self, pipelines: int, runs: Runs) -> float:
        """Return a lower bound on what an iteration costs for its bytes over the WAN, as ``gpus_usd_per_h`` does."""
        usd, stages = 0.0, 0
        for (one, count), (other, _) in pairwise(runs):
            stages += count
            usd += self._boundary_usd(stages - 1, pipelines, one, [other])
        last = stages + runs[-1][1] if runs else 0
        if 0 < last <= len(self._activation_bytes):
            used = dict(runs)
            free = [name for name, gpus in self._free_gpus.items() if name not in used and gpus >= pipelines]
            if free:
                usd += self._boundary_usd(last - 1, pipelines, runs[-1][0], free)
        return usd * BELOW

    def _boundary_usd(self, boundary: int, pipelines: int, one: str, others: Collection[str]) -> float:
        """Return the least cost of a boundary between a datacenter and any of some others."""
        payload_bytes = pipelines * self._microbatches * self._activation_bytes[boundary]
        # The simulator rounds the headers of each node pair down, of which there are no more than the square.
        each_way_bytes = max(payload_bytes, payload_bytes * self._on_wire - pipelines**2)
        prices = self._prices.of_gb
        return min(prices[one, other] + prices[other, one] for other in others) * each_way_bytes / BYTES_PER_GB
