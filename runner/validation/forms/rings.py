"""Check data parallelism against closed forms: in buckets, hierarchical, as a butterfly, chain or Gloo, uneven."""

from typing import Any

from wanbed.runner.simulator.simulation import Simulate, Simulation
from wanbed.runner.validation.case import ClosedForm, LawCheck, all_reduce_ns, chain, iteration_ns, simulated
from wanbed.workloads.compute.varied_durations import Distribution, DurationDraws, Jitter, Variation

MS = 1_000_000
_REPLICAS = ("north", "east", "south", "west")
_SHORT_FORWARD_MS, _BUCKETS, _RING_MS = 100, 4, 1500


def _buckets_ns(simulate: Simulate, backward_ms: int) -> int:
    """Return the iteration of 4 replicas that sum 4 buckets of 10 MB at 80 Mbit/s: 1.5 s each."""
    simulation = simulated(
        simulate,
        {"datacenters": [{"name": name, "hosts": 1} for name in _REPLICAS], "wan": {"node_pair_rate": "80Mbit"}},
        compute={"forward": f"{_SHORT_FORWARD_MS}ms", "backward": f"{backward_ms}ms", "gradient": "40MB"},
        training={"stages": 1, "pipelines": len(_REPLICAS), "microbatches": 1},
        variant={"schedule": "dp", "transport": {"all_reduce_overlap": True, "bucket": "10MB"}},
    )
    return iteration_ns(simulation)


def buckets_are_summed_while_others_are_computed(simulate: Simulate) -> LawCheck:
    """Check that of n equal buckets the k-th is complete after k/n of the backward, and is summed after the one before.

    With a ring time t of each bucket, the sums from bucket k on take (n - k + 1) t if none of them waits, so that an
    iteration lasts f + max over k of k b / n + (n - k + 1) t. This is linear in k: largest for the first or the last.
    The backward is short in one case, so that sums follow each other from the first bucket on, and long in the other,
    so that each is done before the next bucket is complete.
    """
    backwards_ms = (2000, 8000)
    return LawCheck(
        "4 buckets of 10 MB over 4 replicas at 80 Mbit/s beside a backward of 2 s, of 8 s",
        "f + max(b / n + n t, b + t), t = 2 (P - 1) / P x A / (n R)",
        tuple(
            (_SHORT_FORWARD_MS + max(backward_ms // _BUCKETS + _BUCKETS * _RING_MS, backward_ms + _RING_MS)) * MS
            for backward_ms in backwards_ms
        ),
        tuple(_buckets_ns(simulate, backward_ms) for backward_ms in backwards_ms),
    )


_DATACENTERS = ("north", "east", "south")
_HOSTS = 4

_INSIDE_MS, _ACROSS_MS, _LATENCY_MS = 900, 2000, 50
"""The time of a pass inside at 800 Mbit/s, 3/4 of 120 MB; and of 4/3 of 30 MB at 160 Mbit/s."""


def _hierarchical(simulate: Simulate, gradient: str, backward_ms: int, **transport: Any) -> Simulation:
    return simulated(
        simulate,
        {
            "datacenters": [{"name": name, "hosts": _HOSTS} for name in _DATACENTERS],
            "intra": {"latency": "0ns", "rate": "800Mbit"},
            "wan": {"node_pair_rate": "160Mbit", "latency": f"{_LATENCY_MS}ms"},
        },
        compute={"forward": "10ms", "backward": f"{backward_ms}ms", "gradient": gradient},
        training={"stages": 1, "pipelines": _HOSTS * len(_DATACENTERS), "microbatches": 1},
        variant={"schedule": "dp", "transport": {"all_reduce": "hierarchical", **transport}},
    )


def hierarchical_all_reduce(simulate: Simulate) -> LawCheck:
    """Check that of A bytes each of R replicas in a datacenter sums A / R with its counterparts in D datacenters.

    Before and after that, each sends (R - 1) / R x A inside, at P. A ring of all replicas would send
    2 (D R - 1) / (D R) x A over every hop, here for 11 s.
    """
    return LawCheck(
        "hierarchical all-reduce of 120 MB, 3 datacenters of 4, 800 Mbit/s inside, 160 across, 50 ms",
        "2 (R - 1) / R x A / P + 2 (D - 1) / D x A / (R W) + c",
        ((2 * _INSIDE_MS + _ACROSS_MS + _LATENCY_MS) * MS,),
        (all_reduce_ns(_hierarchical(simulate, "120MB", 10)),),
    )


def hierarchical_buckets(simulate: Simulate) -> LawCheck:
    """Check that buckets follow each other, each with all passes. The first of 2 is complete after half a backward."""
    backward_ms, bucket_ms = 1000, 2 * _INSIDE_MS + _ACROSS_MS + _LATENCY_MS
    return LawCheck(
        "two buckets of that size, beside a backward of 1 s",
        "f + b / 2 + 2 t",
        ((10 + backward_ms // 2 + 2 * bucket_ms) * MS,),
        (iteration_ns(_hierarchical(simulate, "240MB", backward_ms, all_reduce_overlap=True, bucket="120MB")),),
    )


def butterfly_all_reduce(simulate: Simulate) -> LawCheck:
    """Check that of A bytes each of P replicas sends every other one a part, and the sum of its own, at W.

    Without a rate only the two latencies are left.
    """
    return LawCheck(
        "butterfly of 40 MB over 4 replicas 50 ms apart, 80 Mbit/s between each two; without a rate",
        "2 A / (P W) + c, 2 c",
        ((2 * 1000 + _LATENCY_MS) * MS, 2 * _LATENCY_MS * MS),
        _with_and_without_a_rate_ns(simulate, "butterfly", "40MB"),
    )


def reduce_and_broadcast(simulate: Simulate) -> LawCheck:
    """Check that A bytes go once along a chain of P replicas, and then once back from the first, a piece p behind each.

    Without a rate only the latencies of its hops are left.
    """
    hops = 2 * (len(_REPLICAS) - 1)
    piece_ns = 256 * 1024 * 100
    return LawCheck(
        "reduce and broadcast of 10 MiB along 4 replicas 50 ms apart, 80 Mbit/s; without a rate",
        "2 A / W + 2 (P - 2) p / W + 2 (P - 1) c, 2 (P - 1) c",
        ((2 * 40 + hops - 2) * piece_ns + hops * _LATENCY_MS * MS, hops * _LATENCY_MS * MS),
        _with_and_without_a_rate_ns(simulate, "chain", f"{40 * 256}KiB"),
    )


def announced_chunks(simulate: Simulate) -> LawCheck:
    """Check that of Gloo's chunks, n in each of two passes, two are under way, each of which has been announced.

    Those of a pass follow each other where one takes longer than a round trip. Otherwise there are two in a round trip.
    """
    chunks = 3 * 4
    chunk_ns = 1024 * 1024 * 100
    return LawCheck(
        "all-reduce of 16 MiB as Gloo does it over 4 replicas 50 ms apart, 80 Mbit/s; without a rate",
        "2 (2 c + n p / W), 2 n c",
        (2 * (2 * _LATENCY_MS * MS + chunks * chunk_ns), 2 * chunks * _LATENCY_MS * MS),
        _with_and_without_a_rate_ns(simulate, "gloo", "16MiB"),
    )


def _with_and_without_a_rate_ns(simulate: Simulate, all_reduce: str, gradient: str) -> tuple[int, ...]:
    """Return how long an all-reduce between replicas takes at 80 Mbit/s between each two, and without a rate."""
    rates: tuple[dict[str, str], ...] = ({"node_pair_rate": "80Mbit"}, {})
    return tuple(
        all_reduce_ns(
            simulated(
                simulate,
                {
                    "datacenters": [{"name": name, "hosts": 1} for name in _REPLICAS],
                    "wan": {"latency": f"{_LATENCY_MS}ms", **rate},
                },
                compute={"forward": "10ms", "backward": "20ms", "gradient": gradient},
                training={"stages": 1, "pipelines": len(_REPLICAS), "microbatches": 1},
                variant={"schedule": "dp", "transport": {"all_reduce": all_reduce}},
            )
        )
        for rate in rates
    )


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


RINGS: tuple[ClosedForm, ...] = (
    buckets_are_summed_while_others_are_computed,
    hierarchical_all_reduce,
    hierarchical_buckets,
    butterfly_all_reduce,
    reduce_and_broadcast,
    announced_chunks,
)


DIFFERING_REPLICAS: tuple[ClosedForm, ...] = (
    straggler,
    varied_replicas,
    slower_stage,
)
