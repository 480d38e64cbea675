"""What keeps a simulation from following packets, which is refused where it is asked for."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.followed_packets import follows_packets


def experiment(transport: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {
        "topology": {
            "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")],
            "wan": {"latency": "20ms", "node_pair_rate": "100Mbit", **sections.pop("wan", {})},
        },
        "compute": {"forward": "10ms", "activation": "1MiB"},
        "training": {"stages": 2, "microbatches": 2, "iterations": 2},
        "variants": [{"name": "own", "schedule": "1f1b", "transport": {"model": "packets", **transport}}],
        "engine": "simulate",
        **sections,
    }


@pytest.mark.parametrize(
    ("transport", "sections", "reason"),
    [
        ({"congestion": "bbr"}, {}, "of bbr without loss"),
        ({}, {"wan": {"events": [{"at": "1s", "latency": "30ms"}]}}, "over links that change"),
        ({}, {"background": [{"name": "backup", "from": "east", "to": "west"}]}, "beside flows in the background"),
        ({}, {"engine": "emulate"}, None),
    ],
)
def test_packets_that_cannot_be_followed_are_refused_with_the_remedy(
    transport: dict[str, Any], sections: dict[str, Any], reason: str | None
) -> None:
    expected = (
        "variants.0.transport.model: only a simulation models transport as packets: give engine: simulate"
        if reason is None
        else f"variants.0.transport.model: packets are not followed {reason}: give mean"
    )
    with pytest.raises(InputError) as refusal:
        parse_experiment(experiment(transport, **sections), "exp.yaml", Path()).points()
    assert expected in str(refusal.value)


def test_bbr_is_followed_where_packets_are_lost() -> None:
    (point,) = parse_experiment(experiment({"congestion": "bbr"}, wan={"loss": "1%"}), "exp.yaml", Path()).points()
    assert point.variants[0].transport.model == "packets"


def test_packets_are_counted_on_lines_without_rate_and_latency() -> None:
    lines = {"datacenters": [{"name": "east", "hosts": 2}], "intra": {"latency": "0us", "rate": "unlimited"}}
    document = {**experiment({}), "topology": lines, "variants": [{"name": "own", "schedule": "1f1b"}]}
    (point,) = parse_experiment(document, "exp.yaml", Path()).points()
    (variant,) = point.variants
    assert [follows_packets(point.topology, variant, iterations) for iterations in (2, 10**9)] == [True, False]


def test_a_butterfly_sends_no_more_packets_than_a_ring_though_between_more_hosts() -> None:
    datacenters = [{"name": name, "hosts": 1} for name in "abcdef"]

    def follows(all_reduce: str, iterations: int) -> bool:
        document = {
            **experiment({}),
            "topology": {"datacenters": datacenters, "wan": {"latency": "20ms", "node_pair_rate": "100Mbit"}},
            "compute": {"forward": "10ms", "activation": "1B", "gradient": "10MB"},
            "training": {"stages": 1, "pipelines": 6, "microbatches": 1, "iterations": 2},
            "variants": [{"name": "own", "schedule": "dp", "transport": {"all_reduce": all_reduce}}],
        }
        (point,) = parse_experiment(document, "exp.yaml", Path()).points()
        return follows_packets(point.topology, point.variants[0], iterations)

    assert [follows("ring", iterations) for iterations in (8, 12)] == [True, False]
    assert [follows("butterfly", iterations) for iterations in (8, 12)] == [True, False]
