"""Measure the traffic that crossed the WAN."""

import numpy as np
import pandas as pd

from results.metrics.iterations import NS_PER_S, Window


def wan_bytes(spans: pd.DataFrame, link_samples: pd.DataFrame) -> int | None:
    """Return the bytes sent over the WAN during the whole trial, including warm-up and headers.

    It is the sum over directed links of the last sample minus the first. None if the trial spans several datacenters
    but no link was sampled.
    """
    of_link = (link_samples["scope"] == "link").to_numpy(bool)
    if not of_link.any():
        return None if spans["datacenter"].nunique() > 1 else 0
    sources, destinations = (pd.factorize(link_samples[end])[0][of_link] for end in ("source", "destination"))
    link = sources * (int(destinations.max()) + 1) + destinations
    order = np.lexsort((link_samples["time_ns"].to_numpy(np.int64)[of_link], link))
    counts = link_samples["wire_bytes"].to_numpy(np.int64)[of_link][order]
    last = np.append(np.diff(link[order]) != 0, True)
    return int((counts[last] - counts[np.roll(last, 1)]).sum())


def wan_goodput_bps(spans: pd.DataFrame, window: Window) -> float | None:
    """Return the payload received from other datacenters per second of the window, in bit/s, over all links.

    Counts the receive spans that end within the window and whose sender is in another datacenter. None if the window
    is empty.
    """
    if not window.length_ns:
        return None
    end_ns = spans["end_ns"].to_numpy(np.int64)
    received = (spans["kind"] == "receive").to_numpy(bool) & (window.start_ns <= end_ns) & (end_ns <= window.end_ns)
    hosts, names = pd.factorize(spans["host"])
    datacenters = pd.factorize(spans["datacenter"])[0]
    home = np.full(len(names) + 1, -1)
    home[hosts] = datacenters
    # A peer without a span gets index -1: the last entry, which is in no datacenter.
    sender = pd.Index(names).get_indexer(spans["peer"][received])
    crossed = home[sender] != datacenters[received]
    return float(spans["size_bytes"].to_numpy(np.int64)[received][crossed].sum()) * 8 * NS_PER_S / window.length_ns
