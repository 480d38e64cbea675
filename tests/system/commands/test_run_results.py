"""What an emulated run leaves: a trace that keeps every rule, and one set of figures wherever it is asked."""

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.present import present
from tests.support.results.perfetto_engine import Engine
from tests.support.results.trace_rules import load_trace, problems
from tests.support.runner.called_wanbed import run_here
from tests.support.runner.wanbed_command import printed, wanbed
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed import results
from wanbed.results import metrics

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 2}, {name: west, hosts: 2}]
  wan: {latency: 20ms, rate: 1Gbit, node_pair_rate: 20Mbit}
compute: {forward: 10ms, backward: 20ms, activation: 128KiB, gradient: 256KiB}
training: {stages: 2, pipelines: 2, microbatches: 4, iterations: 3, warmup: 1}
variants:
  - {name: one connection, schedule: 1f1b, transport: {window: 64KiB}}
  - {name: atlas, schedule: atlas, transport: {connections: auto, window: 64KiB, sharing: temporal}}
clock: virtual
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel_or_skip()
    return run_here(EXPERIMENT, tmp_path_factory.mktemp("results")).path


def test_the_trace_keeps_every_rule_and_perfetto_finds_nothing_to_complain_of(run: Path, tmp_path: Path) -> None:
    counts = printed("trace", run, "--output", tmp_path / "trace.json")
    assert problems(load_trace(tmp_path / "trace.json")) == []
    sends = int((results.load(run).spans["kind"] == "send").sum())
    assert sends == 2 * 2 * 1 * 2 * 3 * 4, "variants, tensors, boundaries, pipelines, iterations, microbatches"
    assert counts["flows"] == sends
    engine = Engine()
    try:
        found, arrows = engine.ask(
            (tmp_path / "trace.json").read_bytes(),
            "select count(*) as slices from slice",
            "select count(*) as back from flow join slice as send on slice_out = send.id"
            " join slice as receive on slice_in = receive.id where receive.ts < send.ts",
        )
    finally:
        engine.close()
    assert found == [{"slices": counts["slices"]}]
    assert arrows == [{"back": 0}]


def test_report_summary_and_traces_tell_the_same(run: Path) -> None:
    loaded = results.load(run)
    written = pq.read_table(run / "summary.parquet").to_pylist()
    reported = list(csv.DictReader(wanbed("report", run, "--format", "csv").stdout.splitlines()))
    assert [row["variant"] for row in reported] == ["one connection", "atlas"]
    for row, summary, trial in zip(reported, written, loaded.trials, strict=True):
        spans = loaded.spans[loaded.spans["variant"] == trial.variant]
        links = loaded.link_samples[(loaded.link_samples["variant"] == trial.variant)]
        last = links[links["scope"] == "link"].groupby(["source", "destination"])["wire_bytes"].max()
        assert int(float(row["wan_bytes"])) == summary["wan_bytes"] == last.sum()
        window = present(metrics.measured_window(metrics.successive_windows(metrics.iteration_windows(spans)), 1))
        busy = metrics.gpu_busy(spans, window)
        assert (metrics.idle_causes(spans, window).sum(axis=1) == busy["idle_ns"]).all()
        shares = [
            float(value)
            for name, value in row.items()
            if name.endswith("_fraction")
            and not name.startswith(("gpu_utilization", "cores_", "network_core_", "lost_"))
        ]
        assert sum(shares) == pytest.approx(1)
        assert float(row["training_fraction"]) == pytest.approx(summary["gpu_utilization"])
        assert summary["gpu_utilization"] == pytest.approx(busy["busy_ns"].sum() / (len(busy) * window.length_ns))


def test_every_payload_that_was_sent_was_received_and_crossed_the_wan(run: Path) -> None:
    spans = results.load(run).spans
    for kind in ("activation", "gradient"):
        sent, received = (spans[(spans["kind"] == end) & (spans["tensor"] == kind)] for end in ("send", "receive"))
        assert sent["size_bytes"].sum() == received["size_bytes"].sum() > 0
