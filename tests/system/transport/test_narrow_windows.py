"""Cells whose connections are many and whose windows are narrow train to the end: a witness, in virtual time."""

from pathlib import Path

from tests.support.runner.called_wanbed import run_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1, gpus_per_host: 2}, {name: west, hosts: 1, gpus_per_host: 2}]
  intra: {latency: 20us, rate: 5Gbit}
  wan: {latency: 10ms, rate: 300Mbit}
compute: {forward: 5ms, backward: 10ms, activation: 2MiB, gradient: 64KiB}
training: {stages: 2, pipelines: 2, microbatches: 1, iterations: 2, warmup: 1}
variants:
  - name: many
    schedule: atlas
    transport: {connections: 40, window: 96KiB, sharing: temporal, pipelines_per_cell: 2}
  - name: narrow
    schedule: atlas
    transport: {connections: 64, window: 4KiB, sharing: temporal, pipelines_per_cell: 2}
clock: virtual
"""


def test_cells_of_many_connections_and_of_narrow_windows_train_to_the_end(tmp_path: Path) -> None:
    kernel_or_skip()
    summary = run_here(EXPERIMENT, tmp_path).summary
    times_s: dict[str, list[float]] = dict(zip(summary["variant"], summary["iteration_times_s"], strict=True))
    assert [len(times_s[name]) for name in ("many", "narrow")] == [1, 1]
    # Over all of its windows a node pair of 20 ms carries 13 MB/s of the line's 37 MB/s.
    assert times_s["narrow"][0] > times_s["many"][0]
