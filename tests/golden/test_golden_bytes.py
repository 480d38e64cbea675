"""Nothing that users see changes while the house is rebuilt, but for what a commit records anew and names.

These tests go when the house stands. ``python -m tests.golden`` records outputs.
"""

from pathlib import Path

import pytest

from tests.golden.record import REFUSALS, SIMULATIONS, VIRTUAL_TIME, one_line, read
from tests.golden.refusals import refusals
from tests.golden.simulated_bytes import EXPERIMENTS, shipped, simulated_bytes
from tests.golden.virtual_figures import NAMES, WITHIN, virtual_figures
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip


def test_every_wrong_value_has_the_message_that_it_had() -> None:
    assert {name: one_line(message) for name, message in refusals()} == read(REFUSALS)


@pytest.mark.soak
@pytest.mark.parametrize("file", shipped(), ids=lambda file: file.relative_to(EXPERIMENTS).as_posix())
def test_a_shipped_experiment_simulates_to_the_same_spans_and_reports(file: Path, tmp_path: Path) -> None:
    recorded = read(SIMULATIONS)
    outputs = {name: one_line(output) for name, output in simulated_bytes(file, tmp_path)}
    assert outputs == {name: recorded[name] for name in outputs}


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_a_run_in_virtual_time_takes_as_long_as_it_did(name: str, tmp_path: Path) -> None:
    kernel_or_skip()
    recorded = read(VIRTUAL_TIME)
    for trial, seconds in virtual_figures(name, tmp_path):
        assert seconds == pytest.approx(float(recorded[trial]), rel=WITHIN)
