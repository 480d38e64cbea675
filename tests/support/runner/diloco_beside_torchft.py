"""What torchft's DiLoCo and wanbed's left of the same training on the same links: losses, bytes and times."""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from wanbed.results.reading.run import Run
from wanbed.results.records.run_store import slug
from wanbed.results.records.span_log import ALL_REDUCE, ITERATION
from wanbed.testbed.network.goodput import tcp_goodput_bps

REPLICAS, SYNC_EVERY, SYNCHRONISATIONS = 2, 4, 3
PARAMETER_BYTES = 16 * 2**20
CLOSED_FORM_BYTES = 2 * (REPLICAS - 1) / REPLICAS * PARAMETER_BYTES
"""What a replica sends in a synchronisation."""

_OPTIMIZER = "optimizer"


@dataclass(frozen=True)
class Synchronised:
    """One variant's training.

    ``losses`` are those of each replica in each iteration. ``sent_bytes`` is what each replica sends for a
    synchronisation, TCP's headers taken off. ``durations_s`` is by how much longer each iteration took that
    synchronises than the others: from when the last replica was ready until all went on.
    """

    losses: tuple[tuple[float, ...], ...]
    sent_bytes: tuple[float, ...]
    durations_s: tuple[float, ...]


def synchronised(run: Run, variant: str) -> Synchronised:
    """Return what a variant of the experiment ``diloco-beside-torchft`` left, of wanbed's or of torchft's."""
    ends_ns = _iteration_ends_ns(run, variant)
    samples = run.link_samples[(run.link_samples["variant"] == variant) & (run.link_samples["scope"] == "node_pair")]
    sent_bytes = []
    for _, own in samples.groupby(["source", "destination"], observed=True):
        begin, end = np.interp((ends_ns[0], ends_ns[-1]), own["time_ns"], own["wire_bytes"])
        sent_bytes.append(float(end - begin) * tcp_goodput_bps(1) / SYNCHRONISATIONS)
    # The first iteration has no begin, so that number n is entry n - 1.
    durations_s = np.array([after - before for before, after in pairwise(ends_ns)]) / 1e9
    synchronise = slice(SYNC_EVERY - 2, None, SYNC_EVERY)
    alone_s = float(np.median(np.delete(durations_s, synchronise)))
    return Synchronised(
        _losses(run, variant), tuple(sent_bytes), tuple(float(each) - alone_s for each in durations_s[synchronise])
    )


def _iteration_ends_ns(run: Run, variant: str) -> list[int]:
    """Return when the last replica had ended each iteration, its synchronisation included."""
    spans = run.spans[run.spans["variant"] == variant]
    kinds = {ITERATION} if (spans["kind"] == ITERATION).any() else {_OPTIMIZER, ALL_REDUCE}
    ends_ns: pd.Series[int] = spans[spans["kind"].isin(kinds)].groupby("iteration")["end_ns"].max()
    return [int(each) for each in ends_ns]


def _losses(run: Run, variant: str) -> tuple[tuple[float, ...], ...]:
    own = run.losses[run.losses["variant"] == variant].sort_values("iteration")
    if len(own):
        return tuple(tuple(own.loc[own["pipeline"] == replica, "loss"]) for replica in range(REPLICAS))
    return tuple(
        tuple(float(loss) for loss in re.findall(r"loss (\S+)", path.read_text()))
        for path in _printed(run.path, variant)
    )


def _printed(run: Path, variant: str) -> list[Path]:
    return [
        run / f"trials/point-000/{slug(variant)}/repeat-0/output/rank-{replica}.stdout" for replica in range(REPLICAS)
    ]
