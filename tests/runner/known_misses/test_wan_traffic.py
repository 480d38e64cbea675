"""What is found out about a variant's traffic over the WAN."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.runner.known_misses.wan_traffic import WanTraffic
from wanbed.runner.planner.experiment_file import parse_experiment

WAN = {"latency": "20ms", "node_pair_rate": "100Mbit"}


def traffic(wan: dict[str, Any] | None = None, variant: int = 0, **sections: Any) -> WanTraffic:
    document = {
        "topology": {
            "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")],
            "wan": wan or WAN,
        },
        "compute": {"forward": "10ms", "activation": "1MiB", "gradient": "1MiB"},
        "training": {"stages": 2, "pipelines": 2, "microbatches": 2, "iterations": 2},
        "engine": "simulate",
        **sections,
    }
    point = parse_experiment(document, "exp.yaml", Path()).points()[0]
    return WanTraffic(point.topology, point.variants[variant])


def transport(**settings: Any) -> dict[str, Any]:
    return {"variants": [{"name": "own", "schedule": "1f1b", "transport": settings}]}


def test_windows_are_compared_with_what_the_line_holds() -> None:
    # 100 Mbit/s over a round trip of 40 ms are 500,000 bytes.
    one = traffic(**transport(connections=1, window="350000B"))
    four = traffic(**transport(connections=4, window="350000B"))
    assert one.window_over_line == pytest.approx(0.7, rel=0.01)
    assert four.window_over_line == pytest.approx(2.8, rel=0.01)
    assert (one.connections, four.connections) == (1, 4)


def test_without_a_rate_windows_alone_are_the_limit() -> None:
    assert traffic({"latency": "20ms"}).window_over_line == 0


def test_a_variant_inside_a_datacenter_has_no_connections_across() -> None:
    own = traffic(variants=[{"name": "own", "schedule": "1f1b", "placement": ["east", "east"]}], training={
        "stages": 2, "pipelines": 1, "microbatches": 2, "iterations": 2,
    })  # fmt: skip
    assert (own.connections, own.window_over_line, own.fills_a_trunk) == (0, 0, False)


@pytest.mark.parametrize(("trunk", "fills"), [("100Mbit", True), ("199Mbit", True), ("200Mbit", False)])
def test_a_trunk_is_full_if_its_node_pairs_can_send_more_than_it_carries(trunk: str, fills: bool) -> None:
    assert traffic({**WAN, "rate": trunk}).fills_a_trunk is fills


def test_node_pairs_whose_windows_carry_little_do_not_fill_a_trunk() -> None:
    # Each has 35,000 bytes in flight at a time: 7 Mbit/s.
    assert not traffic({**WAN, "rate": "100Mbit"}, **transport(connections=1, window="35000B")).fills_a_trunk


def test_a_trunk_that_is_narrow_for_a_while_can_be_full() -> None:
    events = [{"at": "1s", "for": "1s", "rate": "50Mbit"}]
    assert not traffic({**WAN, "rate": "200Mbit"}).fills_a_trunk
    assert traffic({**WAN, "rate": "200Mbit", "events": events}).fills_a_trunk


def test_jobs_fill_a_trunk_together() -> None:
    jobs: dict[str, Any] = {
        "topology": {
            "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")],
            "wan": {**WAN, "rate": "150Mbit"},
        },
        "training": {"stages": 2, "pipelines": 1, "microbatches": 2, "iterations": 2},
        "variants": [{"name": name, "schedule": "1f1b"} for name in ("a", "b")],
        "jobs": [
            {"name": "ours", "hosts": {"east": 1, "west": 1}, "variants": ["a"]},
            {"name": "theirs", "hosts": {"east": 1, "west": 1}, "variants": ["b"]},
        ],
    }
    alone, beside = traffic(**jobs), traffic(variant=2, **jobs)
    assert not alone.variant.beside
    assert beside.variant.beside
    assert [(each.fills_a_trunk, each.fills_a_trunk_with_others) for each in (alone, beside)] == [
        (False, False),
        (False, True),
    ]


def test_rings_cross_the_wan_where_the_replicas_of_a_stage_are_apart() -> None:
    together = traffic(variants=[{"name": "own", "schedule": "1f1b", "placement": ["east", "west"]}])
    apart = traffic(variants=[{"name": "own", "schedule": "1f1b", "placement": [["east", "west"], ["west", "east"]]}])
    nothing = traffic(
        variants=[{"name": "own", "schedule": "1f1b", "placement": [["east", "west"], ["west", "east"]]}],
        compute={"forward": "10ms", "activation": "1MiB", "gradient": "1B"},
    )
    assert [each.rings_cross for each in (together, apart, nothing)] == [False, True, False]


def test_losses_are_drawn_and_a_link_breaks() -> None:
    lossy = traffic({**WAN, "loss": "0.1%"})
    broken = traffic({**WAN, "events": [{"at": "1s", "for": "1s", "down": True}]})
    assert [(each.is_drawn_as_compared, each.breaks) for each in (traffic(), lossy, broken)] == [
        (False, False),
        (True, False),
        (False, True),
    ]
