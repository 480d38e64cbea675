"""Whatever text or number stands where a quantity is read: an experiment, or a refusal of one short line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.experiment.field_path import override_source
from wanbed.runner.planner.experiment_file import load_experiment

EXPERIMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [
            {"name": "east", "hosts": 2, "serving_hosts": 1},
            {"name": "west", "hosts": 2, "serving_hosts": 1},
        ],
        "intra": {"latency": "50us", "rate": "10Gbit"},
        "wan": {"latency": "20ms", "rate": "100Mbit"},
        "links": [{"between": ["east", "west"]}],
    },
    "model": {"hidden": 64, "context": 64, "layers": 2, "heads": 2, "vocabulary": 10},
    "compute": {"forward": "20ms", "activation": "32MiB"},
    "training": {"stages": 2, "pipelines": 1, "microbatches": 2},
    "prefill": {"trace": "poisson", "rate": "4/s"},
    "variants": [
        {"name": "one", "schedule": "eager-1f1b", "transport": {"activation": {"wire": "topk", "kept": "1%"}}}
    ],
}

LINK = ("latency", "rate", "node_pair_rate", "jitter", "loss")
FIELDS = (
    *(f"topology.{section}.{name}" for section in ("wan", "links.0") for name in LINK),
    *(f"topology.intra.{name}" for name in ("latency", "rate")),
    *(f"topology.datacenters.0.{name}" for name in ("hosts", "gpus_per_host", "serving_hosts")),
    *(f"topology.datacenters.0.{name}" for name in ("gpu_price", "egress_price")),
    "topology.links.0.egress_price",
    *(f"model.{name}" for name in EXPERIMENT["model"]),
    *(f"compute.{name}" for name in ("forward", "backward", "backward_weight", "recompute", "optimizer")),
    *(f"compute.{name}" for name in ("activation", "gradient")),
    *(f"training.{name}" for name in ("stages", "pipelines", "microbatches", "iterations", "warmup")),
    *(f"training.{name}" for name in ("memory_bound", "memory")),
    *(f"prefill.{name}" for name in ("rate", "variation", "prompt", "output", "chunk", "depth", "slo", "guard")),
    *(f"prefill.{name}" for name in ("warmup", "memory", "training_memory", "kv", "activation")),
    *(f"variants.0.transport.{name}" for name in ("connections", "window", "pipelines_per_cell")),
    *(f"variants.0.transport.activation.{name}" for name in ("kept", "encode", "decode")),
    *(f"variants.0.training.{name}" for name in ("stages", "pipelines", "microbatches", "memory_bound", "memory")),
    "variants.0.options.warmup_depth",
    "variants.0.pool",
    "repeats",
    "seed",
    "dilation",
)

digits = st.integers(1, 6000).flatmap(
    lambda count: st.sampled_from(["0", "1", "9", "0x", "0.", "1_", "1:"]).map(lambda start: start + "9" * count)
)
numbers = (
    digits | st.integers(0, 10**45).map(str) | st.floats().map(str) | st.sampled_from(["0", "1", "2", "1e999", "-1"])
)
units = st.sampled_from(
    ["", "ns", "ms", "s", "bit", "Gbit", "Tbit", "B", "MiB", "GB", "%", "/s", " s", "USD/h", "USD/GB"]
)
texts = st.builds("{}{}".format, numbers, units) | st.text(max_size=20)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("experiment") / "exp.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT), encoding="utf-8")
    return path


@given(field=st.sampled_from(FIELDS), text=texts)
@settings(max_examples=200, deadline=None)
def test_any_text_in_any_field_is_an_experiment_or_a_refusal_of_one_short_line(file: Path, field, text: str) -> None:
    line = ""
    try:
        load_experiment(file, [f"{field}={text}"])
    except InputError as refused:
        line = str(refused)
    assert line.isprintable()
    assert len(line) < len(str(file)) + 600


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ["9" * 60, "0x" + "F" * 5000, "[1, " + "9" * 39 + "]"], ids=["60", "hex", "list"])
def test_a_bare_number_beyond_all_is_refused_in_every_field(file: Path, field: str, value: str) -> None:
    assert refused(lambda: load_experiment(file, [f"{field}={value}"])).isprintable()


def test_what_a_message_calls_an_override_is_short() -> None:
    assert override_source("a=1s") == "--set a=1s"
    assert override_source("a=" + "9" * 400) == f"--set a={'9' * 60}..."
