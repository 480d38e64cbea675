import json
import shutil
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.results.records.test_schema_upgrade import as_version
from tests.support.results.trace_rules import Slice, load_trace, names_of, nanoseconds, problems, slices_of
from wanbed.results.perfetto import trace_file
from wanbed.results.perfetto.trace_file import GAP_SHARE, TraceCounts, write_trace
from wanbed.results.reading.run import load_run
from wanbed.results.reading.selection import NoSuchTrialError, Selection
from wanbed.results.records.run_store import RunError, RunStore, TrialRecord
from wanbed.results.records.schema import SCHEMA_VERSION, TcpSample
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import LINK_SAMPLES_FILE, SPANS_FILE, TCP_TABLE

BuildRun = Callable[..., Path]
HOSTILE = ('<script>alert("1")</script>', "\u202eright to left", "a\tb\x07\n{}", "é☃𝄞 " + "long " * 60)
MS = 1_000_000


def written(run: Path, **asked: Any) -> tuple[dict[str, Any], TraceCounts]:
    counts = write_trace(run, run / "trace.json.gz", Selection(**asked))
    trace = load_trace(run / "trace.json.gz")
    assert problems(trace) == []
    return trace, counts


def trial_slices(trace: dict[str, Any]) -> list[Slice]:
    (trials,) = (own for own in slices_of(trace).values() if own[0].event["cat"] == "trial")
    return trials


def phases(trace: dict[str, Any]) -> Counter[str]:
    return Counter(event["ph"] for event in trace["traceEvents"])


def test_every_span_is_a_slice_of_exactly_its_times(build_run: BuildRun) -> None:
    path = build_run(latencies=("40ms",), variants=("one",))
    trace, _ = written(path)
    hosts = names_of(trace, "process_name")
    drawn = sorted(
        (hosts[process], each.event["name"].split(" ")[0], each.start_ns, each.end_ns, each.event["args"]["iteration"])
        for (process, _), own in slices_of(trace).items()
        for each in own
        if each.event["cat"] != "trial"
    )
    spans = load_run(path).spans
    named = spans["datacenter"] + " / " + spans["host"]
    columns = (named, *(spans[name] for name in ("kind", "start_ns", "end_ns", "iteration")))
    assert drawn == sorted(zip(*columns, strict=True))


def test_the_counts_are_those_of_the_file(build_run: BuildRun) -> None:
    trace, counts = written(build_run())
    found = phases(trace)
    assert found["s"] == found["f"] > 0
    assert counts == TraceCounts(4, found["X"] + found["b"], found["s"], found["C"])


def test_trials_stand_one_after_the_other_with_a_gap(build_run: BuildRun) -> None:
    trace, _ = written(build_run(repeats=2))
    trials = trial_slices(trace)
    about = [
        (each.event["args"]["sweep_point"], each.event["args"]["variant"], each.event["args"]["repeat"])
        for each in trials
    ]
    assert about == [(c, v, r) for c in (0, 1) for v in ("one connection", "many connections") for r in (0, 1)]
    assert trials[0].start_ns == 0
    for one, other in pairwise(trials):
        gap_ns = other.start_ns - one.end_ns
        assert gap_ns == pytest.approx(GAP_SHARE * (one.end_ns - one.start_ns), abs=1)
    inside = [each for own in slices_of(trace).values() for each in own]
    assert all(any(t.start_ns <= each.start_ns and each.end_ns <= t.end_ns for t in trials) for each in inside)


def test_iterations_say_whether_they_were_measured(build_run: BuildRun) -> None:
    trace, _ = written(build_run(latencies=("40ms",), variants=("one",)))
    pairs = [event for event in trace["traceEvents"] if event["ph"] == "b" and event["name"] != "iterations"]
    assert [(event["name"], event["args"]) for event in pairs] == [
        (f"iteration {k}", {"iteration": k, "measured": k > 0}) for k in range(3)
    ]


def test_throughput_over_time_is_what_the_links_carried(build_run: BuildRun) -> None:
    path = build_run()
    trace, _ = written(path)
    bits: Counter[str] = Counter()
    last: dict[Any, tuple[int, Decimal]] = {}
    scopes = names_of(trace, "process_name")
    for event in trace["traceEvents"]:
        if event["ph"] == "C" and "Mbit/s" in event["args"]:
            track, time_ns = (event["pid"], event["name"]), nanoseconds(event["ts"])
            before_ns, rate = last.get(track, (time_ns, Decimal(0)))
            bits[scopes[event["pid"]]] += int(rate * (time_ns - before_ns) / 1000)
            last[track] = (time_ns, event["args"]["Mbit/s"])
    samples = load_run(path).link_samples
    ends = samples.sort_values("time_ns").groupby(["sweep_point", "variant", "scope", "source", "destination"])[
        "wire_bytes"
    ]
    sent = (ends.last() - ends.first()).groupby("scope").sum() * 8
    assert bits["links between datacenters"] == pytest.approx(sent["link"], rel=1e-4)
    assert bits["pairs of hosts"] == pytest.approx(sent["node_pair"], rel=1e-4)


def test_a_selection_is_a_trace_of_its_own(build_run: BuildRun) -> None:
    trace, counts = written(build_run(), points=["topology.wan.latency=40ms"], variant="one connection", iteration=1)
    (trial,) = trial_slices(trace)
    assert (counts.trials, trial.event["args"]["swept"]) == (1, {"topology.wan.latency": "40ms"})
    others = [each for own in slices_of(trace).values() for each in own if each is not trial]
    assert {each.event["args"].get("iteration", 1) for each in others} == {1}
    own = [each for each in others if each.event["cat"] != "trial"]
    assert (min(each.start_ns for each in own), max(each.end_ns for each in own)) == (0, trial.end_ns)


def test_an_iteration_that_no_trial_has_is_refused_and_nothing_is_left(build_run: BuildRun) -> None:
    path = build_run()
    with pytest.raises(NoSuchTrialError, match=r"--iteration 3: there is none such, choose of: 0; 1; 2$"):
        write_trace(path, path / "trace.json.gz", Selection(iteration=3))
    assert not list(path.glob("trace*"))


def test_a_run_that_was_cut_off_shows_what_had_finished(build_run: BuildRun) -> None:
    trace, counts = written(build_run(finished_trials=3))
    assert counts.trials == 3
    assert trace["otherData"]["complete"] is False


def test_the_trace_says_what_run_it_is_of(build_run: BuildRun) -> None:
    trace, _ = written(build_run(name="demo"))
    assert trace["otherData"] == {
        "run": "demo",
        "config_hash": "c0ffee" * 8,
        "engine": "emulate",
        "clock": "real",
        "dilation": 1.0,
        "complete": True,
        "wanbed": "0.1.0",
        "schema_version": SCHEMA_VERSION,
    }


def test_the_same_run_gives_the_same_file(build_run: BuildRun) -> None:
    path = build_run()
    one, other = path / "one.json.gz", path / "other.json.gz"
    for file in (one, other):
        write_trace(path, file, Selection())
    assert one.read_bytes() == other.read_bytes()


def test_a_large_trial_is_written_piece_by_piece(build_run: BuildRun, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_run(finished_trials=1)
    whole, counts = written(path)
    monkeypatch.setattr(trace_file, "_ROWS", 7)
    in_pieces = written(path)
    assert in_pieces[1] == counts
    assert sorted(map(str, in_pieces[0]["traceEvents"])) == sorted(map(str, whole["traceEvents"]))


def test_a_name_without_gz_is_written_as_it_is(build_run: BuildRun) -> None:
    path = build_run(finished_trials=1)
    write_trace(path, path / "trace.json", Selection())
    assert json.loads((path / "trace.json").read_text(encoding="utf-8"))["displayTimeUnit"] == "ms"
    assert problems(load_trace(path / "trace.json")) == []


def test_hostile_names_of_variants_come_out_as_they_are(build_run: BuildRun) -> None:
    trace, _ = written(build_run(variants=HOSTILE, latencies=("10ms",)))
    assert [each.event["args"]["variant"] for each in trial_slices(trace)] == list(HOSTILE)


def run_on_paper(folder: Path, spans: list[Span], tcp: list[TcpSample], name: str = "east") -> Path:
    store = RunStore.create(folder, "paper", {"variants": [{"name": "a"}]}, "c0ffee" * 8)
    log = SpanLogContents(RankPlace(0, f"{name}-0", name, 0, 0, 0), tuple(spans), complete=True)
    store.write_trial(TrialRecord(TrialId(0, "a", 0), [log], {TCP_TABLE: tcp}))
    return store.path


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_of_datacenters_come_out_as_they_are(tmp_path: Path, name: str) -> None:
    trace, _ = written(run_on_paper(tmp_path, [Span("forward", 0, 0, 5, 10)], [], name))
    assert f"{name} / {name}-0" in names_of(trace, "process_name").values()


def test_spans_without_length_are_kept(tmp_path: Path) -> None:
    spans = [Span("forward", 0, 0, 5, 5), Span("forward", 0, 1, 5, 5), Span("backward", 0, 0, 5, 9)]
    trace, counts = written(run_on_paper(tmp_path, spans, []))
    assert phases(trace)["X"] == 4
    assert counts.slices == 4 + 2


def test_a_span_from_before_the_trial_began_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"spans\.parquet: column start_ns, row 0: -3 is negative"):
        written(run_on_paper(tmp_path, [Span("forward", 0, 0, -3, 5)], []))


def test_the_state_of_connections_is_shown_by_pair_of_hosts(tmp_path: Path) -> None:
    sample = TcpSample(
        4 * MS, "east-0", "west-0", 1, 2, "cubic", 80 * MS, 0, None, 10, 1448, 0, 0, None, None, False, 0, 0, 3, 0, 0
    )
    other = sample._replace(source_port=3, rtt_ns=82 * MS)
    trace, counts = written(run_on_paper(tmp_path, [Span("forward", 0, 0, 5, 9 * MS)], [sample, other]))
    lines = {
        (each["name"], *each["args"].items())
        for each in trace["traceEvents"]
        if each["ph"] == "C" and each["ts"] < 9000
    }
    assert lines == {
        ("east-0 → west-0 TCP windows", ("bytes", Decimal(28960))),
        ("east-0 → west-0 TCP median RTT", ("ms", Decimal(81))),
        ("east-0 → west-0 TCP retransmissions", ("segments", Decimal(6))),
    }
    assert counts.counters == 6


def test_a_trial_without_a_span_is_shown_empty(tmp_path: Path) -> None:
    trace, counts = written(run_on_paper(tmp_path, [], []))
    assert (counts.trials, counts.slices, len(trial_slices(trace))) == (1, 1, 1)


@pytest.mark.parametrize("file", [SPANS_FILE, LINK_SAMPLES_FILE])
def test_a_damaged_table_is_refused_by_name_and_the_old_trace_stays(build_run: BuildRun, file: str) -> None:
    path = build_run()
    write_trace(path, path / "trace.json.gz", Selection())
    before = (path / "trace.json.gz").read_bytes()
    damaged = sorted(path.glob(f"trials/*/*/*/{file}"))[-1]
    damaged.write_bytes(b"PAR1 torn")
    with pytest.raises(RunError, match=file):
        write_trace(path, path / "trace.json.gz", Selection())
    assert (path / "trace.json.gz").read_bytes() == before
    assert not list(path.glob("*.partial"))


def test_runs_of_version_1_are_read_without_a_table_of_connections(build_run: BuildRun) -> None:
    path = build_run(finished_trials=1)
    with_table, counts = written(path)
    for table in path.glob("trials/*/*/*/tcp_samples.parquet"):
        table.unlink()
        as_version(1, table.with_name(SPANS_FILE))
    shutil.rmtree(path / "calibration")
    assert written(path) == (with_table, counts)


@pytest.mark.parametrize("file", [SPANS_FILE, LINK_SAMPLES_FILE, "tcp_samples.parquet", "prefill_requests.parquet"])
def test_a_missing_table_is_refused_by_name(build_run: BuildRun, file: str) -> None:
    path = build_run(finished_trials=1)
    (missing,) = path.glob(f"trials/*/*/*/{file}")
    missing.unlink()
    with pytest.raises(RunError, match=f"{file} is missing"):
        write_trace(path, path / "trace.json.gz", Selection())
