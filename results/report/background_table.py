"""Make the table of traffic in the background: what each flow carried beside each variant."""

from collections import defaultdict
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from wanbed.results.metrics.iterations import Window
from wanbed.results.reading.links import configured_rates
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.schema import BACKGROUND
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import Column, Table, place_columns
from wanbed.results.text import count_text, percent_text, rate_text

_KINDS = {"bulk": "as much as it gets", "rate": "a rate", "on-off": "bursts", "trace": "a trace"}
_READING = (
    "Goodput is the payload that a flow's receiver got while iterations were measured; the share counts what was "
    "sent, headers included, and takes the link's rate at the begin of training. Several repeats: the median."
)


@dataclass(frozen=True)
class BackgroundRow:
    """The traffic of one flow beside one variant, at one sweep point: medians over the repeats.

    ``goodput_bps`` counts payload received while iterations are measured. ``wire_share`` counts bytes sent with
    headers, as a share of the link's configured rate. Either is None where no iteration was measured, or the link has
    no rate.
    """

    where: str
    variant: str
    flow: str
    kind: str
    synthetic: bool
    protocol: str
    connections: int
    source: str
    destination: str
    goodput_bps: float | None
    wire_share: float | None


def background_table(own: ReportedRun) -> Table | None:
    """Return the table of a run, None if nothing was in the background."""
    rows = background_rows(own.run)
    return Table.of("background", "Traffic in the background", rows, _COLUMNS, _READING, record=asdict)


def _offer_text(row: BackgroundRow) -> str:
    over = "datagrams" if row.protocol == "udp" else f"over {count_text(row.connections, 'connection')}"
    return f"{_KINDS.get(row.kind, row.kind)}, {over}{', synthetic' if row.synthetic else ''}"


_COLUMNS: tuple[Column[BackgroundRow], ...] = (
    *place_columns(),
    Column("flow", lambda row: row.flow),
    Column("what it offers", _offer_text),
    Column("from", lambda row: row.source),
    Column("to", lambda row: row.destination),
    Column("goodput", lambda row: "unknown" if row.goodput_bps is None else rate_text(row.goodput_bps)),
    Column(
        "share of the link's rate", lambda row: "unknown" if row.wire_share is None else percent_text(row.wire_share)
    ),
)


def background_rows(run: Run) -> list[BackgroundRow]:
    """Return a row for each variant and flow, in the run's order."""
    flows: dict[tuple[int, str, str], tuple[StoredTrial, dict[str, Any]]] = {}
    goodputs: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    wire: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for rows_of in run.rows.values():
        trial, received, counters = rows_of.trial, rows_of.background_samples, rows_of.link_samples
        for flow in trial.facts.get("background") or ():
            window = rows_of.window
            key = (trial.point, trial.variant, str(flow["name"]))
            flows.setdefault(key, (trial, flow))
            if window is None or not window.length_ns:
                continue
            own = received[(received["flow"] == flow["name"]).to_numpy(bool)]
            goodputs[key].append(_rate_bps(own, "received_bytes", window))
            sent = counters[
                (counters["scope"] == BACKGROUND).to_numpy(bool)
                & (counters["source"] == flow["hosts"][0]).to_numpy(bool)
            ]
            wire[key].append(_rate_bps(sent, "wire_bytes", window))
    rows = []
    for key, (trial, flow) in flows.items():
        rate_bps = _link_rate_bps(trial, flow["source"], flow["destination"])
        rows.append(
            BackgroundRow(
                trial.where,
                trial.variant,
                str(flow["name"]),
                flow["kind"],
                bool(flow["synthetic"]),
                flow["protocol"],
                int(flow["connections"]),
                flow["source"],
                flow["destination"],
                median(goodputs[key]) if goodputs[key] else None,
                median(wire[key]) / rate_bps if wire[key] and rate_bps else None,
            )
        )
    return rows


def _rate_bps(samples: pd.DataFrame, column: str, window: Window) -> float:
    """Return the growth of a counter in the window, over all connections, in bit/s."""
    total = 0.0
    keys = [name for name in ("connection", "destination") if name in samples.columns]
    for _, own in samples.groupby(keys, sort=False):
        ordered = own.sort_values("time_ns", kind="stable")
        times_ns, counts = (ordered[name].to_numpy(np.float64) for name in ("time_ns", column))
        before, after = np.interp([window.start_ns, window.end_ns], times_ns, counts, left=0)
        total += after - before
    return total * 8e9 / window.length_ns


def _link_rate_bps(trial: StoredTrial, source: str, destination: str) -> float | None:
    rates = configured_rates(trial.manifest, trial.point).get((source, destination))
    return None if rates is None else rates.link_bps
