"""Replicas that differ, and times that vary: simulated spans have exactly the durations that a replayed rank takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.runner.small_experiment import sweep_point
from wanbed.results.records.span_log import COMPUTE_KINDS, NO_MICROBATCH
from wanbed.runner.emulation.rank_configs import SharedConfig, configure_ranks
from wanbed.runner.resolve.equal_parts import equal_parts
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.testbed.network.address_book import AddressBook
from wanbed.workloads.compute.replay import ReplayCompute
from wanbed.workloads.rank_config import RankConfig, read_rank_config
from wanbed.workloads.schedules.action import Action, ActionKind

SCHEDULES = ("gpipe", "1f1b", "varuna", "zb-h1", "atlas", "dp")
JITTERS: tuple[dict[str, Any], ...] = (
    {"distribution": "normal", "spread": "10%"},
    {"distribution": "gamma", "spread": "50%"},
)
SLOWER: tuple[dict[str, Any], ...] = (
    {"datacenter": "west", "factor": 1.6},
    {"host": "east-0", "factor": 0.7},
    {"pipeline": 1, "stage": 0, "factor": 3},
)


def point(compute: dict[str, Any], schedule: str = "gpipe", **sections: Any) -> SweepPoint:
    return sweep_point(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 6}, {"name": "west", "hosts": 6}],
                "wan": {"latency": "3ms", "node_pair_rate": "100Mbit"},
            },
            "compute": {
                "forward": "5ms",
                "recompute": "0ms" if schedule in {"zb-h1", "dp"} else "2ms",
                "optimizer": "1ms",
                "activation": "10KiB",
                "gradient": "20KiB",
                **compute,
            },
            "training": {"stages": 2, "pipelines": 3, "microbatches": 4, "iterations": 2, "warmup": 0},
            "variants": [{"name": "only", "schedule": schedule}],
            **sections,
        }
    )


def simulated(own: SweepPoint, repeat: int = 0, *, symmetry: bool = True) -> Simulation:
    variant = own.variants[0].in_repeat(repeat)
    return simulate_variant(own.topology, variant, own.spec.training.iterations, symmetry=symmetry)


@contextmanager
def clock_of_sleeps() -> Iterator[None]:
    """Let time pass only where somebody sleeps, to the nanosecond."""
    now_ns = 0

    def sleep(duration_s: float) -> None:
        nonlocal now_ns
        now_ns += round(duration_s * 1e9)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic_ns", lambda: now_ns)
        patch.setattr(time, "sleep", sleep)
        yield


def replayed_ns(config: RankConfig, kind: str, iteration: int, microbatch: int) -> int:
    """Return how long the rank of that configuration takes for one action."""
    compute = ReplayCompute(config.compute.costs, lambda: None)
    compute.begin(iteration)
    done = present(
        compute.update() if microbatch == NO_MICROBATCH else compute.perform(Action(ActionKind(kind), microbatch))
    )
    return done[1] - done[0]


def rank_configs(own: SweepPoint, repeat: int, folder: Path) -> list[RankConfig]:
    """Return the configurations of all ranks of an emulated trial, as the ranks read them."""
    variant = own.variants[0].in_repeat(repeat)
    connections = {(one.host.name, other.host.name): 1 for pair in variant.pairs for one, other in (pair, pair[::-1])}
    setting = SharedConfig(AddressBook(own.topology, slot=3), connections, 1.0, "00" * 16, 0, folder, 1)
    configs = configure_ranks(own, variant, setting)
    for config in configs:
        config.write(folder / f"{config.rank}.json")
    return [read_rank_config(folder / f"{config.rank}.json") for config in configs]


@settings(max_examples=12, deadline=None)
@given(
    schedule=st.sampled_from(SCHEDULES),
    slower=st.lists(st.sampled_from(SLOWER), unique_by=str),
    jitter=st.sampled_from((None, *JITTERS)),
    seed=st.integers(0, 2**40),
    repeat=st.integers(0, 3),
)
def test_a_simulated_span_lasts_as_long_as_a_replayed_rank_takes(
    *,
    schedule: str,
    slower: list[dict[str, Any]],
    jitter: dict[str, Any] | None,
    seed: int,
    repeat: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    training = {"stages": 1 if schedule == "dp" else 2, "pipelines": 3, "microbatches": 4, "iterations": 2, "warmup": 0}
    if schedule == "dp":
        slower = [{"pipeline": 1, "factor": 1.5}] if slower else []
    compute = {"slower": slower, **({} if jitter is None else {"jitter": jitter})}
    own = point(compute, schedule, seed=seed, training=training)
    configs = rank_configs(own, repeat, tmp_path_factory.mktemp("ranks"))
    spans = simulated(own, repeat).spans
    computes = np.isin(spans.kind, [KIND_CODES[kind] for kind in COMPUTE_KINDS])
    kinds = {code: kind for kind, code in KIND_CODES.items()}
    columns = (spans.rank, spans.kind, spans.iteration, spans.microbatch, spans.end_ns - spans.start_ns)
    assert computes.any()
    with clock_of_sleeps():
        for rank, kind, iteration, microbatch, lasted_ns in zip(
            *(each[computes].tolist() for each in columns), strict=True
        ):
            assert lasted_ns == replayed_ns(configs[rank], kinds[kind], iteration, microbatch)


def test_the_same_seed_gives_the_same_bytes_and_another_repeat_others() -> None:
    first, again, other = (simulated(point({"jitter": JITTERS[0]}, seed=5), repeat) for repeat in (0, 0, 1))
    for name in ("rank", "kind", "iteration", "microbatch", "start_ns", "end_ns"):
        assert np.array_equal(getattr(first.spans, name), getattr(again.spans, name))
    assert not np.array_equal(first.spans.end_ns, other.spans.end_ns)


def test_all_variants_draw_the_same_times() -> None:
    def forwards_ns(schedule: str) -> dict[tuple[int, int, int], int]:
        spans = simulated(point({"jitter": JITTERS[0]}, schedule)).spans
        own = spans.kind == KIND_CODES["forward"]
        keys = zip(spans.rank[own].tolist(), spans.iteration[own].tolist(), spans.microbatch[own].tolist(), strict=True)
        return dict(zip(keys, (spans.end_ns - spans.start_ns)[own].tolist(), strict=True))

    assert forwards_ns("gpipe") == forwards_ns("1f1b") == forwards_ns("varuna")


@pytest.mark.parametrize(
    ("compute", "parts"),
    [
        ({}, 3),
        ({"slower": [SLOWER[0]]}, 3),
        ({"slower": [SLOWER[1]]}, 1),
        ({"slower": [{"pipeline": 2, "factor": 1.0}]}, 3),
        ({"jitter": JITTERS[0]}, 1),
        ({"jitter": {"spread": "0%"}}, 3),
    ],
)
def test_parts_are_equal_if_their_gpus_take_the_same_times(compute: dict[str, Any], parts: int) -> None:
    assert equal_parts(point(compute).variants[0]) == parts


def test_one_of_several_equal_parts_stands_for_all_where_stages_differ() -> None:
    own = point({"slower": [SLOWER[0]]})
    one, every = simulated(own).spans, simulated(own, symmetry=False).spans
    for name in ("rank", "kind", "iteration", "microbatch", "start_ns", "end_ns", "size_bytes", "peer"):
        assert np.array_equal(getattr(one, name), getattr(every, name))


def test_a_dilated_rank_takes_its_drawn_times_as_much_longer() -> None:
    variant = point({"jitter": JITTERS[0], "slower": [SLOWER[2]]}).variants[0]
    with clock_of_sleeps():
        times_ns = []
        for dilation in (1.0, 4.0):
            compute = ReplayCompute(variant.costs(1, 0, dilation), lambda: None)
            compute.begin(0)
            start_ns, end_ns = compute.perform(Action(ActionKind.FORWARD, 3))
            times_ns.append(end_ns - start_ns)
    assert times_ns[1] == pytest.approx(4 * times_ns[0], abs=4)
