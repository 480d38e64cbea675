"""A part of the page under a heading of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.table import Table


@dataclass(frozen=True)
class Section:
    """Tables and charts in their order, each under its own title where that is not the section's.

    A part is None where there is nothing to show; if all are, nor is the section. ``warning`` stands before them.
    """

    title: str
    parts: Sequence[Table | Chart | None]
    warning: str = ""

    @property
    def shown(self) -> list[Table | Chart]:
        """The parts that there are."""
        return [part for part in self.parts if part is not None]
