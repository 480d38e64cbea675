"""A link that is down for longer than a lost peer's silence: training waits for it, as it was told beforehand."""

from pathlib import Path

from tests.support.runner.called_wanbed import run_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.results.metrics.iterations import iteration_windows

OUTAGE_S, ITERATIONS = 15, 5
EXPERIMENT = f"""
topology:
  datacenters: [{{name: east, hosts: 1}}, {{name: west, hosts: 2}}]
  wan: {{latency: 10ms, rate: 100Mbit, events: [{{at: 1s, for: {OUTAGE_S}s, down: true}}]}}
compute: {{forward: 20ms, backward: 40ms, activation: 64KiB, gradient: 64KiB}}
training: {{microbatches: 4, iterations: {ITERATIONS}}}
background:
  - {{name: backup, from: east, to: west, rate: 1Mbit, connections: 2}}
clock: virtual
"""


def test_an_outage_that_is_configured_is_outwaited(tmp_path: Path) -> None:
    kernel_or_skip()
    run = run_here(EXPERIMENT, tmp_path)
    (trial,) = run.trials
    assert "faults" not in trial.facts
    windows = iteration_windows(run.spans)
    assert len(windows) == ITERATIONS
    longest_s = (windows["end_ns"] - windows["start_ns"]).max() / 1e9
    # TCP's timer may have been doubled to as much again when the link came back.
    assert OUTAGE_S < longest_s < 2 * OUTAGE_S + 2
    sent = run.background_samples.groupby("connection")["received_bytes"].agg(["min", "max"])
    assert (sent["max"] > sent["min"]).all()
