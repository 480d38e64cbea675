"""The report says what the GPUs of each stage held, where the file gives their memory."""

from pathlib import Path

import wanbed
from tests.support.results.table_texts import texts_of
from wanbed.results.reading.run import load_run
from wanbed.results.report.memory_table import memory_table
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.runner.resolve.stage_memory import GIB


def simulated(folder: Path, memory: dict[str, str]) -> ReportedRun:
    experiment = wanbed.Experiment(
        name="held",
        engine="simulate",
        topology={"datacenters": [{"name": "east", "hosts": 8}]},
        model="gpt-b",
        compute={"profile": "a100", "checkpointing": False},
        training={"stages": 4, "pipelines": 2, "microbatches": 8, "iterations": 2, "warmup": 1, **memory},
        variants=[
            {"name": "1f1b", "schedule": "1f1b"},
            {"name": "parts", "schedule": "interleaved-1f1b", "training": {"virtual_stages": 2}},
        ],
    )
    return ReportedRun(load_run(wanbed.simulate(experiment, runs=folder).path))


def test_a_row_has_the_microbatches_and_bytes_of_a_stage(tmp_path: Path) -> None:
    table = memory_table(simulated(tmp_path, {"memory": "140GiB"}))
    assert table is not None
    rows = texts_of(table)
    assert [row[1:3] for row in rows[:4]] == [("0", "4"), ("1", "3"), ("2", "2"), ("3", "1")]
    assert {row[0] for row in rows} == {"1f1b", "parts"}
    assert all(float(row[3].removesuffix("\u00a0GB")) < 140 * GIB / 1e9 for row in rows)
    assert {row[4] for row in rows} == {"150\u00a0GB"}


def test_without_a_limit_there_is_no_table(tmp_path: Path) -> None:
    assert memory_table(simulated(tmp_path, {})) is None
