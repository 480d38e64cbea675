"""Which known misses apply to what is simulated."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.chakra_traces import computation, message, write_trace
from wanbed.results.chakra.node import NodeType
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.followed_packets import follows_packets
from wanbed.runner.resolve.known_misses import (
    MISS_CLASSES,
    WanTraffic,
    disagreement,
    known_misses,
    misses_by_variant,
)

LARGE, SMALL, NEAR = "4MiB", "48KiB", "530000B"
"""Windows of far more than 500,000 bytes, of far less, and of about as much."""


def point(
    *variants: dict[str, Any], pipelines: int = 2, jobs: Any = None, background: Any = None, **wan: Any
) -> SweepPoint:
    return parse_experiment(
        {
            **({} if jobs is None else {"jobs": jobs}),
            **({} if background is None else {"background": background}),
            "topology": {
                "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")],
                "wan": {"latency": "20ms", "node_pair_rate": "100Mbit", **wan},
            },
            "compute": {"forward": "10ms", "activation": "1MiB", "gradient": "1MiB"},
            "training": {"stages": 2, "pipelines": pipelines, "microbatches": 2, "iterations": 2},
            "variants": list(variants),
            "engine": "simulate",
        },
        "exp.yaml",
        Path(),
    ).points()[0]


def variant(name: str = "own", placement: list[Any] | None = None, **transport: Any) -> dict[str, Any]:
    placed = {} if placement is None else {"placement": placement}
    return {"name": name, "schedule": "1f1b", "transport": {"connections": 1, "model": "mean", **transport}, **placed}


def names(of: SweepPoint) -> list[str]:
    return [miss.name for miss in known_misses(of)]


APART = [["east", "west"], ["west", "east"]]


@pytest.mark.parametrize(
    ("own", "wan", "expected"),
    [
        (variant(window=SMALL), {}, []),
        (variant(window=LARGE), {}, []),
        (variant(window=NEAR), {}, ["window-near-the-line"]),
        (variant(connections=4, window=SMALL), {}, ["unequal-connections"]),
        (variant(connections=4, window=LARGE), {}, ["unequal-connections"]),
        (
            variant(connections=4, window=LARGE, placement=APART),
            {},
            ["unequal-connections", "rings-over-connections"],
        ),
        (variant(window=LARGE), {"rate": "150Mbit"}, ["full-trunk"]),
        (variant(window="45MiB", placement=APART), {}, ["rings-over-deep-queues"]),
        (variant(window=LARGE), {"latency": "80ms"}, ["short-transfers"]),
        (variant(window=LARGE, congestion="reno"), {"latency": "80ms"}, []),
        (variant(window=SMALL), {"latency": "80ms"}, []),
        (variant(window=LARGE), {"events": [{"at": "1s", "for": "1s", "down": True}]}, ["outage"]),
        (variant(window=LARGE), {"events": [{"at": "1s", "for": "1s", "node_pair_rate": "50Mbit"}]}, []),
        (variant(window=LARGE), {"loss": "1%"}, ["loss-or-jitter"]),
        (variant(window=LARGE), {"loss": "0.01%"}, []),
        (variant(window=LARGE, congestion="bbr"), {"loss": "0.01%"}, ["loss-or-jitter"]),
        (variant(window=LARGE), {"loss": "1%", "latency": "90ms"}, ["short-transfers"]),
        (variant(connections=4, window=LARGE, model="ideal"), {"rate": "150Mbit"}, []),
    ],
)
def test_each_kind_is_told_by_what_it_does_on_the_wan(
    own: dict[str, Any], wan: dict[str, Any], expected: list[str]
) -> None:
    assert names(point(own, **wan)) == expected


def test_flows_in_the_background_mark_training_and_their_own_goodput() -> None:
    own = point(variant(window=LARGE), background=[{"name": "backup", "from": "east", "to": "west"}])
    found = known_misses(own)
    assert {miss.name: miss.figure for miss in found} == {
        "background": "iteration times",
        "background-goodput": "goodput of a flow",
    }


def test_jobs_that_fill_a_trunk_together_are_marked_beside_each_other_only() -> None:
    jobs = [{"name": name, "hosts": {"east": 1, "west": 1}, "variants": [name]} for name in ("ours", "theirs")]
    own = point(variant("ours"), variant("theirs"), jobs=jobs, pipelines=1, rate="150Mbit")
    assert misses_by_variant(own) == {
        "ours beside theirs": ["jobs-on-a-full-trunk"],
        "theirs beside ours": ["jobs-on-a-full-trunk"],
    }


def test_with_temporal_sharing_a_node_pair_carries_a_part_of_a_transfer() -> None:
    # 1 MiB over 100 Mbit/s and 60 ms is more than the line's 750,000 bytes, half of it is less.
    alone = point({**variant(window=LARGE), "schedule": "atlas"}, latency="30ms")
    shared = point({**variant(window=LARGE, sharing="temporal"), "schedule": "atlas"}, latency="30ms")
    assert (names(alone), names(shared)) == ([], ["short-transfers"])


def test_a_sweep_point_has_what_any_variant_has_and_each_variant_its_own() -> None:
    own = point(variant("small", window=SMALL), variant("near", window=NEAR), variant("four", connections=4))
    assert names(own) == ["unequal-connections", "window-near-the-line"]
    assert misses_by_variant(own) == {"near": ["window-near-the-line"], "four": ["unequal-connections"]}


@pytest.mark.parametrize(("by_packets_ns", "marked"), [(1.041, True), (1.039, False), (0.961, False), (0.959, True)])
def test_a_trial_is_marked_whose_packets_come_out_otherwise_than_their_mean(by_packets_ns: float, marked: bool) -> None:
    assert [each.name for each in disagreement(by_packets_ns, 1.0)] == ["packets"] * marked


@pytest.mark.parametrize(
    ("model", "transport", "wan", "expected"),
    [
        ("mean", {"connections": 4}, {}, ["unequal-connections"]),
        ("auto", {"connections": 4}, {}, []),
        ("packets", {"connections": 4}, {}, []),
        ("auto", {}, {"rate": "150Mbit"}, []),
        ("packets", {}, {"rate": "150Mbit"}, []),
        ("auto", {"connections": 4}, {"loss": "1%"}, ["unequal-connections", "loss-or-jitter"]),
        ("packets", {"connections": 4}, {"loss": "1%"}, ["loss-or-jitter"]),
    ],
)
def test_what_packets_settle_does_not_apply_where_they_are_followed(
    model: str, transport: dict[str, Any], wan: dict[str, Any], expected: list[str]
) -> None:
    assert names(point(variant(window=LARGE, model=model, **transport), **wan)) == expected


@pytest.mark.parametrize(
    ("transport", "kept"),
    [
        ({"connections": 4}, {"pipelines": 1, "background": [{"name": "backup", "from": "east", "to": "west"}]}),
        ({"connections": 4}, {"events": [{"at": "1s", "for": "1s", "node_pair_rate": "50Mbit"}]}),
        ({"connections": 4, "congestion": "bbr"}, {}),
        ({"connections": 4, "receive": "blocks"}, {}),
    ],
)
def test_packets_that_cannot_be_followed_are_not_unless_they_are_asked_for(
    transport: dict[str, Any], kept: dict[str, Any]
) -> None:
    own = point(variant(model="auto", window=LARGE, **transport), **kept)
    assert not follows_packets(own.topology, own.variants[0], 2)


def test_a_trial_of_many_packets_is_followed_by_its_mean() -> None:
    own = point(variant(model="auto", connections=4))
    (one,) = own.variants
    # An iteration sends 8 MiB, in 5,793 packets: at 100 Mbit/s each is a single frame.
    assert [follows_packets(own.topology, one, iterations) for iterations in (69, 70)] == [True, False]


def test_every_class_has_a_name_of_its_own_and_a_reason() -> None:
    names, reasons = {each.miss.name for each in MISS_CLASSES}, {each.why for each in MISS_CLASSES}
    assert len(names) == len(reasons) == len(MISS_CLASSES)


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
    return WanTraffic(point.topology, point.variants[variant], 2)


def transport(**settings: Any) -> dict[str, Any]:
    return {"variants": [{"name": "own", "schedule": "1f1b", "transport": settings}]}


def test_windows_are_compared_with_what_the_line_holds() -> None:
    # 100 Mbit/s over a round trip of 40 ms are 500,000 bytes.
    one = traffic(**transport(connections=1, window="350000B"))
    four = traffic(**transport(connections=4, window="350000B"))
    assert one.window_over_line == pytest.approx(0.7, rel=0.01)
    assert four.window_over_line == pytest.approx(2.8, rel=0.01)
    assert (one.connections, four.connections) == (1, 4)


@pytest.mark.parametrize(
    ("size_bytes", "peer", "marked"),
    [(45_000, 1, False), (262_144, 1, True), (500_001, 1, False), (262_144, 2, False)],
)
def test_messages_of_what_is_no_pipeline_may_be_short_too(
    tmp_path: Path, size_bytes: int, peer: int, marked: bool
) -> None:
    """Of three ranks the last is in the datacenter of the first."""
    send, receive = (
        message(kind, 0, (0, peer), size_bytes) for kind in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
    )
    write_trace(tmp_path, {0: [send], peer: [receive], 3 - peer: [computation(0, 9)]})
    document = {
        "topology": {"datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")], "wan": WAN},
        "compute": {"trace": str(tmp_path)},
        "variants": [
            {"name": "own", "schedule": "trace", "placement": ["east", "west", "east"],
             "transport": {"connections": 1, "window": LARGE}},
        ],
        "engine": "simulate",
    }  # fmt: skip
    own = parse_experiment(document, "exp.yaml", Path()).points()[0]
    assert names(own) == (["short-transfers"] if marked else [])


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
