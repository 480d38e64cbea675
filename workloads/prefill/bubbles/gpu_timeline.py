"""One GPU's bubbles according to its last report, repeated for ever."""

from bisect import bisect_right

from workloads.prefill.bubbles.bubble_forecast import longest
from workloads.prefill.messages import ENDLESS_NS, BubbleReport


class GpuTimeline:
    """Places work in bubbles, layer by layer. It keeps no record of what was placed.

    Before a report there is no bubble.
    """

    def __init__(self) -> None:
        self._anchor_ns = 0
        self._period_ns = 0
        self._starts_ns: list[int] = []
        self._ends_ns: list[int] = []
        self.longest_ns = 0
        """The longest bubble."""
        self.bubble_ns = 0
        """All bubbles of one period together."""

    def update(self, report: BubbleReport) -> None:
        """Take the bubbles of ``report`` from now on."""
        self._anchor_ns, self._period_ns = report.anchor_ns, report.period_ns
        self._starts_ns = [start_ns for start_ns, _ in report.bubbles]
        self._ends_ns = [end_ns for _, end_ns in report.bubbles]
        self.bubble_ns = sum(self._ends_ns) - sum(self._starts_ns)
        self.longest_ns = longest(report.bubbles) if report.period_ns else ENDLESS_NS

    def place(self, from_ns: int, layers: int, layer_ns: int, until_ns: int) -> tuple[int, int] | None:
        """Return when ``layers``, none before ``from_ns``, would start and end; None if not by ``until_ns``.

        A layer is never cut: one that does not end within a bubble goes to the next.
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
        """Return when work would be done that uses its share of every bubble to the last nanosecond: a lower bound."""
        if not self._period_ns:
            return from_ns + work_ns if self.longest_ns else ENDLESS_NS
        return from_ns + work_ns * self._period_ns // self.bubble_ns if self.bubble_ns else ENDLESS_NS
