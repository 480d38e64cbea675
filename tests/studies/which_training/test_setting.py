from pathlib import Path

import pytest

from studies.which_training.setting import (
    NODE_PAIR_BPS,
    SEQUENCES,
    SYNC_EVERY,
    Method,
    TriedSetting,
    Wan,
    candidates,
    transports,
)
from wanbed.runner.planner.experiment_file import parse_experiment

WAN = Wan(25, 300_000_000)

TRIED = [candidate for method in Method for candidate in candidates(method, WAN)]


@pytest.mark.parametrize("candidate", TRIED, ids=lambda candidate: f"{candidate.method}, {candidate.label}")
def test_every_candidate_is_an_experiment_that_trains_on_the_same_sequences(candidate: TriedSetting) -> None:
    (point,) = parse_experiment(candidate.document, "candidate", Path()).points()
    (variant,) = point.variants
    assert variant.sequences_per_iteration == SEQUENCES
    assert {each["latency_ns"] for link in point.topology.wan for each in link.documents()} == {25_000_000}


@pytest.mark.parametrize("method", list(Method))
def test_labels_tell_the_candidates_of_a_method_apart(method: Method) -> None:
    labels = [candidate.label for candidate in candidates(method, WAN)]
    assert len(set(labels)) == len(labels) > 0


def test_methods_that_synchronise_seldom_are_measured_over_a_whole_period() -> None:
    for candidate in TRIED:
        training = candidate.document["training"]
        assert training["iterations"] - training["warmup"] == (2 if candidate.method.synchronous else SYNC_EVERY)


def test_no_candidate_starts_slowly_after_a_pause_over_the_wan() -> None:
    over_wan = [candidate for candidate in TRIED if candidate.method is not Method.ONE]
    assert not any(candidate.variant["transport"]["slow_start_after_idle"] for candidate in over_wan)


def test_the_window_of_a_single_connection_has_room_for_several_times_what_the_node_pair_holds() -> None:
    wan = Wan(100, 10_000_000_000)
    (_, one) = transports(wan)[1]
    assert wan.in_flight_bytes == NODE_PAIR_BPS * 0.2 / 8
    assert int(one["window"].removesuffix("B")) == pytest.approx(4 * wan.in_flight_bytes)


def test_a_wan_without_a_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Wan(10, 0)
