"""Print a calibration as a table that fits a terminal of 80 columns: each link configured and measured."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console

from wanbed.ground.impairments import IMPAIRMENTS, Impairment
from wanbed.results.report.table import Column, Table, TableCell
from wanbed.runner.cli.terminal import print_table
from wanbed.testbed.measurement.calibration import MeasuredLink

TRANSFERS: Mapping[str, tuple[str, float]] = {
    "short_ms": ("short\nms", 1.0),
    "both_ways_ms": ("both ways\nms", 1.0),
    "share_bps": ("share\nMbit/s", 1e-6),
    "together_bps": ("together\nMbit/s", 1e-6),
}
"""The fields that ``MeasuredLink`` has only of some links, configured and measured: heading and scale."""

_SLOW_BPS = 10**7
"""Below this rate a tenth of a Mbit/s does not tell links apart."""


_Row = tuple[MeasuredLink, Mapping[str, Any], str]
"""A link, its figures by column, and whether the row has what was ``configured`` or ``measured``."""


def print_calibration(links: Sequence[MeasuredLink], title: str, dilation: float, console: Console) -> None:
    """Print two rows a directed link, configured and measured; columns beyond RTT and goodput only where used."""
    table = calibration_table(links, title, dilation)
    print_table(table, console, box=SIMPLE_HEAD, narrow=True, sections=[link for link in links for _ in range(2)])


def calibration_table(links: Sequence[MeasuredLink], title: str, dilation: float) -> Table | None:
    """Return the table that ``print_calibration`` prints; None without links."""
    impaired = any(compared.configured for link in links for compared in link.impairments.values())
    columns: list[Column[_Row]] = [
        Column("link", lambda row: _path_text(row[0]) if row[2] == "configured" else "", form="text"),
        Column("", lambda row: "asked" if row[2] == "configured" else row[2], form="name"),
        Column("RTT\nms", partial(_figure, "rtt_ms", 1, ".2f")),
        Column("goodput\nMbit/s", _goodput, form="figure"),
        *(
            Column(f"{each.label}\nms" if each.is_duration else each.label, partial(_impairment, each))
            for each in (IMPAIRMENTS if impaired else ())
        ),
        *(Column(heading, partial(_figure, name, scale, ".1f")) for name, (heading, scale) in TRANSFERS.items()),
        Column("within\ntolerance", _verdict, form="name"),
    ]
    rows = [
        (link, figures, which)
        for link in links
        for figures in (link.in_columns(),)
        for which in ("configured", "measured")
    ]
    dilated = f" (dilation {dilation:g})" if dilation != 1 else ""
    return Table.of("calibration", f"{title}{dilated}", rows, columns, "")


def _path_text(link: MeasuredLink) -> str:
    path = f"inside {link.source}" if link.scope == "intra" else f"{link.source} to {link.destination}"
    return f"{path}, from {link.condition}" if link.condition else path


def _goodput(row: _Row) -> str:
    """Return a rate in Mbit/s, with as many digits as it takes to tell slow links apart."""
    _, figures, which = row
    bps: float | None = figures.get(f"{which}_goodput_bps")
    if which == "configured" and bps is None:
        return "unlimited"
    return _figure("goodput_bps", 1e-6, ".1f" if bps is None or bps >= _SLOW_BPS or not bps else ".3g", row)


def _impairment(impairment: Impairment, row: _Row) -> str:
    link, _, which = row
    compared = link.impairments.get(impairment.column)
    digits = ".2f" if impairment.is_duration else ".2%"
    return "" if compared is None else f"{getattr(compared, which):{digits}}"


def _verdict(row: _Row) -> TableCell:
    link, _, which = row
    if which == "configured":
        return TableCell("")
    return TableCell("yes" if link.within_tolerance else "NO", bad=not link.within_tolerance)


def _figure(name: str, scale: float, digits: str, row: _Row) -> str:
    _, figures, which = row
    value: float | None = figures.get(f"{which}_{name}")
    return "" if value is None else f"{value * scale:{digits}}"
