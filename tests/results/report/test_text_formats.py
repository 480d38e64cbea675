import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.report.text_formats import table_text
from wanbed.results.text import markdown_text

BuildRun = Callable[..., Path]


def saturated(run: Run, variant: str) -> Run:
    """The run, with all cores busy throughout that variant's second repeat."""
    load = {"machine_load": {"busy": 1.0, "saturated": 1.0, "network": None}}
    trials = (
        replace(trial, facts={**trial.facts, **load}) if (trial.variant, trial.repeat) == (variant, 1) else trial
        for trial in run.trials
    )
    return replace(run, trials=tuple(trials))


def test_csv_has_swept_values_then_exact_figures_with_units_in_their_names(build_run: BuildRun) -> None:
    run = results.load(build_run(repeats=3))
    rows = list(csv.DictReader(io.StringIO(table_text([run], "csv"))))
    assert list(rows[0])[:6] == ["topology.wan.latency", "run", "variant", "repeats", "iterations", "iteration_time_s"]
    assert [(row["topology.wan.latency"], row["variant"]) for row in rows] == [
        (latency, variant) for latency in ("10ms", "40ms") for variant in ("one connection", "many connections")
    ]
    assert float(rows[0]["iteration_time_s"]) == run.summary["iteration_time_s"][:3].median()
    low_s, high_s = (float(rows[0][f"iteration_time_{end}_s"]) for end in ("low", "high"))
    assert low_s <= float(rows[0]["iteration_time_s"]) <= high_s
    assert rows[0]["calibrated"] == "true"


def test_names_like_spreadsheet_formulas_get_an_apostrophe(build_run: BuildRun) -> None:
    hostile = ("=cmd|'/c calc'!A0", "+1", "-1", "@SUM(1)", "plain = name")
    run = results.load(build_run(name="=run", variants=hostile, latencies=("10ms",)))
    rows = list(csv.DictReader(io.StringIO(table_text([run], "csv"))))
    assert [row["variant"] for row in rows] == [*(f"'{name}" for name in hostile[:4]), hostile[4]]
    assert {row["run"] for row in rows} == {"'=run"}
    assert [each["variant"] for each in json.loads(table_text([run], "json"))["headline"]] == list(hostile)


def test_names_that_would_change_a_terminal_are_shown_in_csv_and_escaped_in_json(build_run: BuildRun) -> None:
    hostile = "\x1b[31mred\u202egnp\u2028\x9b\ufeff\rb"
    run = results.load(build_run(name=hostile, variants=(hostile,), latencies=("10ms",)))
    as_csv, as_json = (table_text([run], form) for form in ("csv", "json"))
    assert as_csv.replace("\n", "").isprintable()
    assert as_json.replace("\n", "").isprintable()
    (row,) = csv.DictReader(io.StringIO(as_csv))
    assert row["variant"] == "[U+001B][31mred[U+202E]gnp[U+2028][U+009B][U+FEFF][U+000D]b"
    assert json.loads(as_json)["headline"][0]["variant"] == hostile


def test_what_is_unknown_is_empty_in_csv_and_null_in_json(build_run: BuildRun) -> None:
    run = results.load(build_run(manifest={"engine": "simulate", "tokens_per_iteration": None}))
    row = next(csv.DictReader(io.StringIO(table_text([run], "csv"))))
    assert (row["iteration_time_low_s"], row["tokens_per_s"]) == ("", "")
    document = json.loads(table_text([run], "json"))
    assert document["headline"][0]["tokens_per_s"] is None


def test_json_has_all_tables_of_all_runs(build_run: BuildRun) -> None:
    runs = [results.load(build_run(name=name)) for name in ("old", "new")]
    document = json.loads(table_text(runs, "json"))
    assert list(document) == ["runs", "headline", "prefill", "impact", "calibration", "differences"]
    assert [run["run"] for run in document["runs"]] == ["old", "new"]
    assert len(document["headline"]) == 8
    assert len(document["calibration"]) == 24
    assert {"field": "name", "values": {"old": '"old"', "new": '"new"'}, "derived": False} in document["differences"]


def test_markdown_reads_as_the_page_does(build_run: BuildRun) -> None:
    lines = table_text([results.load(build_run(repeats=3))], "md").replace("\u00a0", " ").splitlines()
    assert lines[:2] == ["**Results**", ""]
    assert lines[2].startswith("| sweep point | variant | iteration time (median (95 % interval)) | speed-up |")
    assert lines[4].startswith("| WAN latency 10ms | one connection | ")
    assert lines[4].endswith("| yes |")
    assert re.match(r".* \| [0-9.]+ s \([0-9.]+ s to [0-9.]+ s\) \| ", lines[4])
    assert "bootstrap interval" in lines[9]
    assert "**Calibration: configured against measured**" in lines


@pytest.mark.parametrize("repeats", [1, 2])
def test_below_three_repeats_no_table_has_an_interval(build_run: BuildRun, repeats: int) -> None:
    run = results.load(build_run(repeats=repeats))
    for row in csv.DictReader(io.StringIO(table_text([run], "csv"))):
        assert (row["repeats"], row["iteration_time_low_s"], row["iteration_time_high_s"]) == (str(repeats), "", "")
    for record in json.loads(table_text([run], "json"))["headline"]:
        assert record["iteration_time_low_s"] is record["iteration_time_high_s"] is None
    text = table_text([run], "md").replace("\u00a0", " ")
    reason = "1 repeat, no interval) |" if repeats == 1 else "2 repeats, no interval: "
    assert text.count(f" ({reason}") == 4
    assert "bootstrap" not in text


def test_a_saturated_machine_stands_in_the_row(build_run: BuildRun) -> None:
    run = saturated(results.load(build_run(repeats=3, latencies=("10ms",))), "one connection")
    first, second = csv.DictReader(io.StringIO(table_text([run], "csv")))
    assert (first["calibrated"], first["saturated"], first["saturated_repeats"]) == ("true", "true", "1")
    assert (first["cores_saturated_fraction"], first["network_core_busy_fraction"]) == ("1.0", "")
    assert (second["saturated"], second["saturated_repeats"]) == ("false", "0")
    record, _ = json.loads(table_text([run], "json"))["headline"]
    assert (record["saturated"], record["cores_saturated_fraction"]) == (True, 1.0)
    lines = table_text([run], "md").replace("\u00a0", " ").splitlines()
    assert lines[6].endswith("| **yes, but saturated** (all cores 100 % in 1 of 3 repeats) |")
    assert lines[7].endswith("| yes |")
    assert any(" Saturated: " in line for line in lines)


def test_prefill_has_tables_where_there_was_any_and_no_columns_elsewhere(build_run: BuildRun) -> None:
    alone, served = (
        results.load(
            build_run(name=name, variants=("atlas", "filled"), latencies=("40ms",), repeats=3, prefill=prefill)
        )
        for name, prefill in (("alone", None), ("served", {"filled": 10.0}))
    )
    names = next(csv.reader(io.StringIO(table_text([alone], "csv"))))
    assert [name for name in names if name.startswith("prefill_")] == ["prefill_fraction"]
    assert "TTFT" not in table_text([alone], "md")
    first, second = csv.DictReader(io.StringIO(table_text([served], "csv")))
    assert (first["prefill_policy"], second["prefill_policy"]) == ("", "planned")
    document = json.loads(table_text([alone, served], "json"))
    assert [(each["run"], each["variant"]) for each in document["prefill"]] == [("served", "filled")]
    assert [(each["without"], each["pairs"], each["verdict"]) for each in document["impact"]] == [
        ("atlas", 3, "within")
    ]
    text = table_text([served], "md").replace("\u00a0", " ")
    assert "% with prefill)" in text.replace("\u00a0", " ")
    assert "TTFT p99" in text
    assert "no impact, with 3 of at least 5 pairs |" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a&#124;b"),
        ("<b>", "&#60;b&#62;"),
        ("two\nlines", "two lines"),
        ("*_`[x](y)", "\\*\\_\\`\\[x\\](y)"),
        ("\u202ex", "\\[U+202E\\]x"),
    ],
)
def test_names_are_only_ever_text_in_markdown(text: str, shown: str) -> None:
    assert markdown_text(text) == shown


COURSE = {"source": "drift.csv", "synthetic": False, "period_ns": None, "changes": 3, "sha256": "ab"}

CHANGES = "east to west (3 changes, drift.csv)"


def changing_in_the_second_point(run: Run) -> Run:
    """The run, with a link that changes in its second sweep point."""
    first, second = run.manifest["sweep_points"]
    link = {"from": "east", "to": "west", "course": COURSE}
    return replace(run, manifest={**run.manifest, "sweep_points": [first, {**second, "wan": [link]}]})


def test_every_table_names_the_links_that_change(build_run: BuildRun) -> None:
    run = changing_in_the_second_point(results.load(build_run()))
    rows = list(csv.DictReader(io.StringIO(table_text([run], "csv"))))
    assert [row["changing_links"] for row in rows] == ["", "", CHANGES, CHANGES]
    document = json.loads(table_text([run], "json"))
    assert [each["changing_links"] for each in document["headline"]] == [[], [], [CHANGES], [CHANGES]]
    (link,) = document["changing_links"]
    assert (link["from"], link["to"], link["points"], link["course"]) == ("east", "west", [1], "drift.csv")
    assert markdown_text(f"Links change while training runs: {CHANGES}.") in table_text([run], "md").splitlines()


def test_of_several_runs_the_tables_say_in_which_links_change(build_run: BuildRun) -> None:
    runs = [results.load(build_run(name="still")), changing_in_the_second_point(results.load(build_run(name="moving")))]
    lines = [line for line in table_text(runs, "md").splitlines() if "Links change" in line]
    assert lines == [markdown_text(f"moving: Links change while training runs: {CHANGES}.")]
    assert {each["run"] for each in json.loads(table_text(runs, "json"))["changing_links"]} == {"moving"}


def test_where_no_link_changes_no_table_mentions_it(build_run: BuildRun) -> None:
    run = results.load(build_run())
    assert not [form for form in ("csv", "json", "md") if "changing_links" in table_text([run], form)]
    assert "Links change" not in table_text([run], "md")


@pytest.mark.parametrize(
    ("form", "text"), [("csv", "\n"), ("md", "**Read this first.** This run is incomplete: 0 of 4 ")]
)
def test_a_run_without_a_finished_trial_has_tables_without_rows(build_run: BuildRun, form: str, text: str) -> None:
    assert table_text([results.load(build_run(finished_trials=0))], form).startswith(text)


def test_markdown_says_before_its_tables_that_a_run_is_incomplete(build_run: BuildRun) -> None:
    cut_off, whole = results.load(build_run(finished_trials=3)), results.load(build_run(name="whole"))
    warning = "This run is incomplete: 3 of 4 trials had finished when its folder was read. Only those are shown."
    assert table_text([cut_off], "md").startswith(f"**Read this first.** {warning}\n\n**Results**\n")
    assert table_text([whole], "md").startswith("**Results**\n")
    assert table_text([whole, cut_off], "md").startswith(f"**Read this first.** demo: {warning}\n\n**Results**\n")
