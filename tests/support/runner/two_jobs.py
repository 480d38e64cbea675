"""An experiment of two jobs that share a WAN."""

from typing import Any


def two_jobs(*, rate: str = "200Mbit", jobs: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the document of an experiment in which ``ours`` runs beside ``theirs`` over a trunk of that rate."""
    return {
        "name": "two-jobs",
        "topology": {
            "datacenters": [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 4}],
            "wan": {"latency": "10ms", "rate": rate, "node_pair_rate": "200Mbit"},
        },
        "compute": {"forward": "5ms", "backward": "10ms", "activation": "512KiB", "gradient": "1MiB"},
        "training": {"pipelines": 2, "stages": 2, "microbatches": 4, "iterations": 4, "warmup": 1},
        "variants": [{"name": "ours", "schedule": "gpipe"}, {"name": "theirs", "schedule": "1f1b"}],
        "jobs": [
            {"name": "a", "hosts": {"east": 2, "west": 2}, "variants": ["ours"]},
            {"name": "b", "hosts": {"east": 2, "west": 2}, "variants": ["theirs"]},
        ]
        if jobs is None
        else jobs,
        **changes,
    }
