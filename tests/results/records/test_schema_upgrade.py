"""A run of the schema version before reads as if it had been written today, as far as it tells."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import results
from results.records.run_store import RunError
from results.records.schema import LINK_SAMPLES, SPANS
from results.records.schema_upgrade import upgraded
from results.records.trial_tables import LINK_SAMPLES_FILE, PREFILL_REQUESTS_FILE, SPANS_FILE, TCP_SAMPLES_FILE

NEW_IN_VERSION_2 = ("tensor", "request")


def as_version_1(file: Path) -> None:
    table = pq.read_table(file)
    table = table.drop_columns([name for name in NEW_IN_VERSION_2 if name in table.schema.names])
    pq.write_table(table.replace_schema_metadata({"wanbed.schema_version": "1"}), file)


def test_a_run_of_version_1_loads_with_the_same_spans_and_summary(build_run: Callable[..., Path]) -> None:
    path = build_run()
    now = results.load(path)
    for trial in path.glob("trials/*/*/*"):
        (trial / TCP_SAMPLES_FILE).unlink()
        (trial / PREFILL_REQUESTS_FILE).unlink()
        as_version_1(trial / SPANS_FILE)
        as_version_1(trial / LINK_SAMPLES_FILE)
    for file in path.glob("calibration/*"):
        as_version_1(file)
    before = results.load(path)
    assert before.spans.equals(now.spans)
    assert before.summary.equals(now.summary)
    assert before.calibration.equals(now.calibration)
    assert before.tcp_samples.empty


def test_a_version_1_file_with_other_columns_is_refused(build_run: Callable[..., Path]) -> None:
    path = build_run()
    file = next(path.glob(f"trials/*/*/*/{SPANS_FILE}"))
    table = pq.read_table(file).drop_columns([*NEW_IN_VERSION_2, "host"])
    pq.write_table(table.replace_schema_metadata({"wanbed.schema_version": "1"}), file)
    with pytest.raises(RunError, match="columns are not those"):
        results.load(path)


def row(stage: int, host: str, kind: str, peer: str) -> dict[str, object]:
    own = {"sweep_point": 0, "variant": "v", "repeat": 0, "rank": stage, "host": host, "datacenter": "dc", "gpu": 0}
    times = {"iteration": 0, "microbatch": 0, "start_ns": 0, "end_ns": 1, "size_bytes": 1}
    return {**own, "pipeline": 0, "stage": stage, **times, "kind": kind, "peer": peer}


@pytest.mark.parametrize(
    ("hosts", "kind", "peer", "tensor"),
    [
        (("a", "b", "c"), "receive", "a", "activation"),
        (("a", "b", "c"), "receive", "c", "gradient"),
        (("a", "b", "c"), "send", "c", "activation"),
        (("a", "b", "c"), "send", "a", "gradient"),
        (("a", "b", "a"), "send", "a", ""),
        (("a", "b", "c"), "forward", "", ""),
    ],
)
def test_the_host_at_the_other_end_tells_the_tensor_unless_both_peers_share_it(
    hosts: tuple[str, str, str], kind: str, peer: str, tensor: str
) -> None:
    rows = [row(0, hosts[0], "forward", ""), row(1, hosts[1], kind, peer), row(2, hosts[2], "forward", "")]
    old = pa.schema([field for field in SPANS if field.name not in NEW_IN_VERSION_2])
    table = upgraded(pa.Table.from_pylist(rows, schema=old), SPANS)
    assert table.schema.equals(SPANS)
    assert table.column("tensor").to_pylist() == ["", tensor, ""]
    assert table.column("request").to_pylist() == [-1, -1, -1]


def test_a_table_that_did_not_change_stays_as_it_is() -> None:
    table = LINK_SAMPLES.empty_table()
    assert upgraded(table, LINK_SAMPLES).equals(table)
