"""How long ``wanbed trace`` takes, as its users call it, for runs of 100,000 and 1,000,000 spans in one trial.

Every export is a process of its own, so that starting the interpreter, loading the libraries and reading the run count,
and so that its memory is its own.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from wanbed.results.records.run_store import RunStore, TrialRecord
from wanbed.results.records.span_columns import SpanColumns
from wanbed.results.records.span_log import SPAN_KINDS, RankPlace
from wanbed.results.records.trial_columns import TrialCounters, TrialSpans
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import LINK_TABLE

STAGES, PIPELINES, MICROBATCHES = 12, 4, 16
SAMPLES = 2_000
_COUNT = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


class Export(NamedTuple):
    slices: int
    flows: int
    seconds: float
    peak_mib: float
    file_mb: float


def run_of(folder: Path, spans: int) -> Path:
    """A run of one trial: forwards and backwards of 48 ranks, each sent on and received, four iterations or more."""
    ranks = STAGES * PIPELINES
    owners = [
        RankPlace(rank, f"dc{rank % STAGES // 4}-{rank}", f"dc{rank % STAGES // 4}", 0, rank // STAGES, rank % STAGES)
        for rank in range(ranks)
    ]
    rows = []
    kinds = {kind: number for number, kind in enumerate(SPAN_KINDS)}
    for iteration in range(spans // (ranks * MICROBATCHES * 5) + 1):
        for microbatch in range(MICROBATCHES):
            begin = (iteration * MICROBATCHES + microbatch) * 10_000_000
            for rank in range(ranks):
                stage, at = rank % STAGES, begin + rank % STAGES * 800_000
                about = (iteration, microbatch)
                rows.append((rank, kinds["forward"], *about, at, at + 700_000, 0, -1))
                rows.append((rank, kinds["backward"], *about, at + 2_000_001, at + 4_000_003, 0, -1))
                if stage + 1 < STAGES:
                    rows.append((rank, kinds["send"], *about, at + 700_000, at + 700_000 + 11_000_007, 2**20, rank + 1))
                    rows.append((rank + 1, kinds["receive"], *about, at + 790_000, at + 12_000_009, 2**20, rank))
                if stage:
                    rows.append((rank, kinds["send"], *about, at + 4_000_003, at + 4_500_003, 2**20, rank - 1))
                    rows.append((rank - 1, kinds["receive"], *about, at + 4_100_000, at + 4_600_000, 2**20, rank))
    columns = np.array(rows, np.int64).T
    ends = [("link", f"dc{one}", f"dc{other}") for one in range(3) for other in range(3) if one != other]
    times_ns = np.linspace(0, columns[5].max(), SAMPLES).astype(np.int64)
    sent = np.cumsum(np.random.default_rng(0).integers(0, 2**20, (len(ends), SAMPLES)), axis=1)
    store = RunStore.create(folder, "large", {"engine": "simulate", "variants": [{"name": "gpipe"}]}, "c0ffee" * 8)
    spans_of_all = TrialSpans(owners, SpanColumns.of_training(columns.T))
    store.write_trial(
        TrialRecord(TrialId(0, "gpipe", 0), spans_of_all, {LINK_TABLE: TrialCounters(times_ns, ends, sent)})
    )
    store.finish()
    return store.path


def exported(run: Path) -> Export:
    begin = time.perf_counter()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _COUNT,
            sys.executable,
            "-m",
            "wanbed.runner.cli.command_line",
            "trace",
            str(run),
            "--json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - begin
    counts = json.loads(done.stdout)
    file_mb = Path(counts["trace"]).stat().st_size / 1e6
    return Export(counts["slices"], counts["flows"], seconds, int(done.stderr) / 1024, file_mb)


@pytest.mark.parametrize(("spans", "limit_s"), [(100_000, 2.0), (1_000_000, 20.0)])
def test_export(tmp_path: Path, spans: int, limit_s: float) -> None:
    run = run_of(tmp_path, spans)
    export = min((exported(run) for _ in range(3)), key=lambda each: each.seconds)
    print(
        f"\n{export.slices:9,d} slices, {export.flows:9,d} arrows: {export.seconds:.2f} s, "
        f"peak {export.peak_mib:.0f} MiB, file {export.file_mb:.1f} MB"
    )
    assert export.slices > spans
    assert export.seconds < limit_s
