"""Compute the throughput of each directed link over time: its counter's growth in equal bins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.records.schema import BACKGROUND

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinkRates:
    """The mean rate of one directed link in each of several consecutive bins of equal length.

    ``edges_ns`` has one more entry than ``rates_bps``. The sum of the rates times the bin length is the bits sent.
    """

    edges_ns: Numbers
    rates_bps: Numbers


def link_rates(
    link_samples: pd.DataFrame, until_ns: int, bins: int, shortest_ns: int = 0, scope: str = "link"
) -> dict[tuple[str, str], LinkRates]:
    """Return the rates of every directed link, or ``node_pair``, of one trial, from its first sample to ``until_ns``.

    The keys are (source, destination). The counter is interpolated linearly between samples. There are at most
    ``bins`` bins, fewer if they would be shorter than the mean time between samples or than ``shortest_ns``; one bin
    is always left. Links with fewer than two samples are left out.
    """
    found = {}
    for link, times_ns, sent in _counters(link_samples, scope):
        end_ns = max(float(until_ns), times_ns[-1])
        if len(times_ns) < 2 or end_ns <= times_ns[0]:
            continue
        most = max(1, int((end_ns - times_ns[0]) // shortest_ns)) if shortest_ns else bins
        edges_ns = np.linspace(times_ns[0], end_ns, min(bins, most, len(times_ns) - 1) + 1)
        found[link] = LinkRates(edges_ns, _rates_bps(edges_ns, times_ns, sent))
    return found


def background_rates(
    link_samples: pd.DataFrame, flows: Sequence[Mapping[str, Any]], until_ns: int, bins: int, shortest_ns: int
) -> dict[tuple[str, str], LinkRates]:
    """Return the rate of all flows in the background together over each directed link; {} if there were none.

    ``flows`` are those that the trial's facts list; the other arguments are those of ``link_rates``.
    """
    rates = link_rates(link_samples, until_ns, bins, shortest_ns, scope=BACKGROUND)
    found: dict[tuple[str, str], LinkRates] = {}
    for flow in flows:
        own = rates.get((str(flow["hosts"][0]), str(flow["hosts"][1])))
        link = str(flow["source"]), str(flow["destination"])
        if own is not None:
            # All flows are sampled at the same times, and so have the same bins.
            found[link] = LinkRates(own.edges_ns, own.rates_bps + (found[link].rates_bps if link in found else 0.0))
    return found


def rates_within(
    link_samples: pd.DataFrame, edges_ns: Mapping[tuple[str, str], Numbers]
) -> dict[tuple[str, str], Numbers]:
    """Return the rates of one trial's directed links in bit/s, in given bins, for example those of another trial."""
    return {
        link: _rates_bps(edges_ns[link], times_ns, sent)
        for link, times_ns, sent in _counters(link_samples)
        if link in edges_ns
    }


def _counters(link_samples: pd.DataFrame, scope: str = "link") -> Iterator[tuple[tuple[str, str], Numbers, Numbers]]:
    """Yield every directed link, or ``node_pair``, with the times in ns of its samples, and the bytes counted."""
    links = link_samples[(link_samples["scope"] == scope).to_numpy(bool)]
    for (source, destination), own in links.groupby(["source", "destination"], sort=False):
        ordered = own.sort_values("time_ns", kind="stable")
        times_ns, sent = (ordered[name].to_numpy(np.float64) for name in ("time_ns", "wire_bytes"))
        yield (str(source), str(destination)), times_ns, sent


def _rates_bps(edges_ns: Numbers, times_ns: Numbers, sent: Numbers) -> Numbers:
    rates_bps: Numbers = np.diff(np.interp(edges_ns, times_ns, sent)) * 8e9 / np.diff(edges_ns)
    return rates_bps
