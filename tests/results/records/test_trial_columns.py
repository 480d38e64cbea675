from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from wanbed import results
from wanbed.results.reading.run import load_run
from wanbed.results.records import trial_columns
from wanbed.results.records.run_store import RunError, RunStore, TrialRecord, write_trial
from wanbed.results.records.schema import LinkSample
from wanbed.results.records.span_columns import SpanColumns, VirtualSpanColumns
from wanbed.results.records.span_log import SPAN_KINDS, RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_columns import TrialCounters, TrialSpans
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import LINK_TABLE, SPANS_FILE
from wanbed.results.records.written_spans import WrittenSpans
from wanbed.results.report.report import write_report

OWNERS = [RankPlace(0, "east-0", "east", 1, 0, 0), RankPlace(1, "west-0", "west", 0, 0, 1)]
SPANS = [
    [
        Span("forward", 0, 0, 0, 10),
        Span("send", 0, 0, 10, 14, 2**40, "west-0", "activation"),
        Span("optimizer", 0, -1, 90, 95),
    ],
    [
        Span("receive", 0, 0, 12, 16, 2**40, "east-0", "activation"),
        Span("backward", 0, 0, 16, 36),
        Span("send", 0, 0, 36, 39, 2**40, "east-0", "gradient"),
    ],
]
LINKS = [("link", "east", "west"), ("link", "west", "east"), ("node_pair", "east-0", "west-0")]
COUNTS = [[0, 700, 2**40], [0, 0, 0], [0, 700, 2**40]]


def columns() -> TrialSpans:
    hosts = [owner.host for owner in OWNERS]
    rows = [
        (
            rank,
            SPAN_KINDS.index(span.kind),
            *span[1:6],
            hosts.index(span.peer) if span.peer else -1,
        )
        for rank, spans in enumerate(SPANS)
        for span in spans
    ]
    return TrialSpans(OWNERS, SpanColumns.of_training(np.array(rows, np.int64)))


def counters() -> TrialCounters:
    return TrialCounters(np.array([0, 100, 200]), LINKS, np.array(COUNTS, np.int64))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "demo", {}, "c0ffee")


@pytest.mark.parametrize("rows", [1, 2, 2**20])
def test_columns_read_back_as_what_the_ranks_would_have_logged(
    store: RunStore, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_columns, "_ROWS", rows)
    logs = [SpanLogContents(owner, tuple(spans), complete=True) for owner, spans in zip(OWNERS, SPANS, strict=True)]
    samples = [
        LinkSample(time_ns, *link, count, None, 0, 0)
        for link, counts in zip(LINKS, COUNTS, strict=True)
        for time_ns, count in zip((0, 100, 200), counts, strict=True)
    ]
    store.write_trial(TrialRecord(TrialId(0, "gpipe", 0), logs, {LINK_TABLE: samples}))
    store.write_trial(TrialRecord(TrialId(0, "gpipe", 1), columns(), {LINK_TABLE: counters()}))
    run = results.load(store.path)
    for frame in (run.spans, run.link_samples):
        logged, given = (frame[frame["repeat"] == repeat].reset_index(drop=True) for repeat in (0, 1))
        assert len(logged) > 4
        assert given.assign(repeat=0).equals(logged.assign(repeat=0))


def test_spans_that_were_kept_while_they_were_written_give_the_run_that_is_read_back(
    store: RunStore, tmp_path: Path
) -> None:
    store.write_trial(TrialRecord(TrialId(0, "gpipe", 0), columns()))
    written = WrittenSpans()
    write_trial(store.path, TrialRecord(TrialId(0, "gpipe", 1), columns()), written)
    own, back = load_run(store.path, coded=True, written=written), load_run(store.path, coded=True)
    pd.testing.assert_frame_equal(own.spans, back.spans)
    pd.testing.assert_frame_equal(own.summary, back.summary)
    texts = [kind for kind in own.spans.dtypes if isinstance(kind, pd.CategoricalDtype)]
    assert len(texts) == 6
    for name, run in (("own", own), ("back", back)):
        write_report([run], tmp_path / name)
    assert (tmp_path / "own").read_text() == (tmp_path / "back").read_text()


def test_kept_spans_are_taken_once_and_only_by_who_reads_codes(store: RunStore) -> None:
    written = WrittenSpans()
    folder = write_trial(store.path, TrialRecord(TrialId(0, "gpipe", 0), columns()), written)
    (folder / SPANS_FILE).write_text("damaged")
    with pytest.raises(RunError, match="not a Parquet file"):
        load_run(store.path, written=written)
    assert len(load_run(store.path, coded=True, written=written).spans) == 6
    with pytest.raises(RunError, match="not a Parquet file"):
        load_run(store.path, coded=True, written=written)


def test_a_kept_trial_without_spans_is_kept_too(store: RunStore) -> None:
    written, none = WrittenSpans(), TrialSpans([], SpanColumns.of_training(np.zeros(0, np.int64)))
    write_trial(store.path, TrialRecord(TrialId(0, "gpipe", 0), none), written)
    run = load_run(store.path, coded=True, written=written)
    assert (len(run.trials), len(run.spans)) == (1, 0)


def test_kept_spans_are_checked_as_those_that_are_read(store: RunStore) -> None:
    written, rows = WrittenSpans(), np.array([(0, 0, 0, 0, 9, 5, 0, -1)], np.int64)
    impossible = TrialSpans(OWNERS, SpanColumns.of_training(rows))
    write_trial(store.path, TrialRecord(TrialId(0, "gpipe", 0), impossible), written)
    for spans in (written, None):
        with pytest.raises(RunError, match="column end_ns, row 0: 5 is before start_ns"):
            load_run(store.path, coded=True, written=spans)


def test_virtual_stages_have_a_column_of_their_own_beside_trials_without(store: RunStore) -> None:
    # The east sends a gradient to a later stage: round and round, virtual stage 2 is followed by 1 in the west.
    spans = [
        [Span("backward", 0, 3, 0, 10, virtual_stage=2), Span("send", 0, 3, 10, 14, 8, "west-0", "gradient", -1, 2)],
        [Span("receive", 0, 3, 12, 16, 8, "east-0", "gradient", -1, 1), Span("optimizer", 0, -1, 20, 30)],
    ]
    logs = [SpanLogContents(owner, tuple(own), complete=True) for owner, own in zip(OWNERS, spans, strict=True)]
    kinds = [SPAN_KINDS.index(span.kind) for own in spans for span in own]
    rows = [
        (0, kinds[0], 0, 3, 0, 10, 0, -1),
        (0, kinds[1], 0, 3, 10, 14, 8, 1),
        (1, kinds[2], 0, 3, 12, 16, 8, 0),
        (1, kinds[3], 0, -1, 20, 30, 0, -1),
    ]
    plain = SpanColumns.of_training(np.array(rows, np.int64))
    divided = VirtualSpanColumns(**vars(plain), virtual_stage=np.array([2, 2, 1, -1]), tensor=np.array([0, 2, 2, 0]))
    store.write_trial(TrialRecord(TrialId(0, "zb-v", 0), logs, {}))
    store.write_trial(TrialRecord(TrialId(0, "zb-v", 1), TrialSpans(OWNERS, divided), {}))
    store.write_trial(TrialRecord(TrialId(0, "1f1b", 0), columns(), {}))
    run = results.load(store.path)
    logged, given = (
        run.spans[(run.spans["variant"] == "zb-v") & (run.spans["repeat"] == repeat)].reset_index(drop=True)
        for repeat in (0, 1)
    )
    assert given.assign(repeat=0).equals(logged.assign(repeat=0))
    assert logged["virtual_stage"].fillna(-1).tolist() == [2, 2, 1, -1]
    assert logged["tensor"].tolist() == ["", "gradient", "gradient", ""]
    assert run.spans[run.spans["variant"] == "1f1b"]["virtual_stage"].isna().all()


def test_a_trial_without_spans_and_links_is_kept_too(store: RunStore) -> None:
    none = np.zeros(0, np.int64)
    spans = TrialSpans([], SpanColumns.of_training(none))
    store.write_trial(
        TrialRecord(TrialId(0, "gpipe", 0), spans, {LINK_TABLE: TrialCounters(none, [], none.reshape(0, 0))})
    )
    run = results.load(store.path)
    assert (len(run.trials), len(run.spans), len(run.link_samples)) == (1, 0, 0)
