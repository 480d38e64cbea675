"""Measure the goodput after slow start, from the later transfers of a flow."""

import numpy as np
import pandas as pd

from wanbed.results.metrics import Window
from wanbed.results.metrics.iterations import NS_PER_S


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
