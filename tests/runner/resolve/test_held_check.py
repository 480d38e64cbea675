"""GPUs that are held until their message has arrived: refusals of what does not go with them."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from wanbed.runner.planner.experiment_file import parse_experiment

DOCUMENT: dict[str, Any] = {
    "engine": "simulate",
    "topology": {
        "datacenters": [{"name": name, "hosts": 1, "serving_hosts": 1} for name in ("east", "west")],
        "wan": {"latency": "1ms", "rate": "1Gbit"},
    },
    "compute": {"forward": "1ms", "backward": "2ms", "activation": "1KiB"},
    "training": {"microbatches": 2},
}


def held(**variant: Any) -> dict[str, Any]:
    transport = {"overlap": False, "held_until": "arrival"}
    return {**DOCUMENT, "variants": [{"name": "v", "schedule": "1f1b", "transport": transport, **variant}]}


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ({"schedule": "atlas"}, "variants.0.transport.held_until: atlas plans for GPUs that go on when"),
        ({"placement": "auto"}, "variants.0.placement: the planner places stages whose GPUs go on when"),
        (
            {"transport": {"held_until": "arrival"}},
            "variants.0.transport.held_until: a GPU that computes while it sends is not held: give overlap: false",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(variant: dict[str, Any], words: str) -> None:
    assert words in refused(lambda: parse_experiment(held(**variant), "test", Path()))


def test_bubbles_are_not_forecast_for_it() -> None:
    prefill = {"prefill": {"rate": "1/s", "trace": "poisson", "slo": "1s"}}
    mistake = refused(lambda: parse_experiment(held() | prefill, "test", Path()))
    assert "variants.0.prefill: bubbles are forecast for GPUs that go on when their message has left" in mistake
    assert parse_experiment(held(prefill="none") | prefill, "test", Path()).points()[0].variants[0].holds_until_arrival
