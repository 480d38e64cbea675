"""What a rack of machines does not run is refused while the file is read."""

from pathlib import Path
from typing import Any

import pytest

from ground.strict_model import InputError
from runner.planner.experiment_file import parse_experiment

DOCUMENT: dict[str, Any] = {
    "name": "rack",
    "engine": "rack",
    "topology": {
        "datacenters": [{"name": name, "hosts": 1, "serving_hosts": 1} for name in ("east", "west")],
        "wan": {"latency": "1ms"},
    },
    "compute": {"forward": "1ms", "backward": "2ms", "activation": "1KiB"},
    "training": {"microbatches": 2},
    "variants": [{"name": "gpipe", "schedule": "gpipe"}],
}


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"clock": "virtual"}, "clock: the machines of a rack keep real time: give clock: real, or engine: emulate"),
    ],
)
def test_what_runs_on_one_machine_only_is_refused_on_a_rack(changes: dict[str, Any], refusal: str) -> None:
    parse_experiment(DOCUMENT, "test", Path())
    with pytest.raises(InputError) as refused:
        parse_experiment({**DOCUMENT, **changes}, "test", Path())
    assert str(refused.value) == f"test: {refusal}"
