"""Compute the longest virtual time until the next trial of a run must end. A run beyond it is stuck.

The bound assumes that everything in a trial runs one after the other; no trial that makes progress is slower. It may be
loose: a stuck run reaches any bound soon, because nothing slows down its clock.
"""

from math import sqrt

from wanbed.runner.resolve.connections import window_bps
from wanbed.runner.resolve.experiment import Experiment, SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant

BESIDE_TRIALS_S = 3600.0
"""Virtual time for bring-up, calibration and everything else outside trials."""
MARGIN = 3
_SEGMENT_BITS = 8 * 1448
_ROUND_TRIPS = 30
"""Additional round trips of a transfer: slow start up to any window that fits in memory, and acknowledgement."""


def quiet_patience_s(experiment: Experiment) -> float:
    """Return the most virtual seconds between the ends of two trials in a run of this experiment."""
    trials = [serial_trial_s(point, variant) for point in experiment.points() for variant in point.variants]
    return BESIDE_TRIALS_S + MARGIN * max(trials, default=0.0)


def serial_trial_s(point: SweepPoint, variant: ResolvedVariant) -> float:
    """Return an upper bound in seconds for one trial: all compute, then all transfers on the slowest path."""
    seconds_per_bit, rtt_s = _slowest_path(point, variant)

    def transfer_s(size_bytes: int) -> float:
        return 8 * size_bytes * seconds_per_bit + _ROUND_TRIPS * rtt_s

    return point.iterations(variant) * variant.serial_s(transfer_s)


def _slowest_path(point: SweepPoint, variant: ResolvedVariant) -> tuple[float, float]:
    """Return the most seconds per bit, and per round trip, of one connection between any two ranks."""
    topology, home = point.topology, point.topology.datacenters[0].name
    paths = [topology.path(home, home)]
    for one, other in variant.pairs:
        ends = (one.datacenter, other.datacenter)
        paths += [topology.path(*ends), topology.path(*ends[::-1])]
    longest_ns = max(path.latency_ns + 4 * path.impairments.delay_spread_ns for path in paths)
    rtt_s = 2 * longest_ns / 1e9
    slowest = [1 / window_bps(variant.transport, 2 * path.latency_ns) for path in paths]
    slowest += [1 / path.pair_rate_bps for path in paths if path.pair_rate_bps is not None]
    # Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997.
    slowest += [rtt_s * sqrt(2 * path.impairments.loss / 3) / _SEGMENT_BITS for path in paths]
    return max(slowest), rtt_s
