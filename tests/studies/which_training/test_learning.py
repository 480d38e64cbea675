import json
from pathlib import Path

import pytest

from studies.which_training import learning
from studies.which_training.grid import Grid, SettingPrice
from studies.which_training.learning import (
    DATA_PARALLEL,
    LEARNERS,
    LEARNING_RATES,
    Curve,
    LossTimes,
    at_best_rates,
    common_loss,
    iterations_to_loss,
    learner_of,
    learning_text,
    learnt,
    training_of,
)
from studies.which_training.setting import ATOM_OPTIONS, DILOCO_OPTIONS, STREAMING_OPTIONS, Method, Wan

CURVES = [
    Curve(DATA_PARALLEL, 0.001, 0, ((5, 4.0), (10, 3.0), (15, 3.1))),
    Curve(DATA_PARALLEL, 0.001, 1, ((5, 3.01), (10, 2.9), (15, 2.8))),
    Curve(Method.DILOCO, 0.001, 0, ((5, 4.0), (10, 3.5), (15, 3.02))),
]


def test_the_loss_to_reach_is_the_lowest_that_every_training_reached() -> None:
    assert common_loss(CURVES) == 3.05
    assert common_loss(CURVES[:1]) == 3.0


def test_iterations_to_a_loss_are_those_of_the_first_evaluation_at_it_or_below() -> None:
    assert iterations_to_loss(CURVES, DATA_PARALLEL, 3.05) == (7.5, 5, 10)
    assert CURVES[2].iterations_to(3.02) == 15
    with pytest.raises(ValueError, match="no loss of 2"):
        CURVES[0].iterations_to(2)


@pytest.mark.parametrize("method", list(Method))
def test_every_synchronous_method_learns_as_data_parallelism_does(method: Method) -> None:
    assert learner_of(method) in LEARNERS
    assert (learner_of(method) == DATA_PARALLEL) == method.synchronous


@pytest.mark.parametrize(
    ("method", "options", "replicas"),
    [(Method.DILOCO, DILOCO_OPTIONS, 3), (Method.STREAMING, STREAMING_OPTIONS, 3), (Method.ATOM, ATOM_OPTIONS, 12)],
)
def test_what_is_learnt_is_synchronised_as_the_map_says(
    method: Method, options: dict[str, object], replicas: int
) -> None:
    training = training_of(method, 0.002, 1)
    synchronization = training.synchronization
    assert synchronization is not None
    assert (training.replicas, training.learning_rate, training.seed) == (replicas, 0.002, 1)
    defaults = {"fragments": 1, "delay": 0, "alpha": 0, "wire": "fp32"}
    found = {name: getattr(synchronization, name) for name in ("sync_every", *defaults)}
    assert found == defaults | {name: value for name, value in options.items() if name != "swap"}


def test_a_training_that_is_kept_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for learner in LEARNERS:
        for rate in LEARNING_RATES:
            for seed in range(learning.SEEDS):
                file = learning._file(training_of(learner, rate, seed), tmp_path)
                file.write_text(json.dumps({"losses": [[5, 3.0 + seed + rate]]}))
    monkeypatch.setattr(learning, "ProcessPoolExecutor", None)
    curves = learnt(tmp_path, lambda _: None)
    assert len(curves) == len(LEARNERS) * learning.SEEDS
    best = min(LEARNING_RATES)
    assert {curve.losses for curve in curves} == {((5, 3.0 + seed + best),) for seed in range(learning.SEEDS)}


def test_each_learner_is_taken_at_the_rate_at_which_it_learns_most() -> None:
    def ending(learner: str, rate: float, *losses: float) -> list[Curve]:
        return [Curve(learner, rate, seed, ((5, loss - 1), (10, loss))) for seed, loss in enumerate(losses)]

    of_dp = ending(DATA_PARALLEL, 0.002, 3.0, 3.1, 9.0)
    of_diloco = ending(Method.DILOCO, 0.001, 2.9, 2.9, 2.9)
    others = [*ending(DATA_PARALLEL, 0.001, 2.0, 3.2, 3.3), *ending(Method.DILOCO, 0.002, 3.0, 3.0, 3.0)]
    assert at_best_rates([*of_dp, *of_diloco, *others]) == [*of_dp, *of_diloco]


WAN = Wan(50, 1_000_000_000)

GRID = Grid.of(SettingPrice(method, "", WAN, 10.0 + position, 1) for position, method in enumerate(Method))

LEARNT = [
    Curve(learner, 0.001, seed, ((5, 4.0), (10 + slower + 5 * seed, 3.0)))
    for learner, slower in ((DATA_PARALLEL, 0), (Method.DILOCO, 10), (Method.STREAMING, 20), (Method.ATOM, 30))
    for seed in range(3)
]

TIMES = LossTimes.of(GRID, LEARNT)


def test_the_time_to_a_loss_is_iterations_to_it_times_the_simulated_iteration() -> None:
    assert TIMES.loss == 3.0
    assert TIMES.iterations(Method.VARUNA) == (15, 10, 20)
    assert TIMES.time_s(Method.VARUNA, WAN) == 15 * GRID.price(WAN, Method.VARUNA).iteration_s
    assert TIMES.time_s(Method.DILOCO, WAN) == 25 * GRID.price(WAN, Method.DILOCO).iteration_s


def test_soonest_are_all_whose_seeds_overlap_with_those_of_the_soonest() -> None:
    # One datacenter takes 100 to 200 s, the other synchronous methods 110 to 260 s, and DiLoCo 280 s at least.
    assert TIMES.soonest(WAN) == (Method.ONE, Method.ATLAS, Method.VARUNA, Method.HIERARCHICAL)


def test_the_tables_say_what_iterations_are_worth_and_the_joined_times() -> None:
    text = learning_text(TIMES)
    assert "| DiLoCo | 0.001 | 25 (20 to 30) | 1.67x |" in text
    assert "| Varuna | 3.0 |" in text
    assert "3.00" in text


def test_a_loss_that_a_method_never_reached_has_no_time() -> None:
    with pytest.raises(ValueError, match="no loss"):
        LossTimes(GRID, LEARNT, 2.0).time_s(Method.VARUNA, WAN)
