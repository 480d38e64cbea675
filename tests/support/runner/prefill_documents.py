"""Small experiments with prefill, as their files hold them."""

from pathlib import Path
from typing import Any

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment, SweepPoint


def document(**changes: Any) -> dict[str, Any]:
    """Two datacenters of four GPUs, on which two pipelines of four stages train with bubbles of many milliseconds."""
    return {
        "topology": {
            "datacenters": [{"name": name, "hosts": 4, "serving_hosts": 2} for name in ("east", "west")],
            "intra": {"latency": "50us", "rate": "10Gbit"},
            "wan": {"latency": "20ms", "rate": "10Gbit", "node_pair_rate": "1Gbit"},
        },
        "compute": {
            "forward": "20ms",
            "backward": "40ms",
            "activation": "1MiB",
            "gradient": "1MiB",
            "optimizer": "3ms",
        },
        "training": {"stages": 4, "pipelines": 2, "microbatches": 4, "iterations": 8, "warmup": 4},
        "prefill": {
            "rate": "40/s",
            "depth": 2,
            "slo": "2s",
            "kv": "2KiB",
            "activation": "128B",
            "prompt": 512,
            "warmup": 3,
        },
        "variants": [{"name": "planned", "schedule": "1f1b"}],
        "engine": "simulate",
        **changes,
    }


def experiment(directory: Path = Path(), **changes: Any) -> Experiment:
    return parse_experiment(document(**changes), "exp.yaml", directory)


def point(directory: Path = Path(), **changes: Any) -> SweepPoint:
    return experiment(directory, **changes).points()[0]


def with_prefill(**changes: Any) -> dict[str, Any]:
    """The section, changed."""
    return {"prefill": {**document()["prefill"], **changes}}
