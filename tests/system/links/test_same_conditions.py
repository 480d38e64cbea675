"""The kernel's links are the same however their conditions are written: a witness, in virtual time."""

from pathlib import Path

import pytest

from tests.support.runner.called_wanbed import run_here, simulate_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
compute: {forward: 2ms, backward: 4ms, activation: 128KiB}
training: {microbatches: 2, iterations: 2}
sweep:
  topology.wan:
"""
CONSTANT = """\
    - {latency: 20ms, rate: 12Mbit}
    - {latency: 3ms, rate: 90Mbit, events: [{at: 0s, latency: 20ms, rate: 12Mbit}]}
    - {trace: row.csv}
    - {latency: 20ms, trace: {mahimahi: steady}, loop: true}
"""
CHANGING = """\
    - {latency: 20ms, rate: 12Mbit, events: [{at: 300ms, for: 5s, rate: 5Mbit}]}
    - {trace: rows.csv}
"""
DIFFERENCE = 0.001
"""How far runs in virtual time may lie apart."""


@pytest.mark.parametrize(
    "links", [pytest.param(CONSTANT, id="constant"), pytest.param(CHANGING, id="changing", marks=pytest.mark.soak)]
)
def test_a_link_takes_as_long_however_it_is_written(tmp_path: Path, links: str) -> None:
    experiment = EXPERIMENT + links
    kernel_or_skip()
    (tmp_path / "row.csv").write_text("t_s,latency,rate\n0,20ms,12Mbit\n")
    (tmp_path / "rows.csv").write_text("t_s,latency,rate\n0,20ms,12Mbit\n0.3,20ms,5Mbit\n5.3,20ms,12Mbit\n")
    (tmp_path / "steady").write_text("".join(f"{line}\n" for line in range(1, 1001)))
    for run, difference in (
        (run_here(f"{experiment}clock: virtual\n", tmp_path), DIFFERENCE),
        (simulate_here(experiment, tmp_path), 0),
    ):
        first, *others = run.summary.to_dict("records")
        assert first["calibrated"] or difference == 0
        assert others
        for other in others:
            assert other["iteration_times_s"] == pytest.approx(first["iteration_times_s"], rel=difference)
