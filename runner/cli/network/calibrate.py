"""``wanbed calibrate``: measure every link of an experiment's network, and print configured against measured."""

import json
from dataclasses import astuple
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from ground.impairments import IMPAIRMENTS
from results.reading.modelled_tcp import MODELLED_TCP
from runner.cli.arguments import AsJson, Clock, ExperimentFile, Overrides, SubstrateName, as_options, with_clock
from runner.cli.exit_status import one_line_errors
from runner.cli.network.leftovers import report_leftovers
from runner.cli.outcome import log
from runner.cli.user_namespace import enter_user_namespace_for
from runner.emulation.network_choice import emulated_points, network_up
from runner.emulation.virtual.virtual_clock import COMMAND, enter_virtual_time, wants_guest
from runner.resolve.experiment import SweepPoint
from runner.runs.faults import OUTSIDE_TOLERANCE
from testbed.measurement.calibration import LinkMeasurement
from testbed.measurement.calibration import calibrate as calibrate_links
from testbed.measurement.condition_choice import unmeasured_conditions
from testbed.substrate.offer import RELAY
from testbed.virtual_time.kernel.kernel_cache import virtual_kernel

Measured = list[tuple[SweepPoint, LinkMeasurement]]

_TRANSFERS = {
    "short_ms": ("short ms", 1.0),
    "both_ways_ms": ("both ways ms", 1.0),
    "share_bps": ("share Mbit/s", 1e-6),
    "together_bps": ("together Mbit/s", 1e-6),
}
"""The fields that ``LinkMeasurement`` has only of some links, configured and measured: heading and scale."""


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
    from runner.emulation.run_dilation import decide_dilation  # noqa: PLC0415 - Mininet comes with it

    with one_line_errors():
        written = with_clock(overrides, clock)
        enter_user_namespace_for(file, written, substrate)
        points = emulated_points(file, written)
        if wants_guest(points[0].spec, substrate):
            arguments = ["calibrate", str(file), *as_options(written)]
            arguments += ["--json"] if as_json else []
            raise typer.Exit(enter_virtual_time(virtual_kernel(), COMMAND, arguments, files=[file]))
        report_leftovers()
        if substrate == RELAY:
            log(MODELLED_TCP)
        dilation = decide_dilation(points, substrate).factor
        console = Console(stderr=as_json, highlight=False)
        measured: Measured = []
        for point in _distinct(points):
            with network_up(point.topology.dilated(dilation), substrate, file, dilation=dilation) as testbed:
                links = [link.undilated(dilation) for link in calibrate_links(testbed)]
                for said in unmeasured_conditions(testbed.topology, dilation):
                    log(said)
            measured += [(point, link) for link in links]
            values = ", ".join(f"{path}={value}" for path, value in point.values.items())
            console.print(_table(links, values or str(file), dilation))
        within = all(link.within_tolerance for _, link in measured)
        if as_json:
            print(json.dumps(_document(measured, dilation), indent=2))
        elif within:
            console.print("every link is within tolerance")
        else:
            console.print("some links are outside tolerance")
    if not within:
        raise typer.Exit(OUTSIDE_TOLERANCE)


def _distinct(points: tuple[SweepPoint, ...]) -> list[SweepPoint]:
    seen: dict[Any, SweepPoint] = {}
    for point in points:
        seen.setdefault(point.topology, point)
    return list(seen.values())


def _document(measured: Measured, dilation: float) -> dict[str, Any]:
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
                    "rtt_ms": link.configured_rtt_ms,
                    "goodput_bps": link.configured_goodput_bps,
                    **{
                        each.column: link.impairments[each.column].configured
                        for each in IMPAIRMENTS
                        if each.column in link.impairments
                    },
                    **{name: getattr(link, f"configured_{name}") for name in _TRANSFERS},
                },
                "measured": {
                    "rtt_ms": _rounded(link.measured_rtt_ms),
                    "goodput_bps": None if link.measured_goodput_bps is None else round(link.measured_goodput_bps),
                    **{
                        each.column: round(link.impairments[each.column].measured, 3 if each.is_duration else 5)
                        for each in IMPAIRMENTS
                        if each.column in link.impairments
                    },
                    **{name: _rounded(getattr(link, f"measured_{name}")) for name in _TRANSFERS},
                    "burst_bytes": link.burst_bytes,
                },
                "within_tolerance": link.within_tolerance,
            }
            for point, link in measured
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _table(links: list[LinkMeasurement], title: str, dilation: float) -> Table:
    """Return configured against measured, one row a directed link; columns beyond RTT and goodput only where used."""
    impaired = any(compared.configured for link in links for compared in link.impairments.values())
    impairments = IMPAIRMENTS if impaired else ()
    table = Table(title=title + (f" (dilation {dilation:g})" if dilation != 1 else ""), title_justify="left")
    table.add_column("link")
    for heading in ("RTT ms\nasked", "\nmeasured", "goodput Mbit/s\nasked", "\nmeasured"):
        table.add_column(heading, justify="right")
    for each in impairments:
        table.add_column(f"{each.label}{' ms' if each.is_duration else ''}\nasked", justify="right")
        table.add_column("\nmeasured", justify="right")
    transfers = {
        name: column
        for name, column in _TRANSFERS.items()
        if any(getattr(link, f"configured_{name}") for link in links)
    }
    for heading, _ in transfers.values():
        table.add_column(f"{heading}\nasked", justify="right")
        table.add_column("\nmeasured", justify="right")
    table.add_column("within\ntolerance")
    for link in links:
        configured_bps = link.configured_goodput_bps
        row = [
            _path_text(link),
            _figure(link.configured_rtt_ms, 1, ".2f"),
            _figure(link.measured_rtt_ms, 1, ".2f"),
            "unlimited" if configured_bps is None else f"{configured_bps / 1e6:.1f}",
            _figure(link.measured_goodput_bps, 1e-6, ".1f"),
        ]
        for each in impairments:
            compared, digits = link.impairments.get(each.column), ".2f" if each.is_duration else ".2%"
            row += ["", ""] if compared is None else [f"{value:{digits}}" for value in astuple(compared)]
        for name, (_, scale) in transfers.items():
            for value in (getattr(link, f"configured_{name}"), getattr(link, f"measured_{name}")):
                row.append(_figure(value, scale, ".1f"))
        table.add_row(*row, "yes" if link.within_tolerance else "NO")
    return table


def _path_text(link: LinkMeasurement) -> str:
    path = f"inside {link.source}" if link.scope == "intra" else f"{link.source} to {link.destination}"
    return f"{path}, from {link.condition}" if link.condition else path


def _figure(value: float | None, scale: float, digits: str) -> str:
    return "" if value is None else f"{value * scale:{digits}}"
