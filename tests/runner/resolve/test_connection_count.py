from pathlib import Path

import pytest

from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.connections import CutPair, count_connections, cut_pairs, tcp_settings, window_bps
from wanbed.runner.resolve.experiment import SweepPoint

WINDOW_BYTES = 700 * 1024
AUTO = TransportSpec(connections="auto", window="700KiB")


def point(**wan: str) -> SweepPoint:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}, {"name": "far", "hosts": 1}],
            "wan": {"latency": "10ms", **wan},
        }
    }
    (only,) = parse_experiment(document, "exp.yaml", Path()).points()
    return only


def counted(of: SweepPoint, transport: TransportSpec) -> dict[tuple[str, str], int]:
    return count_connections(of.topology, of.variants[0].pairs, transport)


def test_one_connection_moves_its_window_per_round_trip() -> None:
    # Fifty times a second.
    assert window_bps(AUTO, 20_000_000) == WINDOW_BYTES * 8 * 50


def test_a_configured_number_holds_for_every_pair() -> None:
    assert counted(point(rate="1Gbit"), TransportSpec(connections=7)) == {
        ("east-0", "east-1"): 7,
        ("east-1", "west-0"): 7,
        ("west-0", "west-1"): 7,
        ("west-1", "far-0"): 7,
    }


def test_auto_fills_each_pairs_cap_with_what_one_connection_moves() -> None:
    # 1000 Mbit/s leave 956.4 to the payload; 1.1 times that over 286.7 is 3.67.
    assert counted(point(rate="10Gbit", node_pair_rate="1Gbit"), AUTO) == {
        ("east-0", "east-1"): 1,
        ("east-1", "west-0"): 4,
        ("west-0", "west-1"): 1,
        ("west-1", "far-0"): 4,
    }


def test_a_wider_window_takes_fewer_connections() -> None:
    wider = TransportSpec(connections="auto", window="4MiB")
    assert counted(point(rate="1Gbit"), wider)["east-1", "west-0"] == 1


@pytest.mark.parametrize("wan", [{}, {"rate": "1Gbit", "latency": "0ms"}])
def test_a_pair_without_a_cap_or_without_latency_has_one_connection(wan: dict[str, str]) -> None:
    assert set(counted(point(**wan), AUTO).values()) == {1}


def test_there_are_never_more_than_64() -> None:
    assert counted(point(rate="100Gbit"), AUTO)["east-1", "west-0"] == 64


def test_a_cut_pair_reports_wanted_connections_and_carried_fraction() -> None:
    wide = point(rate="100Gbit", node_pair_rate="50Gbit")
    cuts = cut_pairs(wide.topology, wide.variants[0].pairs, AUTO)
    # 50 Gbit/s leave 47.82 to the payload; a connection moves 700 KiB fifty times a second, 286.7 Mbit/s.
    assert [(cut.hosts, cut.wanted) for cut in cuts] == [(("east-1", "west-0"), 184), (("west-1", "far-0"), 184)]
    assert cuts[0].carried == pytest.approx(64 * 0.28672 / 47.82, rel=1e-3)


def test_filled_pairs_and_configured_numbers_are_not_cut() -> None:
    narrow, wide = point(rate="1Gbit"), point(rate="100Gbit")
    assert cut_pairs(narrow.topology, narrow.variants[0].pairs, AUTO) == ()
    assert cut_pairs(wide.topology, wide.variants[0].pairs, TransportSpec(connections=64)) == ()


def test_the_margin_alone_is_cut_without_loss() -> None:
    # 17.6 Gbit/s leave 16.8 Gbit/s to the payload, which 59 connections carry and 65 fill with a tenth to spare.
    near = point(rate="17.6Gbit")
    assert cut_pairs(near.topology, near.variants[0].pairs, AUTO)[0] == CutPair(("east-1", "west-0"), 65, 1.0)


def test_connections_fill_the_faster_direction_of_a_pair() -> None:
    topology = {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "10ms", "rate": "10Gbit", "node_pair_rate": "100Mbit"},
        "links": [{"from": "west", "to": "east", "node_pair_rate": "1Gbit"}],
    }
    (of,) = parse_experiment({"topology": topology}, "exp.yaml", Path()).points()
    assert counted(of, AUTO) == {("east-0", "west-0"): 4}


def test_settings_of_tcp_are_those_of_the_transport() -> None:
    transport = TransportSpec.model_validate({"window": "1MiB", "congestion": "reno", "slow_start_after_idle": False})
    settings = tcp_settings(transport)
    assert (settings.window_bytes, settings.congestion, settings.slow_start_after_idle) == (2**20, "reno", False)
    assert window_bps(AUTO, 0) == float("inf")
