"""Ranks that encode what crosses the emulated WAN train as one process that encodes at the same boundaries.

A tiny GPT in fp32 over 3 datacenters. The learning rate leaves weights as they are: those of two trainings that differ
by rounding alone may be encoded as other numbers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.support.workloads.encoded_reference import train_encoded_reference
from tests.support.workloads.reference_training import relative_error
from tests.system.training.forked_ranks import trained
from wanbed.results.reading.run import Run
from wanbed.results.records.run_store import slug
from wanbed.workloads.compute.activation_wire import ActivationWire
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.synchronization.synchronization import WireFormat

CONFIG = GptConfig(layers=4, hidden=64, context=64, heads=4, vocabulary=256)
STAGES, PIPELINES, MICROBATCHES, ITERATIONS, SEED, LEARNING_RATE = 4, 2, 4, 4, 7, 1e-15
TOLERANCE = 1e-5
ELEMENTS = CONFIG.context * CONFIG.hidden
ON_THE_WIRE = 1514 / 1448

INT8 = {"wire": "int8"}
TOPK = {"wire": "topk", "kept": "10%"}
WIRES = {
    "bf16": ActivationWire(WireFormat.BF16),
    "int8": ActivationWire(WireFormat.INT8),
    "topk": ActivationWire(WireFormat.BF16, 102),
}
SHARED = {"connections": 2, "sharing": "temporal", "pipelines_per_cell": 2}
VARIANTS: Mapping[str, dict[str, Any]] = {
    "1f1b, bf16": {"schedule": "1f1b", "transport": {"connections": 4, "activation": {"wire": "bf16"}}},
    "zb-h1, topk fed back": {"schedule": "zb-h1", "transport": {"activation": {**TOPK, "error_feedback": True}}},
    "atlas, int8": {"schedule": "atlas", "transport": {**SHARED, "activation": {**INT8, "encode": "1GB/s"}}},
    "gpipe in two flushes, topk fed back": {
        "schedule": "gpipe",
        "training": {"microbatches": 2, "accumulate": 2},
        "transport": {"activation": {**TOPK, "error_feedback": True}},
    },
    # The first stage of both pipelines in the east, so that all that its virtual stages send crosses the WAN.
    "interleaved-1f1b, int8": {
        "schedule": "interleaved-1f1b",
        "training": {"stages": 2, "virtual_stages": 2},
        "placement": [["east", "central"], ["east", "west"]],
        "transport": {"connections": 4, "activation": INT8},
    },
    "1f1b, replicas in several datacenters, int8": {
        "schedule": "1f1b",
        "placement": [["east", "east", "central", "west"], ["east", "central", "west", "east"]],
        "transport": {"activation": INT8},
    },
    "diloco, topk": {
        "schedule": "diloco",
        "options": {"sync_every": 3, "wire": "int8"},
        "placement": [["east", "east", "central", "central"], ["east", "east", "west", "west"]],
        "transport": {"activation": TOPK},
    },
}
BOUNDARIES = {
    "interleaved-1f1b, int8": (0, 1, 2),
    "1f1b, replicas in several datacenters, int8": (0, 1, 2),
    "diloco, topk": (1,),
}
"""The boundaries that cross the WAN, if they are not the last two of three."""

EXPERIMENT: dict[str, Any] = {
    "name": "encoded training",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 4}, {"name": "central", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "2ms", "rate": "1Gbit", "node_pair_rate": "200Mbit"},
    },
    "model": {"layers": 4, "hidden": 64, "context": 64, "heads": 4, "vocabulary": 256},
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
    "variants": [{"name": name, **changed} for name, changed in VARIANTS.items()],
}


def boundaries_of(variant: str) -> tuple[int, ...]:
    return BOUNDARIES.get(variant, (1, 2))


def wire_of(variant: str) -> ActivationWire:
    activation = VARIANTS[variant]["transport"]["activation"]
    wire = WIRES[activation["wire"]]
    return ActivationWire(wire.numbers, wire.kept, error_feedback=activation.get("error_feedback", False))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(EXPERIMENT, tmp_path_factory.mktemp("encoded"), "--keep-gradients")


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_are_those_of_one_process(run: Run, variant: str) -> None:
    reference = train_encoded_reference(
        CONFIG,
        wire_of(variant),
        parts=STAGES,
        boundaries=boundaries_of(variant),
        pipelines=PIPELINES,
        microbatches=MICROBATCHES,
        iterations=ITERATIONS,
        seed=SEED,
        learning_rate=LEARNING_RATE,
    )
    (trial,) = [trial for trial in run.trials if trial.variant == variant]
    assert trial.facts["losses"] == pytest.approx(reference.losses, rel=TOLERANCE)
    if VARIANTS[variant]["schedule"] == "diloco":
        # The replicas have gradients of their own.
        return
    folder = run.path / "gradients" / "point-000" / slug(variant) / "repeat-0"
    ranks = [dict(np.load(file)) for file in sorted(folder.glob("rank-*.npz"), key=lambda file: int(file.stem[5:]))]
    of_pipeline = len(ranks) // PIPELINES
    for first in range(0, len(ranks), of_pipeline):
        gradients = {name: each for rank in ranks[first : first + of_pipeline] for name, each in rank.items()}
        error = relative_error(gradients, reference.gradients)
        print(f"{variant}: relative error of the gradients {error:.1e}")
        assert error <= TOLERANCE


@pytest.mark.parametrize("variant", ["1f1b, bf16", "zb-h1, topk fed back", "atlas, int8"])
def test_the_bytes_on_the_wire_are_those_that_a_simulation_has(run: Run, variant: str) -> None:
    spans = run.spans[run.spans["variant"] == variant]
    home = {
        f"{name}-{number}": name
        for name, hosts in (("east", 4), ("central", 2), ("west", 2))
        for number in range(hosts)
    }
    sends = spans[spans["kind"] == "send"]
    crossing = sends[sends["datacenter"] != sends["peer"].map(home)]
    assert len(crossing) == ITERATIONS * PIPELINES * MICROBATCHES * 2 * 2
    assert set(crossing["size_bytes"]) == {wire_of(variant).encoded_bytes(ELEMENTS)}
    inside = sends[sends["datacenter"] == sends["peer"].map(home)]
    assert set(inside[inside["tensor"].isin(["activation", "gradient"])]["size_bytes"]) == {4 * ELEMENTS}
