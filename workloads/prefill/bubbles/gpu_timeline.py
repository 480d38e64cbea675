"""One GPU's bubbles according to its last report, repeated in every later period."""

from bisect import bisect_right

from wanbed.workloads.prefill.bubbles.bubble_forecast import longest
from wanbed.workloads.prefill.messages import ENDLESS_NS, BubbleReport


class GpuTimeline:
    """Places work in a GPU's bubbles, layer by layer, without keeping a record of what was placed.

    Before the first report there is no bubble.
    """

    def __init__(self) -> None:
        self._anchor_ns = 0
        self._period_ns = 0
        self._starts_ns: list[int] = []
        self._ends_ns: list[int] = []
        self.longest_ns = 0
        """The length of the longest bubble."""
        self.bubble_ns = 0
        """The total length of all bubbles in one period."""

    def update(self, report: BubbleReport) -> None:
        """Use the bubbles of ``report`` from now on."""
        self._anchor_ns, self._period_ns = report.anchor_ns, report.period_ns
        self._starts_ns = [start_ns for start_ns, _ in report.bubbles]
        self._ends_ns = [end_ns for _, end_ns in report.bubbles]
        self.bubble_ns = sum(self._ends_ns) - sum(self._starts_ns)
        self.longest_ns = longest(report.bubbles) if report.period_ns else ENDLESS_NS

    def place(self, from_ns: int, layers: int, layer_ns: int, until_ns: int) -> tuple[int, int] | None:
        """Return the start and the end of ``layers`` layers placed from ``from_ns`` on.

        Return None if they would not end by ``until_ns``. A layer is never split: one that does not fit into the rest
        of a bubble goes to the next bubble.
        """
        if layer_ns > self.longest_ns:
            return None
        if not self._period_ns:
            end_ns = from_ns + layers * layer_ns
            return (from_ns, end_ns) if end_ns <= until_ns else None
        starts_ns, ends_ns = self._starts_ns, self._ends_ns
        periods, offset_ns = divmod(from_ns - self._anchor_ns, self._period_ns)
        base_ns = self._anchor_ns + periods * self._period_ns
        index = bisect_right(ends_ns, offset_ns)
        begun_ns = None
        while True:
            if index == len(ends_ns):
                index = 0
                base_ns += self._period_ns
            at_ns = max(from_ns, base_ns + starts_ns[index])
            if at_ns > until_ns:
                return None
            fitting = (base_ns + ends_ns[index] - at_ns) // layer_ns
            if fitting > 0:
                if begun_ns is None:
                    begun_ns = at_ns
                if fitting >= layers:
                    end_ns = at_ns + layers * layer_ns
                    return (begun_ns, end_ns) if end_ns <= until_ns else None
                layers -= fitting
            index += 1

    def stretched_ns(self, from_ns: int, work_ns: int) -> int:
        """Estimate the end of ``work_ns`` of work begun at ``from_ns``, as if bubbles were spread evenly over time.

        Layers that do not fit into the rest of a bubble are not accounted for.
        """
        if not self._period_ns:
            return from_ns + work_ns if self.longest_ns else ENDLESS_NS
        return from_ns + work_ns * self._period_ns // self.bubble_ns if self.bubble_ns else ENDLESS_NS
