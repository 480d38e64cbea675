"""Print a calibration as a table that fits a terminal of 80 columns: each link configured and measured."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.testbed.measurement.calibration import MeasuredLink

TRANSFERS: Mapping[str, tuple[str, float]] = {
    "short_ms": ("short\nms", 1.0),
    "both_ways_ms": ("both ways\nms", 1.0),
    "share_bps": ("share\nMbit/s", 1e-6),
    "together_bps": ("together\nMbit/s", 1e-6),
}
"""The figures that only some links have: heading and scale."""

_SLOW_BPS = 10**7
"""Below this rate a tenth of a Mbit/s does not tell links apart."""


def calibration_table(links: Sequence[MeasuredLink], title: str, dilation: float) -> Table:
    """Return two rows a directed link, configured and measured; columns beyond RTT and goodput only where used."""
    impaired = any(compared.configured for link in links for compared in link.impairments.values())
    impairments = IMPAIRMENTS if impaired else ()
    columns = [link.in_columns() for link in links]
    transfers = {
        name: column for name, column in TRANSFERS.items() if any(row.get(f"configured_{name}") for row in columns)
    }
    heading = title + (f" (dilation {dilation:g})" if dilation != 1 else "")
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("link")
    table.add_column("", no_wrap=True)
    headings = [f"{each.label}\nms" if each.is_duration else each.label for each in impairments]
    for heading in ("RTT\nms", "goodput\nMbit/s", *headings, *(heading for heading, _ in transfers.values())):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("within\ntolerance", no_wrap=True)
    for link, row in zip(links, columns, strict=True):
        configured_bps = row["configured_goodput_bps"]
        goodput = "unlimited" if configured_bps is None else _rate(configured_bps)
        asked = [_figure(row["configured_rtt_ms"], 1, ".2f"), goodput]
        measured = [_figure(row["measured_rtt_ms"], 1, ".2f"), _rate(row["measured_goodput_bps"])]
        for each in impairments:
            compared, digits = link.impairments.get(each.column), ".2f" if each.is_duration else ".2%"
            asked.append("" if compared is None else f"{compared.configured:{digits}}")
            measured.append("" if compared is None else f"{compared.measured:{digits}}")
        for name, (_, scale) in transfers.items():
            asked.append(_figure(row.get(f"configured_{name}"), scale, ".1f"))
            measured.append(_figure(row.get(f"measured_{name}"), scale, ".1f"))
        table.add_row(_path_text(link), "asked", *asked)
        table.add_row("", "measured", *measured, "yes" if link.within_tolerance else "NO", end_section=True)
    return table


def _path_text(link: MeasuredLink) -> str:
    path = f"inside {link.source}" if link.scope == "intra" else f"{link.source} to {link.destination}"
    return f"{path}, from {link.condition}" if link.condition else path


def _rate(bps: float | None) -> str:
    """Return a rate in Mbit/s, with as many digits as it takes to tell slow links apart."""
    return _figure(bps, 1e-6, ".1f" if bps is None or bps >= _SLOW_BPS or not bps else ".3g")


def _figure(value: float | None, scale: float, digits: str) -> str:
    return "" if value is None else f"{value * scale:{digits}}"
