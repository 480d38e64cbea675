"""The records that a simulated trial with prefill leaves in a run folder."""

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from tests.support.runner.prefill_documents import point
from wanbed.results.records.run_store import TRIAL_FACTS, write_trial
from wanbed.results.records.schema import PREFILL_REQUESTS, SPANS
from wanbed.results.records.span_log import PREFILL
from wanbed.results.records.table_files import read_tables
from wanbed.results.records.trial_tables import PREFILL_REQUESTS_FILE, SPANS_FILE
from wanbed.runner.companions.prefill.record import NO_PLACE
from wanbed.runner.simulated_runs.simulated_trial import SimulatedTrial, simulated_record
from wanbed.runner.simulator.variant_simulation import simulate_variant


def kept(run: Path, **fields: Any) -> Path:
    of = point(variants=[{"name": "any", "schedule": "1f1b", **fields}])
    return write_trial(run, simulated_record(SimulatedTrial.of(of.trials()[0], of), simulate_variant))


def test_every_request_has_a_row_and_counts_agree(tmp_path: Path) -> None:
    trial = kept(tmp_path)
    requests = read_tables([trial / PREFILL_REQUESTS_FILE], PREFILL_REQUESTS)
    facts = json.loads((trial / TRIAL_FACTS).read_text())["prefill"]
    numbers = requests.column("request").to_pylist()
    assert numbers == list(range(len(numbers)))
    outcomes = requests.column("outcome").to_pylist()
    for outcome in ("admitted", "held", "off_loaded"):
        assert facts["counts"][outcome] == outcomes.count(outcome)
    assert set(requests.column("kv_bytes").to_pylist()) == {2048 * 512}


def test_facts_have_the_offered_rate_and_deadline_overruns(tmp_path: Path) -> None:
    facts = json.loads((kept(tmp_path) / TRIAL_FACTS).read_text())["prefill"]
    assert {key: facts[key] for key in ("policy", "slo_ns", "depth", "model", "groups", "pool_gpus", "guard_ns")} == {
        "policy": "planned",
        "slo_ns": 2 * 10**9,
        "depth": 2,
        "model": "llama-8b",
        "groups": 4,
        "pool_gpus": 0,
        "guard_ns": 500_000,
    }
    assert facts["weight_bytes"] == pytest.approx(7.48 * 2**30, rel=0.01)
    assert facts["offered_rate_per_s"] == pytest.approx(40)
    assert (facts["trace"], facts["skipped_lines"]) == ("poisson", 0)
    assert (facts["deadline_overruns"], facts["overrun_ns"]) == (0, 0)
    assert facts["margin_ns"]["max"] >= facts["margin_ns"]["median"] >= 600_000


def test_spans_of_prefill_name_their_gpu_and_their_request(tmp_path: Path) -> None:
    spans = read_tables([kept(tmp_path) / SPANS_FILE], SPANS)
    own = spans.filter(pc.equal(spans.column("kind"), PREFILL))
    assert own.num_rows > 0
    assert set(own.column("rank").to_pylist()) <= set(range(8))
    assert min(own.column("request").to_pylist()) >= 0
    assert set(own.column("microbatch").to_pylist()) == {-1}


def test_the_gpus_of_a_pool_have_no_place_in_training(tmp_path: Path) -> None:
    spans = read_tables([kept(tmp_path, prefill="none", pool=2) / SPANS_FILE], SPANS)
    own = spans.filter(pc.equal(spans.column("kind"), PREFILL))
    assert set(own.column("host").to_pylist()) == {"east-serving-0", "east-serving-1"}
    assert set(own.column("stage").to_pylist()) == set(own.column("pipeline").to_pylist()) == {NO_PLACE}


def test_without_prefill_there_are_no_facts_of_it(tmp_path: Path) -> None:
    trial = kept(tmp_path, prefill="none")
    assert "prefill" not in json.loads((trial / TRIAL_FACTS).read_text())
    assert read_tables([trial / PREFILL_REQUESTS_FILE], PREFILL_REQUESTS).num_rows == 0
