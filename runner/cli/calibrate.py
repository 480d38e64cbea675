"""``wanbed calibrate``: measure every link of an experiment's network, and print configured against measured."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console

from wanbed.ground.errors import prefixed
from wanbed.ground.impairments import IMPAIRMENTS, Impairment
from wanbed.results.report.table import Column, Table, TableCell
from wanbed.runner.cli.arguments import AsJson, Clock, ExperimentFile, Overrides, SubstrateName, as_options, with_clock
from wanbed.runner.cli.exit_status import log, one_line_errors
from wanbed.runner.cli.terminal import print_table
from wanbed.runner.runs.faults import OUTSIDE_TOLERANCE

if TYPE_CHECKING:
    from wanbed.runner.resolve.experiment import SweepPoint
    from wanbed.testbed.measurement.calibration import MeasuredLink

    _Measured = list[tuple[SweepPoint, MeasuredLink]]
    _Row = tuple[MeasuredLink, Mapping[str, Any], str]
    """A link, its figures by column, and whether the row has what was ``configured`` or ``measured``."""

TRANSFERS: Mapping[str, tuple[str, float]] = {
    "short_ms": ("short\nms", 1.0),
    "both_ways_ms": ("both ways\nms", 1.0),
    "share_bps": ("share\nMbit/s", 1e-6),
    "together_bps": ("together\nMbit/s", 1e-6),
}
"""The fields that ``MeasuredLink`` has only of some links, configured and measured: heading and scale."""

_SLOW_BPS = 10**7
"""Below this rate a tenth of a Mbit/s does not tell links apart."""


def calibrate(
    file: ExperimentFile,
    overrides: Overrides = None,
    clock: Clock = None,
    substrate: SubstrateName = "auto",
    as_json: AsJson = False,
) -> None:
    """Build the network of every sweep point, measure every link, and print configured against measured.

    A link that changes is measured in each of its conditions, of many in some that are spread evenly.

    Exit status 1 if a link is outside tolerance: RTT within max(0.5 ms, 2 %), goodput within 3 %, short transfers after
    a pause and with both directions busy within max(1 ms, 3 %), shares of node pairs that fill a trunk within 3 %.
    """
    with one_line_errors():
        from wanbed.runner.cli.user_namespace import enter_user_namespace_for, report_leftovers
        from wanbed.runner.experiment.experiment_document import ExperimentDocument

        written = with_clock(overrides, clock)
        document = ExperimentDocument.read(file, written)
        enter_user_namespace_for(document, substrate)
        from wanbed.results.reading.validity import MODELLED_TCP
        from wanbed.runner.emulation.network_choice import emulated_points, network_up
        from wanbed.runner.emulation.run_dilation import check_link_rates, decide_dilation
        from wanbed.runner.emulation.virtual_clock import (
            COMMAND,
            enter_virtual_time,
            status_of_inner,
            wants_guest,
        )
        from wanbed.testbed.measurement.calibration import calibrate as calibrate_links
        from wanbed.testbed.measurement.condition_choice import unmeasured_conditions
        from wanbed.testbed.substrate.offer import RELAY
        from wanbed.testbed.virtual_time.kernel_cache import virtual_kernel

        points = emulated_points(document)
        if wants_guest(points[0].spec, substrate):
            arguments = ["calibrate", str(file), *as_options(written)]
            arguments += ["--json"] if as_json else []
            raise typer.Exit(status_of_inner(enter_virtual_time(virtual_kernel(), COMMAND, arguments, files=[file])))
        report_leftovers()
        if substrate == RELAY:
            log(MODELLED_TCP)
        with prefixed(f"{file}: "):
            check_link_rates(points)
        dilation = decide_dilation(points, substrate).factor
        with prefixed(f"{file}: "):
            check_link_rates(points, dilation)
        console = Console(stderr=as_json, highlight=False)
        measured: _Measured = []
        for point in _distinct(points):
            with network_up(point.topology.dilated(dilation), substrate, file, dilation=dilation) as testbed:
                links = [link.undilated(dilation) for link in calibrate_links(testbed)]
                for said in unmeasured_conditions(testbed.topology, dilation):
                    log(said)
            measured += [(point, link) for link in links]
            values = ", ".join(f"{path}={value}" for path, value in point.values.items())
            print_calibration(links, values or str(file), dilation, console)
        within = all(link.within_tolerance for _, link in measured)
        if as_json:
            print(json.dumps(_document(measured, dilation), indent=2))
        elif within:
            console.print("every link is within tolerance")
        else:
            console.print("some links are outside tolerance")
    if not within:
        raise typer.Exit(OUTSIDE_TOLERANCE)


def _distinct(points: "tuple[SweepPoint, ...]") -> "list[SweepPoint]":
    seen: dict[Any, SweepPoint] = {}
    for point in points:
        seen.setdefault(point.topology, point)
    return list(seen.values())


def _document(measured: "_Measured", dilation: float) -> dict[str, Any]:
    return {
        "within_tolerance": all(link.within_tolerance for _, link in measured),
        "dilation": dilation,
        "links": [
            {
                "swept": dict(point.values),
                "from": link.source,
                "to": link.destination,
                "scope": link.scope,
                "condition": link.condition,
                "configured": {
                    "rtt_ms": row["configured_rtt_ms"],
                    "goodput_bps": row["configured_goodput_bps"],
                    **{
                        each.column: link.impairments[each.column].configured
                        for each in IMPAIRMENTS
                        if each.column in link.impairments
                    },
                    **{name: row.get(f"configured_{name}") for name in TRANSFERS},
                },
                "measured": {
                    "rtt_ms": _rounded(row["measured_rtt_ms"]),
                    "goodput_bps": None if row["measured_goodput_bps"] is None else round(row["measured_goodput_bps"]),
                    **{
                        each.column: round(link.impairments[each.column].measured, 3 if each.is_duration else 5)
                        for each in IMPAIRMENTS
                        if each.column in link.impairments
                    },
                    **{name: _rounded(row.get(f"measured_{name}")) for name in TRANSFERS},
                    "burst_bytes": row.get("burst_bytes"),
                },
                "within_tolerance": link.within_tolerance,
            }
            for point, link in measured
            for row in [link.in_columns()]
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def print_calibration(links: "Sequence[MeasuredLink]", title: str, dilation: float, console: Console) -> None:
    """Print two rows a directed link, configured and measured; columns beyond RTT and goodput only where used."""
    table = calibration_table(links, title, dilation)
    print_table(table, console, box=SIMPLE_HEAD, narrow=True, sections=[link for link in links for _ in range(2)])


def calibration_table(links: "Sequence[MeasuredLink]", title: str, dilation: float) -> Table | None:
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


def _path_text(link: "MeasuredLink") -> str:
    path = f"inside {link.source}" if link.scope == "intra" else f"{link.source} to {link.destination}"
    return f"{path}, from {link.condition}" if link.condition else path


def _goodput(row: "_Row") -> str:
    """Return a rate in Mbit/s, with as many digits as it takes to tell slow links apart."""
    _, figures, which = row
    bps: float | None = figures.get(f"{which}_goodput_bps")
    if which == "configured" and bps is None:
        return "unlimited"
    return _figure("goodput_bps", 1e-6, ".1f" if bps is None or bps >= _SLOW_BPS or not bps else ".3g", row)


def _impairment(impairment: Impairment, row: "_Row") -> str:
    link, _, which = row
    compared = link.impairments.get(impairment.column)
    digits = ".2f" if impairment.is_duration else ".2%"
    return "" if compared is None else f"{getattr(compared, which):{digits}}"


def _verdict(row: "_Row") -> TableCell:
    link, _, which = row
    if which == "configured":
        return TableCell("")
    return TableCell("yes" if link.within_tolerance else "NO", bad=not link.within_tolerance)


def _figure(name: str, scale: float, digits: str, row: "_Row") -> str:
    _, figures, which = row
    value: float | None = figures.get(f"{which}_{name}")
    return "" if value is None else f"{value * scale:{digits}}"
