"""What summary, report and comparison say of simulations of kinds that are known to be off."""

import json
from pathlib import Path

from tests.support.results.runs import flat, write_run
from wanbed.results.comparison.caveats import caveats
from wanbed.results.comparison.pairing import pair_runs
from wanbed.results.comparison.run_description import warnings
from wanbed.results.reading.headline import headline
from wanbed.results.reading.known_misses import KnownMiss
from wanbed.results.reading.run import Run, load_run
from wanbed.results.report.report import write_report
from wanbed.results.report.text_formats import table_text

MISS = KnownMiss("full-trunk", "node pairs together fill a trunk", -0.18, 0.25, 88)
TEXT = (
    "full-trunk: node pairs together fill a trunk (iteration times simulated 18 % too fast to 25 % too slow, over 88 "
    "trials)"
)


def simulated(path: Path, *, marked: bool) -> Run:
    run = write_run(path, {("10ms", "stock"): flat(1.0), ("10ms", "other"): flat(2.0)}, engine="simulate")
    for trial in run.glob("trials/*/*/*/trial.json") if marked else ():
        facts = json.loads(trial.read_text())
        if facts["variant"] == "stock":
            trial.write_text(json.dumps({**facts, "known_misses": [MISS.document()]}))
    return load_run(run)


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_summary_and_table_have_the_kinds_of_each_trial(tmp_path: Path) -> None:
    run = simulated(tmp_path, marked=True)
    assert {row.variant: row.standing.known_misses for row in headline(run)} == {"stock": (MISS,), "other": ()}
    assert {name for names in run.summary["known_misses"] for name in names} == {"full-trunk"}


def test_the_report_warns_with_the_range(tmp_path: Path) -> None:
    marked, unmarked = (simulated(tmp_path / str(each), marked=each) for each in (True, False))
    assert any(plain(warning).endswith(f"known to be off from virtual time: {TEXT}.") for warning in warnings(marked))
    assert not any("known to be off" in warning for warning in warnings(unmarked))


def test_the_tables_rows_name_the_kinds_and_which_way_they_err(tmp_path: Path) -> None:
    run, page = simulated(tmp_path / "simulated", marked=True), tmp_path / "report.html"
    write_report([run], page)
    mark = "known to be off: full-trunk (iteration times simulated 18 % too fast to 25 % too slow)"
    assert page.read_text(encoding="utf-8").count(f"{mark}</span>") == 1
    assert table_text([run], "md").count(f"simulated ({mark})") == 1


def test_a_comparison_says_which_side_is_of_such_a_kind(tmp_path: Path) -> None:
    marked, unmarked = (simulated(tmp_path / str(each), marked=each) for each in (True, False))
    again, other = (simulated(tmp_path / f"again-{each}", marked=each) for each in (True, False))

    def said(a: Run, b: Run) -> list[str]:
        return [plain(line) for line in caveats(a, b, pair_runs(a, b).pairs) if "known to be off" in line]

    assert said(unmarked, marked) == [
        f"Simulations in B are of kinds that are known to be off from virtual time: {TEXT}."
    ]
    assert said(marked, again)[0].startswith("Simulations in A and B are")
    assert said(unmarked, other) == []
