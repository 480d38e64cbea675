"""What the report's figures add up to, against sums taken over the run's own files without this project's code."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from wanbed import results
from wanbed.results.report.charts.gpu_time import PARTS, gpu_time_shares
from wanbed.results.report.charts.link_throughput import link_rates
from wanbed.results.report.text_formats import table_text

BuildRun = Callable[..., Path]
COMPUTATIONS = {"forward", "recompute", "backward", "optimizer"}


def trials_of(path: Path) -> list[tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]]:
    """Facts, spans and link samples of every trial, straight from its files."""
    return [
        (
            json.loads(facts.read_text()),
            pq.read_table(facts.with_name("spans.parquet")).to_pylist(),
            pq.read_table(facts.with_name("link_samples.parquet")).to_pylist(),
        )
        for facts in sorted(path.glob("trials/*/*/*/trial.json"))
    ]


def wan_bytes(samples: list[dict[str, Any]]) -> int:
    counts: dict[tuple[str, str], list[int]] = {}
    for sample in samples:
        if sample["scope"] == "link":
            counts.setdefault((sample["source"], sample["destination"]), []).append(sample["wire_bytes"])
    return sum(max(values) - min(values) for values in counts.values())


def own_windows_ns(spans: list[dict[str, Any]], warmup: int) -> dict[int, tuple[int, int]]:
    """When each rank was measured: from its own end of the warm-up as long as training, or to its own last end."""
    begin_ns, end_ns = window_ns(spans, warmup)
    computed = [span for span in spans if span["kind"] in COMPUTATIONS]
    found = {}
    for rank in {span["rank"] for span in computed}:
        own = [span for span in computed if span["rank"] == rank]
        before = max(span["end_ns"] for span in own if span["iteration"] < warmup)
        found[rank] = before, max(before + end_ns - begin_ns, *(span["end_ns"] for span in own))
    return found


def window_ns(spans: list[dict[str, Any]], warmup: int) -> tuple[int, int]:
    """From the end of the warm-up on the last rank to the end of training."""
    trained = [span for span in spans if span["kind"] != "prefill"]
    before = max(span["end_ns"] for span in trained if span["iteration"] < warmup)
    return before, max(span["end_ns"] for span in trained)


def busy_ns(spans: list[dict[str, Any]], warmup: int) -> int:
    """Of computations that do not overlap on any GPU, as those of these runs."""
    counted = (span for span in spans if span["kind"] in COMPUTATIONS and span["iteration"] >= warmup)
    return sum(span["end_ns"] - span["start_ns"] for span in counted)


def rows_of(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    rows = csv.DictReader(io.StringIO(table_text([results.load(path)], "csv")))
    return {(row.get("topology.wan.latency", ""), row["variant"]): row for row in rows}


def test_wan_bytes_are_the_sum_over_the_links_counters(build_run: BuildRun) -> None:
    path = build_run()
    text = rows_of(path)
    for facts, _, samples in trials_of(path):
        latency = ("10ms", "40ms")[facts["sweep_point"]]
        assert int(text[latency, facts["variant"]]["wan_bytes"]) == wan_bytes(samples)


def test_the_parts_of_the_gpus_time_are_the_window_of_every_gpu_to_the_nanosecond(build_run: BuildRun) -> None:
    path = build_run(repeats=2)
    total_ns: dict[tuple[int, str], int] = {}
    training_ns: dict[tuple[int, str], int] = {}
    for facts, spans, _ in trials_of(path):
        key = (facts["sweep_point"], facts["variant"])
        begin_ns, end_ns = window_ns(spans, 1)
        total_ns[key] = total_ns.get(key, 0) + len(own_windows_ns(spans, 1)) * (end_ns - begin_ns)
        training_ns[key] = training_ns.get(key, 0) + busy_ns(spans, 1)
    found = gpu_time_shares(results.load(path))
    assert {(each.point, each.variant): each.total_ns for each in found} == total_ns
    assert {(each.point, each.variant): each.parts_ns["training"] for each in found} == training_ns
    for each in found:
        assert sum(each.parts_ns.values()) == each.total_ns
        assert sum(each.share(part) for part in PARTS) == pytest.approx(1)


def test_prefill_and_what_is_left_idle_are_what_training_left(build_run: BuildRun) -> None:
    path = build_run(variants=("alone", "filled"), latencies=("40ms",), prefill={"filled": 30.0})
    rows = rows_of(path)
    (facts, spans, _) = next(trial for trial in trials_of(path) if trial[0]["variant"] == "filled")
    windows_ns = own_windows_ns(spans, 1)
    whole_ns = sum(end_ns - begin_ns for begin_ns, end_ns in windows_ns.values())

    def filled_within(windows_ns: dict[int, tuple[int, int]]) -> int:
        prefill = [(windows_ns[s["rank"]], s) for s in spans if s["kind"] == "prefill"]
        return sum(max(0, min(s["end_ns"], end) - max(s["start_ns"], begin)) for (begin, end), s in prefill)

    filled_ns = filled_within(windows_ns)
    row, alone = (rows["", name] for name in ("filled", "alone"))
    training = busy_ns(spans, 1) / whole_ns
    assert float(row["prefill_fraction"]) == pytest.approx(filled_ns / whole_ns)
    assert float(row["gpu_utilization_fraction"]) == pytest.approx(training)
    assert float(row["gpu_utilization_with_prefill_fraction"]) == pytest.approx(training + filled_ns / whole_ns)
    assert alone["gpu_utilization_with_prefill_fraction"] == alone["gpu_utilization_fraction"]
    idle = sum(float(value) for name, value in row.items() if name.startswith("idle_"))
    assert idle + training + filled_ns / whole_ns == pytest.approx(1)
    begin_ns, end_ns = window_ns(spans, 1)
    common_ns = dict.fromkeys(windows_ns, (begin_ns, end_ns))
    assert float(row["prefill_pool_equivalent_gpus"]) == pytest.approx(filled_within(common_ns) / (end_ns - begin_ns))
    assert facts["prefill"]["deadline_overruns"] == int(row["prefill_deadline_overruns"]) == 0


def test_what_became_of_the_requests_is_what_their_table_says(build_run: BuildRun) -> None:
    path = build_run(variants=("alone", "filled"), latencies=("40ms",), prefill={"filled": 60.0}, repeats=2)
    text = rows_of(path)["", "filled"]
    offered: list[dict[str, Any]] = []
    tokens, gpu_ns = 0, 0
    for facts, spans, _ in trials_of(path):
        if facts["variant"] == "filled":
            begin_ns, end_ns = window_ns(spans, 1)
            folder = path / "trials" / "point-000" / "filled" / f"repeat-{facts['repeat']}"
            rows = pq.read_table(folder / "prefill_requests.parquet").to_pylist()
            offered += [row for row in rows if begin_ns <= row["arrival_ns"] < end_ns]
            ended = [row for row in rows if row["prefilled_ns"] and begin_ns <= row["prefilled_ns"] <= end_ns]
            tokens += sum(row["prompt_tokens"] for row in ended)
            gpu_ns += 6 * (end_ns - begin_ns)
    assert int(text["prefill_offered_requests"]) == len(offered)
    for outcome in ("admitted", "rejected"):
        assert int(text[f"prefill_{outcome}_requests"]) == sum(row["outcome"] == outcome for row in offered) > 0
    assert text["prefill_rejected_slo_requests"] == text["prefill_rejected_requests"]
    for name, end in (("ttft", "kv_moved_ns"), ("ttft_without_kv", "prefilled_ns")):
        times = sorted(row[end] - row["arrival_ns"] for row in offered if row[end])
        for percent in (50, 90, 95, 99):
            wanted = next(t for n, t in enumerate(times, start=1) if 100 * n >= percent * len(times))
            assert float(text[f"prefill_{name}_p{percent}_s"]) == wanted / 1e9
    assert float(text["prefill_tokens_per_gpu_hour"]) == pytest.approx(tokens / (gpu_ns / 3.6e12))


def test_the_training_part_is_the_utilization_of_the_table(build_run: BuildRun) -> None:
    for row in rows_of(build_run()).values():
        assert float(row["training_fraction"]) == pytest.approx(float(row["gpu_utilization_fraction"]), rel=1e-12)
        shares = [float(value) for name, value in row.items() if name.startswith("idle_")]
        assert sum(shares) + float(row["training_fraction"]) == pytest.approx(1)


def test_throughput_over_time_adds_up_to_the_bytes_of_the_links(build_run: BuildRun) -> None:
    path = build_run(latencies=("10ms",), variants=("only",))
    run = results.load(path)
    ((_, _, samples),) = trials_of(path)
    for bins in (7, 240):
        found = link_rates(run.link_samples, int(run.spans["end_ns"].max()), bins)
        carried = sum(float((each.rates_bps * np.diff(each.edges_ns)).sum()) / 8e9 for each in found.values())
        assert carried == pytest.approx(wan_bytes(samples))
