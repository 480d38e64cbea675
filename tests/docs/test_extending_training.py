"""The kind of training that docs/extending.md adds is resolved and simulated."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.pages import DOCS, blocks
from wanbed.ground.errors import InputError
from wanbed.runner import trainings
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.simulated_runs.simulated_trial import SimulatedTrial, simulated_record
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.trainings import registry

FOLDER = "wanbed.runner.trainings.alone"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the page's variant, which is registered as the page does it."""
    *layers, registration = blocks(DOCS / "extending.md", "python", "A kind of training")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "__init__.py").touch()
    for text in layers:
        first = text.splitlines()[0].removeprefix("# ")
        assert first.startswith("runner/trainings/alone/")
        (tmp_path / "alone" / Path(first).name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(trainings, "__path__", [*trainings.__path__, str(tmp_path)])
    trainings_before = dict(registry.TRAININGS)
    exec(registration, vars(registry))  # noqa: S102 - the page's own line
    yield importlib.import_module(f"{FOLDER}.resolution")
    registry.TRAININGS.clear()
    registry.TRAININGS.update(trainings_before)
    for name in [name for name in sys.modules if name.startswith(FOLDER)]:
        del sys.modules[name]


def experiment(**changes: Any) -> Experiment:
    document = {
        "engine": "simulate",
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "wan": {"latency": "20ms", "rate": "100Mbit"},
        },
        "compute": {"forward": "10ms", "backward": "20ms", "activation": "1MiB"},
        "training": {"microbatches": 4, "iterations": 3},
        "variants": [{"name": "alone", "schedule": "alone"}, {"name": "gpipe", "schedule": "gpipe"}],
        **changes,
    }
    return parse_experiment(document, "exp.yaml", Path())


def test_every_gpu_computes_all_microbatches_and_nothing_is_sent(page: ModuleType) -> None:
    (point,) = experiment().points()
    alone, pipeline = point.variants
    assert isinstance(alone, page.AloneVariant)
    simulation = simulate_variant(point.topology, alone, 3)
    assert simulation.iteration_time_ns(1) == 4 * 30_000_000
    assert simulation.utilization(4, 1) == 1
    assert simulate_variant(point.topology, pipeline, 3).iteration_time_ns(1) > 4 * 30_000_000


def test_a_trial_of_it_is_kept_and_trains_on_no_tokens_that_are_known(page: ModuleType) -> None:
    (point,) = experiment(model="gpt-tiny").points()
    records = [simulated_record(SimulatedTrial.of(trial, point), simulate_variant) for trial in point.trials()]
    assert [record.facts["tokens_per_iteration"] for record in records] == [None, 4 * 128]


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"variants": [{"name": "a", "schedule": "alone", "options": {"x": 1}}]}, "options: alone takes none"),
        (
            {"background": [{"name": "b", "from": "east", "to": "west"}]},
            "background runs beside trainings",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(page: ModuleType, changes: dict[str, Any], refusal: str) -> None:
    assert page.AloneVariant
    with pytest.raises(InputError, match=refusal):
        experiment(**changes)
