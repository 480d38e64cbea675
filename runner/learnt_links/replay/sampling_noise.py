"""Take from a fitted cross traffic the part of its variation that is only sampling noise.

A piece of the series rests on few packets, so the series varies more than the traffic did, and its largest pieces would
build queues that never were. Its distance from its mean is reduced to the share with which a replay of the fitted log
comes nearest to what the log says.
"""

from dataclasses import replace

import numpy as np

from wanbed.runner.learnt_links.fit.fitted_link import FittedLink
from wanbed.runner.learnt_links.logs.packet_log import PacketLog
from wanbed.runner.learnt_links.replay.link_models import ReplayedLink, with_cross_traffic
from wanbed.runner.learnt_links.replay.outcome import outcome_of

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.25, 0.0)


def without_sampling_noise(link: FittedLink, log: PacketLog, seed: int) -> FittedLink:
    """Return the link with the share of its cross traffic's variation that reproduces best the log it was fitted to."""
    truth, model, cross = outcome_of(log), ReplayedLink.of(link), link.cross_traffic
    mean_bps = cross.rate_bps.mean()
    # None is rounded to above what the line carries.
    most_bps = cross.rate_bps.max()
    series = [np.minimum(mean_bps + share * (cross.rate_bps - mean_bps), most_bps) for share in SHARES]
    best = min(
        series,
        key=lambda each: with_cross_traffic(model, log, each, cross.piece_ns, seed).error_ns(truth),
    )
    return replace(link, cross_traffic=replace(cross, rate_bps=best))
