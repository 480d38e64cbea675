"""Whatever is wrong in a run's documents, it is refused in one line when the run is read, or does no harm at all."""

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wanbed import results
from wanbed.results.comparison.comparison import check
from wanbed.results.comparison.comparison import compare as compare_runs
from wanbed.results.comparison.markdown import markdown
from wanbed.results.comparison.run_description import facts, warnings, what_was_run
from wanbed.results.perfetto.trace_file import write_trace
from wanbed.results.reading.run import Run
from wanbed.results.reading.run_documents import check_manifest
from wanbed.results.reading.selection import Selection
from wanbed.results.records.run_store import RunError
from wanbed.results.report.fault_table import fault_table
from wanbed.results.report.plan_outcome import plan_table
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.text_formats import table_text

BuildRun = Callable[..., Path]
Steps = tuple[str | int, ...]

ABSENT = object()
WRONG: tuple[object, ...] = (ABSENT, None, True, "<x>", "", -5, 0, 7.5, 2**70, {}, {"a": 1}, [], [7], ["<x>"])


PLANNED = {
    "planned_makespan_s": 1e-6,
    "plan": {"by_rates_s": 1e-6, "computing_s": [1e-6, 1e-6], "transfer_s": [1e-6]},
    "all_reduce_wan_ratio": [0.5, 0.5],
    "period_bound": {"time_ns": 5, "part": "gpu of stage 0"},
}
"""A plan that the outcome has missed, so that its causes are sought."""
FAULTS = {
    "outcome": "survived",
    "iterations_planned": 3,
    "iterations_completed": 3,
    "injected": [{"fault": "kill rank 1 at 2s", "due_ns": 5, "applied_ns": 6, "ranks": [1]}],
}


def paths(document: Any, at: Steps = ()) -> Iterator[Steps]:
    children = document.items() if isinstance(document, dict) else enumerate(document[:2])
    for step, value in children:
        yield (*at, step)
        if isinstance(value, dict | list):
            yield from paths(value, (*at, step))


def with_value(document: Any, at: Steps, value: object) -> Any:
    changed = copy.deepcopy(document)
    parent = changed
    for step in at[:-1]:
        parent = parent[step]
    if value is ABSENT:
        del parent[at[-1]]
    else:
        parent[at[-1]] = value
    return changed


def read_in_every_way(run: Run, other: Run) -> None:
    for form in ("json", "csv", "md"):
        table_text([run], form)
    what_was_run(run), warnings(run), facts(run)
    plan_table(ReportedRun(run)), fault_table(ReportedRun(run))
    for a, b in ((run, other), (other, run)):
        markdown(compare_runs(check(a, b)))


def refusal(path: Path) -> str:
    """What loading and tracing say of a run, which is the same, "" if they read it."""
    lines = []
    for read in (results.load, lambda run: write_trace(run, run / "trace.json", Selection())):
        try:
            read(path)
        except RunError as refused:
            lines.append(str(refused))
        else:
            lines.append("")
    assert lines[0] == lines[1]
    return lines[0]


@pytest.fixture
def two_runs(build_run: BuildRun, tmp_path: Path) -> tuple[Path, Run]:
    """A run to be damaged, with two variants of which one prefills, and the same run read before that."""
    path = build_run(
        variants=("alone", "filled"), latencies=("40ms",), prefill={"filled": 20.0}, datacenters=("east", "west")
    )
    for file in path.glob("trials/*/*/*/trial.json"):
        document = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**document, **PLANNED, "faults": FAULTS}), encoding="utf-8")
    shutil.copytree(path, tmp_path / "whole")
    return path, results.load(tmp_path / "whole")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_documents_are_refused_in_one_line_or_read_by_every_command(
    two_runs: tuple[Path, Run], data: st.DataObject
) -> None:
    path, whole = two_runs
    file = data.draw(st.sampled_from([path / "manifest.json", *sorted(path.glob("trials/*/*/*/trial.json"))]))
    document = json.loads((whole.path / file.relative_to(path)).read_text(encoding="utf-8"))
    at = data.draw(st.sampled_from(list(paths(document))))
    damaged = with_value(document, at, data.draw(st.sampled_from(WRONG)))
    try:
        file.write_text(json.dumps(damaged), encoding="utf-8")
        refused = refusal(path)
        assert not refused or refused.startswith(f"{file}: ")
        assert "\n" not in refused
        if not refused:
            read_in_every_way(results.load(path), whole)
    finally:
        file.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (("name",), ABSENT, "name: this field is missing"),
        (("variants",), None, "variants: input should be a valid list, not null"),
        (("variants", 0), 7, "variants.0: input should be "),
        (("sweep_points", 0, "index"), "0", 'sweep_points.0.index: input should be a valid integer, not "0"'),
        (
            ("sweep_points", 0, "sweep_point"),
            None,
            "sweep_points.0.sweep_point: input should be a valid dictionary, not null",
        ),
        (("sweep_points", 0, "index"), 7, "sweep_points.0.index: 7 is not its position"),
        (("sweep_points", 1, "index"), 0, "sweep_points.1.index: 0 is not its position"),
        (
            ("sweep_points", 0, "wan", 0, "between"),
            ["east"],
            "sweep_points.0.wan.0.between: list should have at least 2 items",
        ),
        (("warmup_iterations",), True, "warmup_iterations: input should be a valid integer, not true"),
        (("tokens_per_iteration",), -5, "tokens_per_iteration: input should be greater than or equal to 0, not -5"),
        (("dilation",), 0, "dilation: input should be greater than 0, not 0"),
        (("git",), "abc", "git: input should be "),
        (("name",), ["x" * 500 + "\n"], "name: input should be a valid string, not "),
    ],
)
def test_a_wrong_field_is_reported_with_its_path_and_value(
    build_run: BuildRun, at: Steps, value: object, text: str
) -> None:
    path = build_run()
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    (path / "manifest.json").write_text(json.dumps(with_value(manifest, at, value)), encoding="utf-8")
    with pytest.raises(RunError) as refused:
        results.load(path)
    assert str(refused.value).startswith(f"{path / 'manifest.json'}: {text}")
    assert str(refused.value).endswith("the file is damaged or edited: restore it, or run again")
    assert len(str(refused.value)) < len(str(path)) + 250
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("cut", [5, [["a", "b", 7]], [["a", "b", "7", 0.5]], [["a", "b", 7, None]]])
def test_connections_that_were_not_cut_so_are_refused(build_run: BuildRun, cut: object) -> None:
    (file,) = build_run(finished_trials=1).glob("trials/*/*/*/trial.json")
    facts = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**facts, "connections_cut": cut}), encoding="utf-8")
    with pytest.raises(RunError, match=r"trial\.json: connections_cut.* restore it, or run again$"):
        results.load(file.parents[4])


def test_an_empty_manifest_is_none() -> None:
    with pytest.raises(RunError, match=r"m\.json: name: this field is missing \(and 3 more\)"):
        check_manifest({}, "m.json")


def test_what_an_older_or_newer_run_says_or_leaves_out_is_no_fault() -> None:
    least = {"name": "a", "created": "then", "config_hash": "c", "complete": False}
    check_manifest(
        {**least, "from_the_future": [1], "sweep_points": [{"index": 0, "sweep_point": {}, "new": 1}]}, "m.json"
    )


@pytest.mark.parametrize("text", ['{"name": NaN}', '{"name": 1e999}', '{"name": "\\ud800"}', "[" * 100_000, "\xff"])
def test_what_is_no_plain_json_is_refused(build_run: BuildRun, text: str) -> None:
    path = build_run(finished_trials=1)
    (path / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RunError, match=r"manifest\.json: not JSON, the file is damaged"):
        results.load(path)


def test_a_copied_trial_is_refused_as_twice_the_same(build_run: BuildRun, tmp_path: Path) -> None:
    path = build_run(finished_trials=1, variants=("gpipe", "atlas"))
    folder = path / "trials/point-000/gpipe"
    shutil.copytree(folder / "repeat-0", folder / "repeat-1")
    with pytest.raises(
        RunError, match=r"repeat-1/trial\.json: twice sweep point 0, gpipe, repeat 0, here and in .*repeat-0"
    ):
        results.load(path)
    with pytest.raises(RunError, match="twice sweep point 0, gpipe, repeat 0"):
        write_trace(path, tmp_path / "trace.json", Selection())


@pytest.mark.parametrize("place", ["point-000/gpipe/repeat-1", "point-001/gpipe/repeat-0", "point-000/atlas/repeat-0"])
def test_a_trial_in_the_folder_of_another_is_refused(build_run: BuildRun, place: str) -> None:
    path = build_run(finished_trials=1, variants=("gpipe", "atlas"))
    (path / "trials" / place).parent.mkdir(parents=True, exist_ok=True)
    (path / "trials/point-000/gpipe/repeat-0").rename(path / "trials" / place)
    with pytest.raises(
        RunError, match=r"trial\.json: it says sweep point 0, gpipe, repeat 0, which belongs in .*gpipe/rep"
    ):
        results.load(path)
