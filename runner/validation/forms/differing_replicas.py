"""Closed forms for GPUs whose compute times differ or vary: an iteration waits for the slowest.

As in ``wanbed.runner.validation.closed_forms``, all cases are ideal and all times whole nanoseconds.
"""

from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.case import LawCheck, chain, iteration_ns, simulated
from wanbed.workloads.compute.varied_durations import Distribution, DurationDraws, Jitter, Variation

MS = 1_000_000
_REPLICAS = ("north", "east", "south", "west")
_FORWARD_MS, _BACKWARD_MS, _MICROBATCHES = 20, 40, 4
_SUM_MS = 6000
"""2 (P - 1) / P x A / R of 40 MB over 4 replicas at 80 Mbit/s."""
_SPREAD = 0.1


def _data_parallel(simulate: Simulate, **compute: object) -> int:
    simulation = simulated(
        simulate,
        {
            "datacenters": [{"name": name, "hosts": 1} for name in _REPLICAS],
            "wan": {"node_pair_rate": "80Mbit"},
        },
        compute={"forward": f"{_FORWARD_MS}ms", "backward": f"{_BACKWARD_MS}ms", "gradient": "40MB", **compute},
        training={"stages": 1, "pipelines": len(_REPLICAS), "microbatches": _MICROBATCHES},
        variant={"schedule": "dp"},
    )
    return iteration_ns(simulation)


def straggler(simulate: Simulate) -> LawCheck:
    """Check data parallelism with one replica half as fast: the ring takes as long as ever, from when that one joins.

    Each replica sends 2 (P - 1) parts of 1/P over its own line. Until the last replica joins, the others can pass on
    only what does not depend on it. From then on its line is never idle: what it passes on next has come round by the
    time that its line is free.
    """
    compute_ms = _MICROBATCHES * (_FORWARD_MS + _BACKWARD_MS)
    return LawCheck(
        "data parallelism over 4 replicas, one of them half as fast",
        "2 M (f + b) + 2 (P - 1) / P x A / R",
        ((2 * compute_ms + _SUM_MS) * MS,),
        (_data_parallel(simulate, slower=[{"datacenter": "south", "factor": 2}]),),
    )


def varied_replicas(simulate: Simulate) -> LawCheck:
    """Check data parallelism with jitter: the ring begins when the replica with the largest sum of draws is ready."""
    sums_ns = []
    for pipeline in range(len(_REPLICAS)):
        jitter = Jitter(Distribution.GAMMA, _SPREAD)
        draws = DurationDraws(Variation(0, 0, pipeline, 0, _MICROBATCHES, jitter))
        sums_ns.append(
            sum(
                draws.duration_ns(0, kind, microbatch, usual_ms * MS)
                for kind, usual_ms in (("forward", _FORWARD_MS), ("backward", _BACKWARD_MS))
                for microbatch in range(_MICROBATCHES)
            )
        )
    return LawCheck(
        "the same, all alike, with a jitter of 10 %",
        "largest sum of draws + 2 (P - 1) / P x A / R",
        (max(sums_ns) + _SUM_MS * MS,),
        (_data_parallel(simulate, jitter={"distribution": "gamma", "spread": "10%"}),),
    )


def slower_stage(simulate: Simulate) -> LawCheck:
    """Check GPipe with another type of GPU in one stage: its f and b are the largest, and count M - 1 times more."""
    stages, microbatches, latency_ms, factor = 4, 8, 20, 1.5
    simulation = simulated(
        simulate,
        chain([latency_ms * MS] * (stages - 1)),
        compute={"forward": "20ms", "backward": "40ms", "slower": [{"host": "dc2-0", "factor": factor}]},
        training={"stages": stages, "microbatches": microbatches},
        variant={"schedule": "gpipe"},
    )
    expected_ms = (stages - 1) * 60 + microbatches * round(60 * factor) + 2 * (stages - 1) * latency_ms
    return LawCheck(
        "GPipe, S = 4, M = 8, c = 20 ms, one stage's GPU 1.5 times slower",
        "(S - 1)(f + b) + 1.5 M (f + b) + 2(S - 1)c",
        (expected_ms * MS,),
        (iteration_ns(simulation),),
    )
