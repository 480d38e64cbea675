"""Traces as Perfetto's own engine takes them: nothing dropped, nothing turned round."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.support.results.perfetto_engine import Engine, EngineError
from tests.support.results.programs import ProgramOnPaper, program_run
from tests.support.results.trace_rules import load_trace, nanoseconds, problems
from wanbed.results.perfetto.trace_file import TraceCounts, write_trace
from wanbed.results.reading.run import load_run
from wanbed.results.reading.selection import Selection
from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.schema import LinkSample
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import LINK_TABLE

HOSTILE = ('<script>alert("1")</script>', "\u202eright to left", "é☃𝄞")
HOW_MANY = "select (select count(*) from slice) s, (select count(*) from flow) f, (select count(*) from counter) c"
SLICES = """
    select process.name as process, thread.name as thread, slice.name, ts, dur, slice.category
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
"""
ARROWS = """
    with told as (
        select slice.id, slice.category, substr(slice.name, instr(slice.name, ' ') + 1) as what, ts, dur,
            process.name as process, extract_arg(slice.arg_set_id, 'args.pipeline') as pipeline,
            extract_arg(slice.arg_set_id, 'args.stage') as stage,
            extract_arg(slice.arg_set_id, 'args.iteration') as iteration,
            extract_arg(slice.arg_set_id, 'args.peer') as peer
        from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
            join process using (upid))
    select one.category as leaves, other.category as arrives, one.what as sent, other.what as received,
        one.ts as sent_ns, other.ts as received_ns, one.peer, other.process as receiver,
        one.pipeline = other.pipeline and one.iteration = other.iteration as same, other.stage - one.stage as stages_on
    from flow join told one on flow.slice_out = one.id join told other on flow.slice_in = other.id
"""

PROGRAM_ARROWS = """
    with placed as (select slice.id, slice.name, slice.depth, thread.name as thread
        from slice join thread_track on slice.track_id = thread_track.id join thread using (utid))
    select one.name as leaves, one.thread as last, other.name as arrives, other.thread as waited, other.depth
    from flow join placed one on flow.slice_out = one.id join placed other on flow.slice_in = other.id
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    running = Engine()
    yield running
    running.close()


def exported(run: Path) -> tuple[bytes, dict[str, Any], TraceCounts]:
    counts = write_trace(run, run / "trace.json.gz", Selection())
    return (run / "trace.json.gz").read_bytes(), load_trace(run / "trace.json.gz"), counts


def test_all_of_a_run_arrives(engine: Engine, build_run: Callable[..., Path]) -> None:
    path = build_run(variants=("one", "many"), latencies=("40ms",))
    trace, written, counts = exported(path)
    (how_many,), slices, arrows, counters = engine.ask(
        trace, HOW_MANY, SLICES, ARROWS, "select track.name, ts, value from counter join track on track_id = track.id"
    )
    assert (how_many["s"], how_many["f"], how_many["c"]) == (counts.slices, counts.flows, counts.counters)

    wanted = Counter(
        (event["name"], nanoseconds(event["ts"]), nanoseconds(event["dur"]), event["cat"])
        for event in written["traceEvents"]
        if event["ph"] == "X"
    )
    assert Counter((each["name"], each["ts"], each["dur"], each["category"]) for each in slices) == wanted

    spans = load_run(path).spans
    assert len(arrows) == (spans["kind"] == "send").sum() == (spans["kind"] == "receive").sum()
    for arrow in arrows:
        assert (arrow["leaves"], arrow["arrives"], arrow["same"]) == ("send", "receive", 1)
        assert arrow["sent"] == arrow["received"]
        assert arrow["stages_on"] == (1 if arrow["sent"].startswith("activation") else -1)
        assert arrow["receiver"].endswith(f" / {arrow['peer']}")
        assert arrow["received_ns"] >= arrow["sent_ns"]

    values = Counter(
        (f"{event['name']} {unit}", nanoseconds(event["ts"]), float(value))
        for event in written["traceEvents"]
        if event["ph"] == "C"
        for unit, value in event["args"].items()
    )
    assert Counter((each["name"], each["ts"], each["value"]) for each in counters) == values


def test_arrows_of_a_program_lead_from_the_last_rank(engine: Engine, tmp_path: Path) -> None:
    trace, written, _ = exported(program_run(tmp_path, {"ddp": ProgramOnPaper()}))
    assert problems(written) == []
    (arrows,) = engine.ask(trace, PROGRAM_ARROWS)
    assert len(arrows) == 6
    for arrow in arrows:
        assert arrow["last"].startswith("rank 2 collectives")
        assert arrow["waited"].startswith(("rank 0 collectives", "rank 1 collectives"))
        assert (arrow["leaves"], arrow["arrives"], arrow["depth"]) == ("all-reduce", "transferring", 1)


def test_prefills_and_their_requests_arrive(engine: Engine, build_run: Callable[..., Path]) -> None:
    path = build_run(variants=("alone", "with prefill"), latencies=("40ms",), prefill={"with prefill": 20.0})
    trace, written, counts = exported(path)
    assert problems(written) == []
    (how_many,), prefills, asynchronous = engine.ask(
        trace,
        HOW_MANY,
        "select slice.name, extract_arg(slice.arg_set_id, 'args.request') as request, dur from slice"
        " join thread_track on slice.track_id = thread_track.id where category = 'prefill'",
        "select slice.name, track.name as track, process.name as process, ts, dur, slice.depth,"
        " extract_arg(slice.arg_set_id, 'args.outcome') as outcome from slice"
        " join process_track track on slice.track_id = track.id join process using (upid) where category = 'request'",
    )
    assert how_many["s"] == counts.slices
    run = load_run(path)
    spans = run.spans[run.spans["kind"] == "prefill"]
    assert Counter((each["request"], each["dur"]) for each in prefills) == Counter(
        zip(spans["request"], spans["end_ns"] - spans["start_ns"], strict=True)
    )
    assert {each["name"] for each in prefills} == {f"prefill of request {number}" for number in spans["request"]}

    requests = run.prefill_requests
    lines = [each for each in asynchronous if each["name"].startswith("request ")]
    assert {each["track"] for each in asynchronous} == set(requests["outcome"])
    assert Counter((each["process"], each["outcome"]) for each in lines) == Counter(
        zip("requests to " + requests["datacenter"], requests["outcome"], strict=True)
    )
    moved = requests.dropna(subset=["kv_moved_ns"])
    admitted = sorted(each["dur"] for each in lines if each["outcome"] == "admitted")
    assert admitted == sorted((moved["kv_moved_ns"] - moved["arrival_ns"]).astype(int))
    assert Counter(each["name"] for each in asynchronous if each["depth"] == 2) == dict.fromkeys(
        ("queue", "prefill", "KV transfer"), len(moved)
    )


def test_hosts_have_processes_and_gpus_threads(engine: Engine, build_run: Callable[..., Path]) -> None:
    trace, _, _ = exported(build_run(variants=("one",), latencies=("40ms",)))
    processes, threads = engine.ask(
        trace,
        "select name from process where name is not null order by pid",
        "select process.name as process, thread.name, is_main_thread as main from thread join process using (upid)"
        " where thread.name is not null order by pid, tid",
    )
    hosts = [f"{datacenter} / {datacenter}-{n}" for datacenter in ("east", "central", "west") for n in range(2)]
    assert [each["name"] for each in processes] == ["trials", "links between datacenters", "pairs of hosts", *hosts]
    assert not any(each["main"] for each in threads)
    found = {
        process: [each["name"] for each in own] for process, own in groupby(threads, key=lambda each: each["process"])
    }
    assert found["east / east-0"][:2] == ["GPU 0", "GPU 0 sends 1"]
    assert found["trials"] == ["trial"]


def test_spans_without_length_at_one_moment_and_hostile_names_arrive(engine: Engine, tmp_path: Path) -> None:
    east, west, variant = HOSTILE
    store = RunStore.create(tmp_path, "paper", {"variants": [{"name": variant}]}, "c0ffee" * 8)
    logs = []
    for rank, (name, peer) in enumerate(((east, west), (west, east))):
        kind, work = ("send", "forward") if rank == 0 else ("receive", "backward")
        transfers = [Span(kind, 0, m, 7, 7 + m % 2, 4, peer, "activation") for m in range(4)]
        spans = (Span(work, 0, 0, 5, 7), Span(work, 0, 1, 7, 7), Span(work, 0, 2, 7, 9), *transfers)
        logs.append(SpanLogContents(RankPlace(rank, name, name, 0, 0, rank), spans, complete=True))
    samples = [LinkSample(time_ns, "link", east, west, time_ns, None, 3, 0) for time_ns in (0, 5, 9)]
    store.write_trial(TrialRecord(TrialId(0, variant, 0), logs, {LINK_TABLE: samples}))

    trace, written, counts = exported(store.path)
    assert problems(written) == []
    (how_many,), slices, arrows, tracks = engine.ask(
        trace, HOW_MANY, SLICES, ARROWS, "select distinct name from counter_track"
    )
    assert (how_many["s"], how_many["f"], how_many["c"]) == (counts.slices, counts.flows, counts.counters)
    assert counts.flows == len(arrows) == 4
    assert all(arrow["sent"] == arrow["received"] for arrow in arrows)
    assert {f"{name} / {name}" for name in (east, west)} | {"trials"} == {each["process"] for each in slices}
    assert {each["name"] for each in slices if each["category"] == "trial"} == {f"{variant}, repeat 0"}
    # The engine shows the names of counters as JSON has them.
    quoted = east.replace('"', '\\"')
    assert {each["name"].replace('\\"', '"') for each in tracks} == {
        f"{quoted} → {west} {what}".replace('\\"', '"') for what in ("throughput Mbit/s", "backlog bytes")
    }


@pytest.mark.parametrize(
    ("trace", "text"),
    [
        ('{"traceEvents":[{"ph":"X","pid":1,"tid":2,"ts":1,"dur":2,"name":"a"},'
         '{"ph":"X","pid":1,"tid":2,"ts":2,"dur":2,"name":"b"}]}', "the engine counts"),
        ("not a trace", "trace"),
    ],
)  # fmt: skip
def test_what_the_engine_drops_or_refuses_is_reported(engine: Engine, trace: str, text: str) -> None:
    with pytest.raises(EngineError, match=text):
        engine.ask(trace.encode())
