"""Plans held against what came out: nothing is said where both agree, and causes are those that spans show."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support.results.reported import with_rows
from wanbed import results
from wanbed.results.records.run_store import TRIAL_FACTS, read_json
from wanbed.results.report.plan_outcome import PlanOutcome, plan_causes, plan_outcomes, plan_table, plan_warnings
from wanbed.results.report.report import write_report
from wanbed.results.report.reported_runs import ReportedRun

BuildRun = Callable[..., Path]

AskPlan = Callable[..., PlanOutcome]

STAGES = 6


@pytest.fixture
def trial(build_run: BuildRun) -> Path:
    """One trial of GPipe over three datacenters, as if it had followed a plan."""
    return build_run(latencies=("40ms",), variants=("planned",)) / "trials/point-000/planned/repeat-0"


def with_outcome(outcome: PlanOutcome) -> ReportedRun:
    (own,) = with_rows(plan_outcomes, [outcome]).runs
    return own


@pytest.fixture
def against(trial: Path) -> AskPlan:
    """The outcome, held against a plan of that many times its length, with these facts beside."""

    facts, run = read_json(trial / TRIAL_FACTS), trial.parents[3]

    def outcome(planned_s: float, more: dict[str, Any]) -> PlanOutcome:
        (trial / TRIAL_FACTS).write_text(json.dumps({**facts, **more, "planned_makespan_s": planned_s}))
        (found,) = plan_outcomes(ReportedRun(results.load(run)))
        return found

    def ask(factor: float, plan: dict[str, Any] | None = None, **more: Any) -> PlanOutcome:
        return outcome(outcome(1.0, {}).outcome_s * factor, {"plan": plan, **more})

    return ask


def real_plan(trial: Path) -> dict[str, Any]:
    """What a plan would say that foresaw what came out."""
    spans = results.load(trial.parents[3]).spans
    spans = spans[spans["iteration"] > 0]
    computing = spans[spans["kind"].isin(["forward", "recompute", "backward"])]
    lasted = (computing["end_ns"] - computing["start_ns"]).groupby(computing["stage"]).sum()
    iterations = spans["iteration"].nunique()
    sent, received = (spans[spans["kind"] == kind] for kind in ("send", "receive"))
    transfer_s = []
    for boundary in range(STAGES - 1):
        took = []
        for tensor, sender in (("activation", boundary), ("gradient", boundary + 1)):
            receiver = 2 * boundary + 1 - sender
            there = received[(received["tensor"] == tensor) & (received["stage"] == receiver)]
            left = sent[(sent["tensor"] == tensor) & (sent["stage"] == sender)]
            both = left.merge(there, on=["iteration", "microbatch"])
            took += list(both["end_ns_y"] - both["start_ns_x"])
        transfer_s.append(sum(took) / len(took) / 1e9)
    return {"by_rates_s": 0.5, "computing_s": list(lasted / iterations / 1e9), "transfer_s": transfer_s}


@pytest.mark.parametrize("factor", [0.96, 1.0, 1.04])
def test_an_outcome_within_tolerance_has_no_causes(factor: float, against: AskPlan, trial: Path) -> None:
    outcome = against(factor, real_plan(trial))
    assert outcome.difference == pytest.approx(1 / factor - 1)
    assert outcome.causes == ()
    assert plan_warnings(with_outcome(outcome)) == []


def test_computation_that_takes_longer_is_named_with_its_stage(against: AskPlan, trial: Path) -> None:
    plan = real_plan(trial)
    plan["computing_s"][2] /= 2
    assert against(0.8, plan).causes[0] == "stage 2 computes for 2.00x the planned time"


def test_transfers_that_take_longer_are_named_with_both_times(against: AskPlan, trial: Path) -> None:
    plan = real_plan(trial)
    plan["transfer_s"][1] /= 4
    causes = against(0.8, plan).causes
    (text,) = [cause for cause in causes if cause.startswith("transfers between stages 1 and 2 take ")]
    assert "were planned" in text
    assert not any("computes" in cause for cause in causes)


def test_a_saturated_machine_is_named(against: AskPlan, trial: Path) -> None:
    load = {"busy": 0.99, "saturated": 0.9, "network": 0.2}
    assert "saturated" in against(0.8, real_plan(trial), machine_load=load).causes[0]
    assert not any("saturated" in cause for cause in against(0.8, real_plan(trial)).causes)


def test_a_trial_of_older_facts_has_a_row_and_schedules_without_a_plan_have_none(
    against: AskPlan, build_run: BuildRun
) -> None:
    assert against(0.8).by_rates_s is None
    assert plan_outcomes(ReportedRun(results.load(build_run(variants=("gpipe",))))) == []
    assert plan_table(ReportedRun(results.load(build_run()))) is None


def test_the_report_shows_plan_and_outcome_and_warns_of_the_worst(
    against: AskPlan, trial: Path, tmp_path: Path
) -> None:
    plan = real_plan(trial)
    plan["computing_s"][2] /= 2
    outcome = against(0.8, plan)
    assert plan_warnings(with_outcome(outcome))[0].startswith(
        "1 trial of 1 with a plan deviated from it by more than 5"
    )
    write_report([trial.parents[3]], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Plan against outcome" in page
    assert "+25.0 %" in page
    assert "stage 2 computes for 2.00x the planned time" in page


def test_the_report_warns_where_connections_were_cut(trial: Path, tmp_path: Path) -> None:
    facts = {**read_json(trial / TRIAL_FACTS), "connections_cut": [["east-0", "west-0", 96, 0.737]]}
    (trial / TRIAL_FACTS).write_text(json.dumps(facts))
    write_report([trial.parents[3]], tmp_path / "report.html")
    assert "96 would fill the cap between east-0 and west-0" in (tmp_path / "report.html").read_text()


MS = 1_000_000

NOTHING = ("no cause shows in the spans",)


def span(kind: str, stage: int, microbatch: int, start_ms: int, end_ms: int, **more: Any) -> dict[str, Any]:
    return {
        "host": f"{'east' if stage == 0 else 'west'}-{more.get('pipeline', 0)}",
        "datacenter": "east" if stage == 0 else "west",
        "gpu": 0,
        "pipeline": 0,
        "stage": stage,
        "iteration": 0,
        "microbatch": microbatch,
        "kind": kind,
        "tensor": "activation" if kind in {"send", "receive"} else "",
        "start_ns": start_ms * MS,
        "end_ns": end_ms * MS,
        **more,
    }


def transfer(microbatch: int, start_ms: int, took_ms: int, pipeline: int = 0) -> list[dict[str, Any]]:
    there_ms = start_ms + took_ms
    return [
        span("send", 0, microbatch, start_ms, there_ms - 10, pipeline=pipeline),
        span("receive", 1, microbatch, start_ms + 10, there_ms, pipeline=pipeline),
        # Used as soon as it is there.
        span("forward", 1, microbatch, there_ms, there_ms + 1, pipeline=pipeline),
    ]


def causes(*spans: dict[str, Any], transfer_s: float, **facts: Any) -> tuple[str, ...]:
    return plan_causes({"plan": {"transfer_s": [transfer_s]}, **facts}, pd.DataFrame(spans))


def test_transfers_as_planned_are_no_cause() -> None:
    assert causes(*transfer(0, 0, 100), *transfer(1, 100, 100), transfer_s=0.1) == NOTHING


def test_slow_start_is_named_where_transfers_after_a_pause_take_longer() -> None:
    spans = [*transfer(0, 0, 100), *transfer(1, 100, 100), *transfer(2, 1000, 300), *transfer(3, 1300, 100)]
    (text,) = causes(*spans, transfer_s=0.1)
    assert "slow start" in text
    assert "300" in text
    assert "contention" not in text


def test_transfers_that_are_slow_without_a_pause_started_no_slower() -> None:
    (text,) = causes(*transfer(0, 0, 300), *transfer(1, 300, 300), *transfer(2, 600, 300), transfer_s=0.1)
    assert "slow start" not in text
    assert "contention" not in text


def test_contention_is_named_if_another_dp_cell_sent_between_the_same_datacenters() -> None:
    spans = [*transfer(0, 0, 200), *transfer(0, 50, 200, pipeline=1)]
    (text,) = causes(*spans, transfer_s=0.1)
    assert "contention" in text
    (of_one_cell,) = causes(*spans, transfer_s=0.1, pipelines_per_cell=2)
    assert "contention" not in of_one_cell


def test_strict_order_is_named_if_a_gpu_was_idle_though_a_message_had_arrived() -> None:
    early = [*transfer(0, 0, 100)[:2], *transfer(1, 100, 100)]
    late = span("forward", 1, 0, 400, 401)
    (text,) = causes(*early, late, transfer_s=0.1)
    assert text.startswith("strict order: GPUs were idle for ")
