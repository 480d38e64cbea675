"""Gather the outcomes of a part, one for each sweep point and variant. Claims and tables are made from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from wanbed.results.metrics import Window
from wanbed.results.metrics.iterations import NS_PER_S
from wanbed.results.reading.headline import headline
from wanbed.results.reading.prefill import prefill_rows
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import LATENCY_PATH


def steady_goodput_bps(spans: pd.DataFrame, window: Window) -> float | None:
    """Return the median goodput of all flows in bit/s, from the arrival of a flow's middle transfer to its last one.

    A flow is what one host received from a host of another datacenter within one iteration of the window: either all
    activations or all gradients. Its first half is left out, because over many connections the first transfers overtake
    each other while windows open. Flows of fewer than two transfers are left out. Return None if no flow is left.
    """
    home = dict(zip(spans["host"], spans["datacenter"], strict=True))
    received = spans[
        (spans["kind"] == "receive") & (spans["end_ns"] >= window.start_ns) & (spans["end_ns"] <= window.end_ns)
    ]
    crossed = received[received["peer"].map(home) != received["datacenter"]]
    rates_bps = []
    for _, flow in crossed.groupby(["host", "peer", "tensor", "iteration"], observed=True):
        arrivals = flow.sort_values("end_ns")
        middle = (len(arrivals) - 1) // 2
        between_ns = int(arrivals["end_ns"].iloc[-1] - arrivals["end_ns"].iloc[middle])
        if between_ns > 0:
            rates_bps.append(int(arrivals["size_bytes"].iloc[middle + 1 :].sum()) * 8 * NS_PER_S / between_ns)
    return float(np.median(rates_bps)) if rates_bps else None


@dataclass(frozen=True)
class PartOutcome:
    """The outcome of one variant in one sweep point of one part.

    ``latency`` is the swept one-way WAN latency as written, "" if it was not swept. ``steady_goodput_bps`` comes from
    ``studies.paper.outcome``. ``deadline_overruns`` is how often training had to wait for prefill, None without
    prefill. Other values are None if they could not be measured.
    """

    part: str
    latency: str
    variant: str
    iteration_time_s: float | None
    gpu_utilization: float | None
    gpu_utilization_with_prefill: float | None
    steady_goodput_bps: float | None = None
    deadline_overruns: int | None = None
    calibrated: bool = True


def outcomes_of(part: str, run: Run) -> list[PartOutcome]:
    """Return one outcome for each sweep point and variant with a finished trial, in the order of the trials."""
    overruns = {
        (row.point, row.variant): None if row.overruns is None else row.overruns.count for row in prefill_rows(run)
    }
    goodput_bps: dict[tuple[int, str], float | None] = {}
    for own in run.rows.values():
        goodput = None if own.window is None else steady_goodput_bps(own.spans, own.window)
        goodput_bps[own.trial.point, own.trial.variant] = goodput
    return [
        PartOutcome(
            part,
            row.values.get(LATENCY_PATH, ""),
            row.variant,
            row.times.median_s,
            row.gpus.training,
            row.gpus.with_prefill,
            goodput_bps[row.point, row.variant],
            overruns.get((row.point, row.variant)),
            row.standing.calibrated,
        )
        for row in headline(run)
    ]


class Outcomes:
    """Look up the outcomes of all parts."""

    def __init__(self, outcomes: Iterable[PartOutcome]) -> None:
        self._by_key: Mapping[tuple[str, str, str], PartOutcome] = {
            (each.part, each.latency, each.variant): each for each in outcomes
        }

    def find(self, parts: str | Sequence[str], variant: str, latency: str = "") -> PartOutcome | None:
        """Return the outcome of a variant in the first of the parts that has it, None if nothing was measured.

        A part that does not sweep latency matches any ``latency``: it has the one of its file.
        """
        for part in (parts,) if isinstance(parts, str) else parts:
            for swept in (latency, ""):
                found = self._by_key.get((part, swept, variant))
                if found is not None and found.iteration_time_s is not None:
                    return found
        return None

    def variants(self, parts: Sequence[str], latency: str) -> list[str]:
        """Return the variants that were measured in these parts at that latency, in order of appearance."""
        return list(
            dict.fromkeys(variant for part, swept, variant in self._by_key if part in parts and swept in {latency, ""})
        )
