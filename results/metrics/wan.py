"""Measure the traffic that crossed the WAN."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics.intervals import is_among, text_codes
from wanbed.results.metrics.iterations import NS_PER_S, Window, counted_spans
from wanbed.results.records.span_log import COLLECTIVE_KINDS

Ends = tuple[str, str]
"""The sending and the receiving datacenter of a WAN link."""


def wan_bytes(spans: pd.DataFrame, link_samples: pd.DataFrame) -> int | None:
    """Return the bytes sent over the WAN during the whole trial, including warm-up and headers.

    It is the sum over directed links of the last sample minus the first. None if the trial spans several datacenters
    but no link was sampled.
    """
    sent_bytes = wan_bytes_by_link(spans, link_samples)
    return None if sent_bytes is None else sum(sent_bytes.values())


def wan_bytes_by_link(spans: pd.DataFrame, link_samples: pd.DataFrame) -> dict[Ends, int] | None:
    """Return the bytes sent over each direction of a WAN link, by its ends, and None, as ``wan_bytes`` does."""
    of_link = (link_samples["scope"] == "link").to_numpy(bool)
    if not of_link.any():
        return None if spans["datacenter"].nunique() > 1 else {}
    (sources, source_names), (destinations, names) = (
        pd.factorize(link_samples[end]) for end in ("source", "destination")
    )
    link = (sources * len(names) + destinations)[of_link]
    order = np.lexsort((link_samples["time_ns"].to_numpy(np.int64)[of_link], link))
    counts = link_samples["wire_bytes"].to_numpy(np.int64)[of_link][order]
    last = np.append(np.diff(link[order]) != 0, True)
    sent_bytes = (counts[last] - counts[np.roll(last, 1)]).tolist()
    ends = (divmod(number, len(names)) for number in link[order][last].tolist())
    return {
        (str(source_names[source]), str(names[destination])): size
        for (source, destination), size in zip(ends, sent_bytes, strict=True)
    }


def wan_bytes_within(link_samples: pd.DataFrame, window: Window) -> tuple[int, int] | None:
    """Return the fewest and the most bytes that can have been sent over the WAN within the window, headers included.

    Counters are read now and then: what lies between two readings may have been sent at any time between them. The
    fewest are those between the readings inside the window, the most those between the readings around it. None if
    some link was not read after the window's end.
    """
    links = link_samples[(link_samples["scope"] == "link").to_numpy(bool)]
    if links.empty:
        return None
    fewest = most = 0
    for _, own in links.sort_values("time_ns", kind="stable").groupby(["source", "destination"]):
        time_ns, counts = own["time_ns"].to_numpy(np.int64), own["wire_bytes"].to_numpy(np.int64)
        if time_ns[-1] < window.end_ns:
            return None
        before, inside = (
            np.searchsorted(time_ns, window.start_ns, "right") - 1,
            np.searchsorted(time_ns, window.start_ns),
        )
        until, after = np.searchsorted(time_ns, window.end_ns, "right") - 1, np.searchsorted(time_ns, window.end_ns)
        # Counters are 0 at the trial's start.
        most += int(counts[after] - (counts[before] if before >= 0 else 0))
        fewest += max(int(counts[until] - counts[inside]), 0) if until >= 0 else 0
    return fewest, most


def wan_goodput_bps(
    spans: pd.DataFrame, window: Window, all_reduce_ratio: Sequence[float] | None = None
) -> float | None:
    """Return the payload that crossed between datacenters per second of the window, in bit/s, over all links.

    Counts what was received from other datacenters, and of what replicas summed ``all_reduce_ratio`` of their stage: of
    the window's iterations, or what ended within a window of others. None if the window is empty, or if something was
    summed by replicas in several datacenters and the ratio is not known.
    """
    if not window.length_ns:
        return None
    counted = counted_spans(spans, window)
    summed_bytes = _summed_bytes(spans, counted, all_reduce_ratio)
    if summed_bytes is None:
        return None
    received = is_among(spans["kind"], ("receive",)) & counted
    hosts, names = text_codes(spans["host"])
    datacenters, _ = text_codes(spans["datacenter"])
    home = np.full(len(names) + 1, -1)
    home[hosts] = datacenters
    peers, peer_names = text_codes(spans["peer"])
    # A peer without a span gets index -1: the last entry, which is in no datacenter.
    number = {name: position for position, name in enumerate(names)}
    sender = np.array([number.get(name, -1) for name in peer_names], np.int64)[peers[received]]
    crossed = home[sender] != datacenters[received]
    received_bytes = float(spans["size_bytes"].to_numpy(np.int64)[received][crossed].sum())
    return (received_bytes + summed_bytes) * 8 * NS_PER_S / window.length_ns


def _summed_bytes(spans: pd.DataFrame, counted: npt.NDArray[np.bool_], ratios: Sequence[float] | None) -> float | None:
    """Return what crossed between datacenters of the collectives that are counted; None if it is not known."""
    summing = is_among(spans["kind"], COLLECTIVE_KINDS) & counted
    if not summing.any():
        return 0.0
    own = spans[summing]
    if ratios is None:
        return None if own["datacenter"].nunique() > 1 else 0.0
    # Each replica of a stage has summed the same bytes.
    stages = [rows for _, rows in own.groupby("stage")]
    return float(
        sum(rows["size_bytes"].sum() / rows["rank"].nunique() * ratios[rows["stage"].iloc[0]] for rows in stages)
    )
