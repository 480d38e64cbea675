import json
from pathlib import Path

import pytest
import yaml

from studies.which_training.candidates import candidates
from studies.which_training.grid_tables import thousands
from studies.which_training.pricing import priced, simulated_iteration
from studies.which_training.setting import TOKENS, Method, Wan
from wanbed.results import load
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulated_run

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
