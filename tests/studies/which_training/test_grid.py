import json
from pathlib import Path

import pytest
import yaml

from studies.which_training.grid import Grid, SettingPrice, over_wan, priced, simulated_iteration
from studies.which_training.grid_tables import thousands
from studies.which_training.setting import TOKENS, Method, Wan, candidates
from wanbed.results import load
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulated_run

NEAR, FAR = Wan(10, 1_000_000_000), Wan(100, 1_000_000_000)

GRID = Grid.of(
    [
        SettingPrice(Method.VARUNA, "slow", NEAR, 40, 1),
        SettingPrice(Method.VARUNA, "quick", NEAR, 20, 1),
        SettingPrice(Method.VARUNA, "as quick", NEAR, 20, 1),
        SettingPrice(Method.ONE, "alone", NEAR, 15, 0),
        SettingPrice(Method.DILOCO, "seldom", NEAR, 5, 1),
        SettingPrice(Method.VARUNA, "far", FAR, 90, 1),
    ]
)


def test_a_method_is_worth_its_fastest_setting_and_of_two_the_one_tried_first() -> None:
    assert GRID.price(NEAR, Method.VARUNA).label == "quick"
    assert GRID.price(FAR, Method.VARUNA).label == "far"


def test_the_fastest_is_that_of_the_methods_asked_for_at_that_wan() -> None:
    assert GRID.fastest(NEAR).method is Method.DILOCO
    assert GRID.fastest(NEAR, lambda method: method.synchronous).method is Method.ONE
    assert GRID.fastest(NEAR, lambda method: method.synchronous and over_wan(method)).method is Method.VARUNA
    assert GRID.fastest(FAR).method is Method.VARUNA


def test_methods_within_a_hundredth_of_the_fastest_count_as_equally_fast() -> None:
    close = Grid.of(
        SettingPrice(method, "", NEAR, seconds, 1)
        for method, seconds in ((Method.VARUNA, 10.0), (Method.ATLAS, 10.09), (Method.ATOM, 10.2))
    )
    assert [price.method for price in close.as_fast(NEAR)] == [Method.ATLAS, Method.VARUNA]
    assert [price.method for price in close.as_fast(NEAR, lambda method: not method.synchronous)] == [Method.ATOM]


def test_at_the_break_even_both_take_as_long_for_the_same_loss() -> None:
    times = GRID.break_even(NEAR, lambda _: True)
    local, synchronous = GRID.price(NEAR, Method.DILOCO), GRID.price(NEAR, Method.ONE)
    tokens = 1e9
    assert times * tokens / local.tokens_per_s == pytest.approx(tokens / synchronous.tokens_per_s)
    assert GRID.break_even(NEAR, over_wan) == pytest.approx(4)


def test_tokens_a_second_are_those_of_an_iteration_over_its_time() -> None:
    assert GRID.price(NEAR, Method.DILOCO).tokens_per_s == TOKENS / 5


def test_a_method_that_was_not_priced_is_no_answer() -> None:
    with pytest.raises(KeyError):
        GRID.price(FAR, Method.ATOM)


def test_an_iteration_without_time_is_refused() -> None:
    with pytest.raises(ValueError, match="takes time"):
        SettingPrice(Method.ATOM, "none", NEAR, 0, 0)


WAN = Wan(10, 10_000_000_000)

PAGE = Path(__file__).parents[3] / "docs/which-training.md"


def lines(*_: object) -> None:
    """Say nothing."""


@pytest.mark.parametrize("method", [Method.HIERARCHICAL, Method.ATOM])
def test_the_price_is_the_iteration_time_that_wanbed_simulate_reports(method: Method, tmp_path: Path) -> None:
    candidate = candidates(method, WAN)[0]
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(candidate.document))
    experiment = load_experiment(tmp_path / "one.yaml", [])
    run = load(simulated_run(experiment, tmp_path, resume=False, pool=ProcessPool(1), log=lines, stream=None))
    (row,) = run.summary.to_dict("records")
    iteration_s, _ = simulated_iteration(candidate.document)
    assert iteration_s == pytest.approx(row["iteration_time_s"], rel=1e-3)
    assert row["tokens_per_s"] == pytest.approx(TOKENS / iteration_s, rel=1e-3)


def test_prices_are_kept_and_not_simulated_again(tmp_path: Path) -> None:
    tried = candidates(Method.HIERARCHICAL, WAN)[:1]
    (price,) = priced(tried, tmp_path, lines)
    (kept,) = tmp_path.iterdir()
    written = json.loads(kept.read_text())
    assert written["document"] == tried[0].document
    kept.write_text(json.dumps({**written, "iteration_s": 2 * price.iteration_s}))
    (again,) = priced(tried, tmp_path, lines)
    assert again.iteration_s == 2 * price.iteration_s


@pytest.mark.parametrize("wan", [WAN, Wan(100, 100_000_000)], ids=str)
@pytest.mark.parametrize("method", [Method.ONE, Method.HIERARCHICAL, Method.ATOM])
def test_the_page_says_what_the_simulator_says(method: Method, wan: Wan) -> None:
    best_s = min(simulated_iteration(candidate.document)[0] for candidate in candidates(method, wan))
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    (row,) = (row for row in rows if row[0] == f"| {method}" and row[1] == f"{wan.latency_ms} ms")
    position = 2 + (4 if wan is WAN else 0)
    assert row[position].removesuffix(" |") == thousands(TOKENS / best_s)
