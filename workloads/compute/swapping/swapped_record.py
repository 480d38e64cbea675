"""Record the cost of swapping for a rank, iteration by iteration, and set it beside the formula of the groups."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from wanbed.results.records.span_log import SwappedGroup, SwappingRecord
from wanbed.workloads.compute.swapping.group_copies import Copied
from wanbed.workloads.swapping.grouping import LayerGroup, passes_ns


@dataclass
class _Times:
    """The times of one group, an entry for each iteration, or for each load."""

    forward_ns: list[int] = field(default_factory=list)
    backward_ns: list[int] = field(default_factory=list)
    load_ns: list[int] = field(default_factory=list)


class SwappingMeasurement:
    """Collects the iterations of a rank. ``layers`` and ``sizes_bytes`` are those of its groups.

    ``planned_ns`` is what the model of the grouping expects both passes to take, None where nothing gave it times.
    """

    def __init__(
        self, layers: Sequence[int], sizes_bytes: Sequence[int], memory_bytes: int, planned_ns: int | None
    ) -> None:
        self._layers = tuple(layers)
        self._sizes_bytes = tuple(sizes_bytes)
        self._memory_bytes = memory_bytes
        self._planned_ns = planned_ns
        self._times = [_Times() for _ in self._layers]
        self._passes_ns: list[int] = []
        self._total = Copied()

    def iteration(
        self,
        passes_ns: int,
        forward_ns: Sequence[int],
        backward_ns: Sequence[int],
        loads: Sequence[int],
        copied: Copied,
    ) -> None:
        """Add an iteration: how long both passes took, how long each group computed, and the groups loaded."""
        self._passes_ns.append(passes_ns)
        for times, forward, backward in zip(self._times, forward_ns, backward_ns, strict=True):
            times.forward_ns.append(forward)
            times.backward_ns.append(backward)
        for group, load_ns in zip(loads, copied.loads_ns, strict=True):
            self._times[group].load_ns.append(load_ns)
        total = self._total
        total.loads_ns += copied.loads_ns
        total.returns_ns += copied.returns_ns
        total.loaded_bytes += copied.loaded_bytes
        total.returned_bytes += copied.returned_bytes
        total.load_wait_ns += copied.load_wait_ns
        total.return_wait_ns += copied.return_wait_ns

    def record(self) -> SwappingRecord | None:
        """Return what has been measured so far; None before the first iteration."""
        if not self._passes_ns:
            return None
        groups = [
            SwappedGroup(
                layers,
                size_bytes,
                _middle(times.forward_ns),
                _middle(times.backward_ns),
                _middle(times.load_ns),
            )
            for layers, size_bytes, times in zip(self._layers, self._sizes_bytes, self._times, strict=True)
        ]
        total = self._total
        return SwappingRecord(
            groups=tuple(groups),
            memory_bytes=self._memory_bytes,
            planned_ns=self._planned_ns,
            formula_ns=passes_ns(
                [LayerGroup(each.forward_ns, each.backward_ns, each.load_ns, each.size_bytes) for each in groups]
            ),
            both_passes_ns=_middle(self._passes_ns),
            iterations=len(self._passes_ns),
            loaded_bytes=total.loaded_bytes,
            load_ns=sum(total.loads_ns),
            returned_bytes=total.returned_bytes,
            return_ns=sum(total.returns_ns),
            load_wait_ns=total.load_wait_ns,
            return_wait_ns=total.return_wait_ns,
        )


def _middle(times_ns: Sequence[int]) -> int:
    return round(median(times_ns))
