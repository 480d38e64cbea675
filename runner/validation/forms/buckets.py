"""Check all-reduces in buckets beside the last backward, in small cases with a closed form."""

from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.case import LawCheck, iteration_ns, simulated

_MS = 1_000_000
_REPLICAS = ("north", "east", "south", "west")
_FORWARD_MS, _BUCKETS, _RING_MS = 100, 4, 1500


def _iteration_ns(simulate: Simulate, backward_ms: int) -> int:
    """Return the iteration of 4 replicas that sum 4 buckets of 10 MB at 80 Mbit/s: 1.5 s each."""
    simulation = simulated(
        simulate,
        {"datacenters": [{"name": name, "hosts": 1} for name in _REPLICAS], "wan": {"node_pair_rate": "80Mbit"}},
        compute={"forward": f"{_FORWARD_MS}ms", "backward": f"{backward_ms}ms", "gradient": "40MB"},
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
            (_FORWARD_MS + max(backward_ms // _BUCKETS + _BUCKETS * _RING_MS, backward_ms + _RING_MS)) * _MS
            for backward_ms in backwards_ms
        ),
        tuple(_iteration_ns(simulate, backward_ms) for backward_ms in backwards_ms),
    )
