"""Prefill that torch computes beside training that torch computes, by one run that is started as a user would.

One datacenter of two GPUs, 30 ms apart, trains a pipeline of two stages, each in a process with half of the layers of a
model for inference. What becomes of the prompts is compared with the whole model in one process.
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.support.workloads.one_thread import one_thread
from tests.system.training.forked_ranks import trained
from wanbed.results.reading.run import Run
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL
from wanbed.workloads.compute.device.torch_device import CpuDevice
from wanbed.workloads.inference.decode import decode, greedy_token
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.inference.inference_stage import InferenceStage
from wanbed.workloads.serving.prefill_compute import prompt_tokens

MODEL, SEED, OUTPUT, CHUNK = INFERENCE_MODELS["llama-tiny"], 11, 6, 16
ITERATIONS = 36
ALONE, PLANNED = "alone", "planned"
SERVING = (PLANNED,)

EXPERIMENT: dict[str, Any] = {
    "name": "computed-prefill",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2, "serving_hosts": 1}],
        "intra": {"rate": "500Mbit", "latency": "30ms"},
    },
    "model": "gpt-tiny",
    "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
    "training": {"stages": 2, "microbatches": 2, "iterations": ITERATIONS, "warmup": 4, "precision": "fp32"},
    "prefill": {
        "rate": "20/s",
        "prompt": {"median": 60, "spread": 1.5},
        "output": OUTPUT,
        "model": MODEL.name,
        "profile": "own.json",
        "chunk": CHUNK,
        "slo": "30s",
    },
    "variants": [
        {"name": name, "schedule": "gpipe", "prefill": name if name in SERVING else "none"}
        for name in (ALONE, *SERVING)
    ],
    "seed": SEED,
    "dilation": 1,
}


PROFILE: dict[str, Any] = {
    "title": "about as a core does it",
    "basis": "measured",
    "device": "a core",
    "precision": "fp32",
    "model": {
        name: getattr(MODEL, name) for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "feed_forward")
    },
    "prompts": [{"tokens": tokens, "time_ns": 2_400_000 + 40_000 * tokens} for tokens in (10, 100, 1000)],
    "source": [{"figures": "all", "origin": "a test"}],
}
"""What the machine takes at this moment, with other tests beside, fits no profile; nor is it the question."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("computed-prefill")
    (folder / "own.json").write_text(json.dumps(PROFILE), encoding="utf-8")
    return trained(EXPERIMENT, folder)


_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


def facts(run: Run, variant: str) -> Mapping[str, Any]:
    (trial,) = [trial for trial in run.trials if trial.variant == variant]
    return trial.facts


def one_shot(model: InferenceStage, request: int, tokens: int) -> list[int]:
    """The tokens that follow a prompt which the whole model took at once."""
    cache = model.new_cache(tokens + OUTPUT)
    prompt = prompt_tokens(SEED, request, tokens, MODEL.vocabulary)
    first = greedy_token(model.prefill_chunk(cache, torch.tensor(prompt), 0))
    return [first, *decode([model], [cache], first, OUTPUT - 1)]


@pytest.mark.parametrize("variant", SERVING)
def test_every_prompt_goes_on_with_the_tokens_that_one_process_gives(run: Run, variant: str) -> None:
    model = InferenceStage(MODEL, range(MODEL.layers), seed=SEED, device=CpuDevice(), precision="fp32")
    rows = run.prefill_requests
    moved = rows[(rows["variant"] == variant) & rows["kv_moved_ns"].notna()]
    lengths = dict(zip(moved["request"], moved["prompt_tokens"], strict=True))
    lines = {int(request): tokens for request, tokens in facts(run, variant)["prefill"]["tokens"].items()}
    # The last ones may have moved just before the end, and have begun to go on or not: more of them on a busy machine.
    assert set(lines) <= set(lengths)
    finished = {request: tokens for request, tokens in lines.items() if len(tokens) == OUTPUT}
    assert len(finished) > len(lengths) / 2 > 5
    assert max(lengths.values()) > 2 * CHUNK
    for request, tokens in lines.items():
        assert tokens == one_shot(model, request, lengths[request])[: len(tokens)]
    assert len({tuple(tokens) for tokens in finished.values()}) > 5


@pytest.mark.parametrize("variant", SERVING)
def test_training_learns_exactly_what_it_learns_alone(run: Run, variant: str) -> None:
    losses = facts(run, variant)["losses"]
    assert len(losses) == ITERATIONS
    assert losses == facts(run, ALONE)["losses"]


@pytest.mark.parametrize("variant", SERVING)
def test_no_gpu_ever_does_two_things_at_once(run: Run, variant: str) -> None:
    spans = run.spans[(run.spans["variant"] == variant) & run.spans["kind"].isin([*COMPUTE_KINDS, PREFILL])]
    layers = 0
    for _, own in spans.groupby(["host", "gpu"]):
        used = sorted(zip(own["start_ns"], own["end_ns"], strict=True))
        assert all(end_ns <= start_ns for (_, end_ns), (start_ns, _) in pairwise(used))
        layers += (own["kind"] == PREFILL).sum()
    assert layers > 100


@pytest.mark.parametrize("variant", SERVING)
def test_the_trial_tells_what_training_waited_for_and_what_was_planned_with(run: Run, variant: str) -> None:
    prefill = facts(run, variant)["prefill"]
    assert prefill["faults"] == []
    assert (prefill["deadline_overruns"] == 0) == (prefill["overrun_ns"] == 0)
    assert prefill["profile"]["measured"]
    assert prefill["profile"]["error"]["points"] == 3
    assert prefill["profile"]["fixed_ns"] + prefill["profile"]["per_token_ns"] > 0
    moved = run.prefill_requests[run.prefill_requests["variant"] == variant]["kv_moved_ns"].notna()
    sent = run.prefill_requests[run.prefill_requests["variant"] == variant][moved]
    assert (sent["kv_bytes"] == [MODEL.kv_bytes(MODEL.layers, tokens) for tokens in sent["prompt_tokens"]]).all()
    assert prefill["kv_bytes"] >= sent["kv_bytes"].sum()
