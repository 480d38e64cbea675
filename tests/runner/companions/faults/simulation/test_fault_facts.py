"""Replicas of a star that fail in a simulation: the others go on, and one that comes back joins them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import wanbed
from wanbed.ground.strict_model import InputError
from wanbed.results.reading.run import Run

ITERATIONS, FAILING = 12, 2
DOCUMENT: dict[str, Any] = yaml.safe_load("""
engine: simulate
topology:
  datacenters: [{name: east, hosts: 1}, {name: central, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 10ms, rate: 500Mbit}
model: {layers: 4, hidden: 128, context: 128, heads: 4, vocabulary: 1000}
compute: {forward: 24ms, backward: 48ms, optimizer: 2ms}
training: {pipelines: 3, stages: 1, microbatches: 4, iterations: 12, warmup: 2}
variants:
  - {name: star, schedule: diloco, options: {sync_every: 2, topology: star, quorum: 2}}
""")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def simulated(*fail: dict[str, Any], **changes: Any) -> Run:
    return wanbed.simulate(wanbed.Experiment(**{**DOCUMENT, "fail": list(fail), **changes}), jobs=1)


def iterations_of(run: Run, rank: int) -> list[int]:
    spans = run.spans
    return sorted(set(spans[(spans["rank"] == rank) & (spans["kind"] == "optimizer")]["iteration"]))


def test_the_others_go_on_without_a_rank_that_fails() -> None:
    run = simulated({"rank": FAILING, "at": "1s"})
    (row,) = run.summary.to_dict("records")
    assert row["outcome"] == "survived"
    # The rank that gathers knows one latency later.
    assert row["time_to_detect_s"] == pytest.approx(0.010, abs=1e-6)
    assert row["time_to_recover_s"] is None or row["time_to_recover_s"] != row["time_to_recover_s"]
    # An iteration takes 0.29 s: of the fourth it has finished nothing.
    spans = run.spans[(run.spans["rank"] == FAILING) & run.spans["kind"].isin(("forward", "backward", "optimizer"))]
    assert sorted(set(spans["iteration"])) == iterations_of(run, FAILING)
    assert iterations_of(run, FAILING)[-1] < 4
    assert iterations_of(run, 0) == iterations_of(run, 1) == list(range(ITERATIONS))


def test_a_rank_that_comes_back_joins_the_others_and_delays_none() -> None:
    undisturbed, run = simulated(), simulated({"rank": FAILING, "at": "1s", "for": "500ms"})
    (row,) = run.summary.to_dict("records")
    assert row["outcome"] == "survived"
    # Its call takes three latencies; then it waits for an iteration to end, and gets 8 bytes a parameter.
    assert 0.53 < row["time_to_recover_s"] < 0.53 + 0.4 + 0.4
    found = iterations_of(run, FAILING)
    missed = sorted(set(range(ITERATIONS)) - set(found))
    assert missed == list(range(missed[0], missed[-1] + 1))
    assert found[-1] == ITERATIONS - 1
    counts = [(each.spans["rank"] == rank).sum() for each in (undisturbed, run) for rank in (0, 1)]
    assert counts[:2] == counts[2:]
    for rank in (0, 1):
        ends_ns = [each.spans[each.spans["rank"] == rank]["end_ns"].max() for each in (undisturbed, run)]
        assert ends_ns[1] <= ends_ns[0] * 1.01


def test_a_fault_after_the_end_changes_nothing() -> None:
    run = simulated({"rank": FAILING, "at": "1000s"})
    assert run.summary["outcome"].tolist() == ["undisturbed"]
    assert iterations_of(run, FAILING) == list(range(ITERATIONS))


@pytest.mark.parametrize(
    ("fail", "refusal"),
    [
        ({"host": "west-0", "at": "1s"}, "fail.0.host: in a simulation only ranks fail: give rank"),
        ({"rank": 0, "at": "1s"}, "fail.0.rank: 0, and a simulation does not end with the replica that gathers"),
    ],
)
def test_other_failures_are_refused(fail: dict[str, Any], refusal: str) -> None:
    with pytest.raises(InputError, match=refusal):
        simulated(fail)
