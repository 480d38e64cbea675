"""Prefill in the bubbles of a training whose hosts are on machines of a rack, which namespaces of this one play.

GPUs, decode host and pool are on machines of their own, whose clocks are a quarter of an hour apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.rack.rack_machine import RackMachine, namespace_machines
from tests.support.runner.small_experiment import sweep_point
from wanbed.results.records.run_store import TrialRecord
from wanbed.results.records.schema import PrefillRequest
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL, SpanLogContents
from wanbed.results.records.trial_tables import PREFILL_TABLE
from wanbed.runner.emulation.running_trial import TrialSpec
from wanbed.runner.emulation.trial import run_trial
from wanbed.runner.resolve.connections import count_connections
from wanbed.testbed.rack.machine_handle import RunOrder
from wanbed.testbed.rack.rack_testbed import RackPlacement, rack_testbed

MACHINE_OF = {"east-0": "space0", "east-1": "space1", "east-serving-0": "space2", "east-serving-1": "space2"}
CLOCKS_AHEAD_S = (1000, 0, 2000)
TOPOLOGY: dict[str, Any] = {
    # The machines may lack netem: nothing is to be emulated.
    "datacenters": [{"name": "east", "hosts": 2, "serving_hosts": 2}],
}
PREFILLED: dict[str, Any] = {
    "rate": "20/s",
    "prompt": {"median": 60, "spread": 1.5},
    "chunk": 16,
    "slo": "30s",
}
REPLAYED: dict[str, Any] = {
    "topology": TOPOLOGY,
    "compute": {"forward": "20ms", "backward": "40ms", "activation": "16KiB"},
    "training": {"stages": 2, "microbatches": 2, "iterations": 16, "warmup": 6},
    "prefill": {**PREFILLED, "warmup": 4, "kv": "512B", "activation": "512B"},
    "variants": [{"name": "planned", "schedule": "gpipe", "prefill": "planned", "pool": 2}],
    "dilation": 1,
}
COMPUTED: dict[str, Any] = {
    "topology": TOPOLOGY,
    "model": "gpt-tiny",
    "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
    "training": {"stages": 2, "microbatches": 2, "iterations": 120, "warmup": 2, "precision": "fp32"},
    "prefill": {**PREFILLED, "model": "llama-tiny", "output": 4, "profile": "measured", "warmup": 2},
    "variants": [{"name": "planned", "schedule": "gpipe", "prefill": "planned"}],
    "dilation": 1,
}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RackMachine]]:
    with namespace_machines(3, tmp_path_factory.mktemp("machines"), clocks_ahead_s=CLOCKS_AHEAD_S) as running:
        yield running


def served(machines: list[RackMachine], root: Path, document: Mapping[str, Any]) -> TrialRecord:
    """The record of the only trial of an experiment."""
    point = sweep_point(dict(document))
    (variant,) = point.variants
    connections = count_connections(point.topology, variant.pairs, variant.transport)
    handles = [machine.handle for machine in machines]
    with rack_testbed(point.topology, handles, RackPlacement(MACHINE_OF), RunOrder(shaped=False), root=root) as testbed:
        return run_trial(testbed, TrialSpec(point.trials()[0], point, 1.0, connections))


def logs_of(record: TrialRecord) -> Sequence[SpanLogContents]:
    """The spans of each GPU."""
    assert isinstance(record.spans, Sequence)
    return record.spans


def moved(record: TrialRecord) -> list[PrefillRequest]:
    """The requests whose KV cache is at the decode host."""
    table = record.tables[PREFILL_TABLE]
    assert isinstance(table, Sequence)
    rows = [row for row in table if isinstance(row, PrefillRequest)]
    return [row for row in rows if row.kv_moved_ns is not None]


def test_bubbles_are_filled_by_a_controller_on_another_machine_all_on_one_time_line(
    machines: list[RackMachine], tmp_path: Path
) -> None:
    record = served(machines, tmp_path, REPLAYED)
    facts = record.facts["prefill"]
    assert facts["faults"] == []
    assert facts["counts"]["admitted"] > 0
    assert facts["kv_bytes"] > 0
    rows, training_ns = moved(record), max(span.end_ns for log in logs_of(record) for span in log.spans)
    assert rows
    # Arrival, first layer, last layer and cache were timed on three machines.
    slack_ns = 2 * max(clock["error_ns"] for clock in record.facts["clocks"].values())
    for row in rows:
        assert row.admitted_ns is not None
        assert row.started_ns is not None
        assert row.prefilled_ns is not None
        assert row.kv_moved_ns is not None
        assert 0 < row.arrival_ns <= row.admitted_ns <= row.started_ns + slack_ns
        assert row.started_ns < row.prefilled_ns <= row.kv_moved_ns + slack_ns
        assert row.kv_moved_ns < 2 * training_ns
    prefills = {log.header.host: [span for span in log.spans if span.kind == PREFILL] for log in logs_of(record)}
    assert prefills.keys() == MACHINE_OF.keys()
    assert any(prefills.values())
    for log in logs_of(record):
        used = sorted((each.start_ns, each.end_ns) for each in log.spans if each.kind in {*COMPUTE_KINDS, PREFILL})
        assert all(one[1] <= other[0] for one, other in pairwise(used))


@pytest.mark.soak
@pytest.mark.measures
def test_a_profile_is_measured_on_its_machine_and_tokens_come_back(machines: list[RackMachine], tmp_path: Path) -> None:
    facts = served(machines, tmp_path, COMPUTED).facts["prefill"]
    assert facts["faults"] == []
    assert facts["profile"]["measured"]
    assert facts["kv_bytes"] > 0
    assert facts["tokens"]
    assert all(len(tokens) == 4 for tokens in facts["tokens"].values())
