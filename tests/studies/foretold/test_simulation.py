from dataclasses import replace
from pathlib import Path

import pytest

from studies.foretold.simulation import simulated
from studies.foretold.source import PUBLISHED, Row
from tests.studies.foretold.outcomes import outcome

EXPERIMENT = """
topology:
  datacenters: [{name: a, hosts: 1}, {name: b, hosts: 1}]
  wan: {latency: 10ms, rate: 80Mbit}
compute: {forward: 10ms, backward: 20ms, activation: 1MB}
training: {stages: 2, microbatches: 1, iterations: 1, warmup: 0}
sweep: {compute.activation: [1MB, 2MB]}
variants:
  - {name: v, schedule: gpipe, transport: {model: ideal}}
"""

SECONDS = (0.060 + 2 * 0.110, 0.060 + 2 * 0.210)
"""Two stages compute, and two messages cross at 10 MB/s and 10 ms: at each sweep point."""


def row(folder: Path, **fields: object) -> Row:
    (folder / "e.yaml").write_text(EXPERIMENT)
    plain = outcome(1.0, 1.0).row
    form = plain.form.model_copy(update={"column": "makespan_s", "times": "[1, 1]", **fields})
    return replace(plain, folder=folder, form=form, cells={"what": "w", PUBLISHED: "0.7"})


def lines(*_: object) -> None:
    """Say nothing."""


def test_a_figure_is_the_weighted_sum_over_sweep_points(tmp_path: Path) -> None:
    rows = [
        row(tmp_path, times="[3, 1]", per="2"),
        row(tmp_path, times="[0, 1]", amount=1.0),
        row(tmp_path, times="[1, 0]", values={"topology.wan.latency": "20ms"}),
    ]
    several, throughput, farther = simulated(rows, tmp_path, lines)
    assert several.simulated == pytest.approx((3 * SECONDS[0] + SECONDS[1]) / 2, rel=1e-6)
    assert throughput.simulated == pytest.approx(1 / SECONDS[1], rel=1e-6)
    assert farther.simulated == pytest.approx(SECONDS[0] + 0.02, rel=1e-6)
    assert [each.row for each in (several, throughput, farther)] == rows


def test_a_variant_that_the_experiment_has_not_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="other"):
        simulated([row(tmp_path, variant="other")], tmp_path, lines)
