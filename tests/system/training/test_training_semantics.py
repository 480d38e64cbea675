"""Whatever schedules it and however it is sent, training is the training that one process would do.

A tiny GPT in fp32, 2 pipelines of 4 stages over 3 emulated datacenters, 3 iterations: losses and gradients are compared
with those of the whole model trained by plain torch, whose relative error may be 1e-5. Each variant is a trial of a
run, started as a user would, but that its ranks are forked from a process that has loaded torch: a hundred of them load
it in minutes.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from tests.support.present import present
from tests.support.workloads.reference_training import ReferenceTraining, relative_error, train_reference
from tests.system.training.forked_ranks import trained
from wanbed.results.metrics import gpu_busy, iteration_windows, measured_window, successive_windows
from wanbed.results.reading.run import Run
from wanbed.results.records.run_store import slug
from wanbed.results.records.span_log import COMPUTE_KINDS
from wanbed.workloads.gpt.gpt_config import GptConfig

CONFIG = GptConfig(layers=4, hidden=128, context=128, heads=4, vocabulary=256)
STAGES, PIPELINES, MICROBATCHES, ITERATIONS, SEED, LEARNING_RATE = 4, 2, 4, 3, 7, 3e-4
TOLERANCE = 1e-5
WHOLE = {"stages": 1, "pipelines": 8, "microbatches": 1}
HALVES: dict[str, Any] = {
    "training": {"stages": 2, "pipelines": 4, "microbatches": 2, "virtual_stages": 2},
    # The first stage of every pipeline in the east, so that all that its virtual stages send crosses the WAN.
    "placement": [["east", "central"]] * 2 + [["east", "west"]] * 2,
}
MANY = {"connections": 4}
SHARED = {"connections": 2, "sharing": "temporal", "pipelines_per_cell": 2}

OURS: Mapping[str, dict[str, Any]] = {
    "gpipe": {"schedule": "gpipe"},
    "1f1b, many connections": {"schedule": "1f1b", "transport": MANY},
    "eager-1f1b, shared": {"schedule": "eager-1f1b", "transport": SHARED},
    "varuna, shared, sends that block": {"schedule": "varuna", "transport": {**SHARED, "overlap": False}},
    "zb-h1, many connections": {"schedule": "zb-h1", "transport": MANY},
    "zb-2p, shared": {"schedule": "zb-2p", "transport": SHARED},
    "atlas": {"schedule": "atlas", "options": {"split": "never"}, "transport": SHARED},
    "atlas, split": {"schedule": "atlas", "options": {"split": "always"}, "transport": SHARED},
    "dp": {"schedule": "dp", "training": WHOLE},
    "interleaved-1f1b, many connections": {"schedule": "interleaved-1f1b", "transport": MANY, **HALVES},
    "zb-v, many connections": {"schedule": "zb-v", "transport": MANY, **HALVES},
    # The second stage has two replicas in central and two in west; those of the first are in one datacenter.
    "1f1b, hierarchical": {
        "schedule": "1f1b",
        "transport": {"all_reduce": "hierarchical", "all_reduce_overlap": True, "bucket": "256KiB"},
        "training": {"stages": 2, "pipelines": 4, "microbatches": 2},
        "placement": HALVES["placement"],
    },
    "dp, butterfly": {"schedule": "dp", "training": WHOLE, "transport": {"all_reduce": "butterfly"}},
    "dp, chain": {"schedule": "dp", "training": WHOLE, "transport": {"all_reduce": "chain"}},
}
PEERS: Mapping[str, dict[str, Any]] = {
    "torch-gpipe": {"schedule": "torch-gpipe"},
    "torch-1f1b": {"schedule": "torch-1f1b"},
    "torch-zb": {"schedule": "torch-zb"},
    "torch-ddp": {"schedule": "torch-ddp", "training": WHOLE},
}
VARIANTS = {**OURS, **PEERS}
QUICK = frozenset(
    {
        "varuna, shared, sends that block",
        "atlas",
        "atlas, split",
        "dp",
        "zb-v, many connections",
        "1f1b, hierarchical",
        "dp, butterfly",
        "dp, chain",
    }
)
"""One of each kind of order, transport and sum; the others are left to the soak."""

EXPERIMENT: dict[str, Any] = {
    "name": "semantics",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 4}, {"name": "central", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "2ms", "rate": "1Gbit", "node_pair_rate": "200Mbit"},
    },
    "model": {"layers": 4, "hidden": 128, "context": 128, "heads": 4, "vocabulary": 256},
    "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
    # What the machine carries at this moment is not the question: no loss depends on it.
    "dilation": 1,
    "training": {
        "stages": STAGES,
        "pipelines": PIPELINES,
        "microbatches": MICROBATCHES,
        "iterations": ITERATIONS,
        "precision": "fp32",
        "learning_rate": LEARNING_RATE,
    },
    "seed": SEED,
}


def cases(names: Iterable[str]) -> list[ParameterSet | str]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in names]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Run]:
    @cache
    def training(quick: bool) -> Run:
        variants = [{"name": name, **changed} for name, changed in VARIANTS.items() if (name in QUICK) == quick]
        return trained({**EXPERIMENT, "variants": variants}, tmp_path_factory.mktemp("semantics"), "--keep-gradients")

    return training


@pytest.fixture
def run(trainings: Callable[[bool], Run], variant: str) -> Run:
    """The run that has this variant."""
    return trainings(variant in QUICK)


@pytest.fixture(scope="module")
def reference() -> Mapping[str, ReferenceTraining]:
    """Training by one process, by the cut of the training over pipelines, which says who trains on which tokens."""
    common: dict[str, Any] = {"iterations": ITERATIONS, "seed": SEED, "learning_rate": LEARNING_RATE}
    cut = train_reference(CONFIG, pipelines=PIPELINES, microbatches=MICROBATCHES, **common)
    whole = train_reference(CONFIG, pipelines=8, microbatches=1, **common)
    by_stages = {STAGES: cut, 2: train_reference(CONFIG, pipelines=4, microbatches=2, **common), 1: whole}
    return {name: by_stages[stages_of(name)] for name in VARIANTS}


def stages_of(variant: str) -> int:
    stages: int = VARIANTS[variant].get("training", {}).get("stages", STAGES)
    return stages


def facts(run: Run, variant: str) -> Mapping[str, Any]:
    (trial,) = [trial for trial in run.trials if trial.variant == variant]
    return trial.facts


@pytest.mark.parametrize("variant", cases(VARIANTS))
def test_the_loss_of_every_step_is_that_of_one_process(
    run: Run, reference: Mapping[str, ReferenceTraining], variant: str
) -> None:
    assert facts(run, variant)["losses"] == pytest.approx(reference[variant].losses, rel=TOLERANCE)


@pytest.mark.parametrize("variant", cases(VARIANTS))
def test_the_gradients_are_those_of_one_process_at_every_replica(
    run: Run, reference: Mapping[str, ReferenceTraining], variant: str
) -> None:
    stages = stages_of(variant)
    folder = run.path / "gradients" / "point-000" / slug(variant) / "repeat-0"
    ranks = [dict(np.load(folder / f"rank-{rank}.npz")) for rank in range(8)]
    for pipeline in range(8 // stages):
        own = ranks[pipeline * stages : (pipeline + 1) * stages]
        gradients = {name: gradient for rank in own for name, gradient in rank.items()}
        assert sum(len(rank) for rank in own) == len(gradients)
        error = relative_error(gradients, reference[variant].gradients)
        print(f"{variant}, pipeline {pipeline}: relative error of the gradients {error:.1e}")
        assert error <= TOLERANCE


@pytest.mark.parametrize("variant", cases(VARIANTS))
def test_the_traffic_crosses_the_emulated_wan(run: Run, variant: str) -> None:
    (row,) = run.summary[run.summary["variant"] == variant].to_dict("records")
    activation_bytes, sequences = CONFIG.activation_bytes("fp32"), PIPELINES * MICROBATCHES
    if variant == "1f1b, hierarchical":
        # One boundary. Each of the 4 second stages sends 2 x 1/2 of its half of the weights to its counterpart.
        size_bytes = CONFIG.gradient_bytes(1, 2, "fp32")
        least_bytes = ITERATIONS * (sequences * 2 * activation_bytes + 4 * size_bytes / 2)
    elif variant == "dp, butterfly":
        # 8 replicas, of which 4 are in one datacenter and 2 in each other: each of the 40 ways between datacenters
        # carries 1/8 of all weights there, and 1/8 back.
        least_bytes = ITERATIONS * 40 * 2 / 8 * CONFIG.gradient_bytes(0, 1, "fp32")
    elif variant == "dp, chain":
        # Of the 3 hops between datacenters the one back to the first replica carries the reduce alone.
        least_bytes = ITERATIONS * 5 * CONFIG.gradient_bytes(0, 1, "fp32")
    elif stages_of(variant) == 2:
        # Between 4 virtual stages on 2 stages are 3 boundaries, of which the turn of a V crosses nothing. A ring over
        # the 4 second stages, in 2 datacenters, has 2 hops between them, each with 2 x 3/4 of the stage's weights.
        turning = OURS[variant]["schedule"] == "zb-v"
        parts = (1, 2) if turning else (1, 3)
        size_bytes = sum(CONFIG.gradient_bytes(part, 4, "fp32") for part in parts)
        crossing = 2 if turning else 3
        least_bytes = ITERATIONS * (sequences * 2 * crossing * activation_bytes + 2 * 2 * 3 / 4 * size_bytes)
    elif stages_of(variant) == 1:
        # A ring over 8 replicas of all weights in 3 datacenters: each of its 3 WAN hops carries 2 x 7/8 of them.
        size_bytes = CONFIG.gradient_bytes(0, 1, "fp32")
        least_bytes = ITERATIONS * 2 * 7 / 8 * size_bytes * 3
    else:
        # Two of the three boundaries lie between datacenters; activations go one way, gradients the other.
        least_bytes = ITERATIONS * sequences * 2 * 2 * activation_bytes
    print(f"{variant}: {row['wan_bytes'] / 1e6:.2f} MB on the WAN for {least_bytes / 1e6:.2f} MB of payload")
    assert least_bytes <= row["wan_bytes"] < 1.5 * least_bytes


@pytest.mark.parametrize("variant", cases(OURS))
def test_every_rank_tells_what_it_computed_on_and_that_nothing_was_staged_there(run: Run, variant: str) -> None:
    devices = facts(run, variant)["devices"]
    assert [each["rank"] for each in devices] == list(range(8))
    assert {(each["device"], each["to_host_bytes"], each["to_device_bytes"]) for each in devices} == {("cpu", 0, 0)}


@pytest.mark.parametrize("variant", cases(OURS))
def test_what_a_gpu_did_and_its_idle_time_add_up_to_the_time_of_its_measured_iterations(run: Run, variant: str) -> None:
    spans = run.spans[run.spans["variant"] == variant]
    window = present(measured_window(successive_windows(iteration_windows(spans)), 1))
    busy = gpu_busy(spans, window)
    assert len(busy) == 8
    for place, row in busy.iterrows():
        assert isinstance(place, tuple)
        host, gpu = place
        own = spans[(spans["host"] == host) & (spans["gpu"] == gpu) & spans["kind"].isin(COMPUTE_KINDS)]
        before, measured = own[own["iteration"] < 1], own[own["iteration"] >= 1]
        assert (measured["end_ns"] - measured["start_ns"]).sum() == pytest.approx(row["busy_ns"], rel=1e-3)
        watched_ns = max(window.length_ns, measured["end_ns"].max() - before["end_ns"].max())
        assert row["busy_ns"] + row["idle_ns"] == watched_ns
