"""Bound the virtual time until a trial of a run must have ended: a run beyond it is stuck.

The bound is that of a trial in which everything happens one after the other; no trial that makes progress is slower.
It need not be sharp: a run that is stuck reaches any bound soon, because nothing slows its clock down.
"""

from math import sqrt

from runner.resolve.connection_count import window_bps
from runner.resolve.experiment import Experiment, SweepPoint
from runner.resolve.resolved_variant import ResolvedVariant

BESIDE_TRIALS_S = 3600.0
"""Time for bring-up, calibration and whatever else a run does in virtual time without a trial."""
MARGIN = 3
_SEGMENT_BITS = 8 * 1448
_ROUND_TRIPS = 30
"""Round trips of a transfer beyond its bytes: slow start up to any window that fits in memory, and acknowledgement."""


def quiet_patience_s(experiment: Experiment) -> float:
    """Return the virtual seconds for which a run of this experiment may go without a trial's end."""
    trials = [serial_trial_s(point, variant) for point in experiment.points() for variant in point.variants]
    return BESIDE_TRIALS_S + MARGIN * max(trials, default=0.0)


def serial_trial_s(point: SweepPoint, variant: ResolvedVariant) -> float:
    """Return the most seconds that one trial takes: all GPUs in turn, then all transfers over the slowest path."""
    work = variant.work
    seconds_per_bit, rtt_s = _slowest_path(point, variant)

    def transfer_s(size_bytes: int) -> float:
        return 8 * size_bytes * seconds_per_bit + _ROUND_TRIPS * rtt_s

    computing_s = (sum(work.forward_ns) + sum(work.backward_ns) + sum(work.recompute_ns)) / 1e9
    crossing_s = sum(2 * transfer_s(size_bytes) for size_bytes in work.activation_bytes)
    summing_s = sum(2 * variant.pipelines * transfer_s(size_bytes) for size_bytes in work.gradient_bytes)
    microbatches_s = variant.microbatches * (computing_s + crossing_s)
    iteration_s = variant.pipelines * (microbatches_s + sum(work.optimizer_ns) / 1e9 + summing_s)
    return point.spec.training.iterations * iteration_s


def _slowest_path(point: SweepPoint, variant: ResolvedVariant) -> tuple[float, float]:
    """Return the most seconds for a bit, and for a round trip, of one connection between any two ranks."""
    topology, home = point.topology, point.topology.datacenters[0].name
    paths = [topology.path(home, home)]
    paths += [topology.path(one.datacenter, other.datacenter) for one, other in variant.pairs]
    rtt_s = 2 * max(path.latency_ns + 4 * path.impairments.delay_spread_ns for path in paths) / 1e9
    slowest = [1 / window_bps(variant.transport, point.spec.clock, path.latency_ns) for path in paths]
    slowest += [1 / path.pair_rate_bps for path in paths if path.pair_rate_bps is not None]
    # Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", 1997.
    slowest += [rtt_s * sqrt(2 * path.impairments.loss / 3) / _SEGMENT_BITS for path in paths]
    return max(slowest), rtt_s
