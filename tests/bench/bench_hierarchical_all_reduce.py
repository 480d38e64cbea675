"""How long an all-reduce over the WAN takes hierarchically and in one ring: 3 datacenters of 4 replicas.

Emulated with real TCP in virtual time, where no load of this machine counts, and simulated. Of A bytes every hop of the
ring carries 2 x 11/12 A; a node pair of the hierarchical one carries 2 x 2/3 x A/4. With equal node pairs that is 5.5
times less.
"""

from pathlib import Path

import wanbed

REPEATS = 3
EXPERIMENT = wanbed.Experiment(
    name="hierarchical-all-reduce",
    topology={
        "datacenters": [{"name": name, "hosts": 4} for name in ("east", "central", "west")],
        "intra": {"latency": "50us", "rate": "1Gbit"},
        "wan": {"latency": "20ms", "node_pair_rate": "20Mbit"},
    },
    compute={"kind": "replay", "forward": "10ms", "backward": "20ms", "gradient": "4MiB"},
    training={"stages": 1, "pipelines": 12, "microbatches": 1, "iterations": 3, "warmup": 1},
    variants=[
        {"name": "ring", "schedule": "dp", "transport": {"connections": 4}},
        {"name": "hierarchical", "schedule": "dp", "transport": {"connections": 4, "all_reduce": "hierarchical"}},
    ],
    repeats=REPEATS,
    clock="virtual",
)


def medians_s(run: wanbed.Run) -> dict[str, float]:
    """Return the median iteration time of each variant over its repeats."""
    medians = run.summary.groupby("variant")["iteration_time_s"].median()
    return {str(variant): float(median_s) for variant, median_s in medians.items()}


def test_hierarchical_beats_the_ring_over_the_wan(tmp_path: Path) -> None:
    simulated = medians_s(wanbed.simulate(EXPERIMENT, runs=tmp_path))
    emulated = medians_s(wanbed.run(EXPERIMENT, runs=tmp_path))
    for engine, medians in (("simulated", simulated), ("emulated", emulated)):
        ratio = medians["ring"] / medians["hierarchical"]
        times = ", ".join(f"{variant} {median_s:.3f} s" for variant, median_s in medians.items())
        print(f"\n{engine}: {times}: {ratio:.2f} times shorter")
        assert ratio > 2.5
