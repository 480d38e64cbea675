"""The report's tables of programs: where each rank's time went, and what they say about that."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.results.programs import MS, ProgramOnPaper, program_run
from tests.support.results.runs import made, write_run
from tests.support.results.table_texts import by_heading
from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.records.span_log import SpanLogContents
from wanbed.results.report.program_tables import collective_table, program_table
from wanbed.results.report.report import write_report
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import Table


def tables(path: Path) -> dict[str, Table]:
    return tables_of(results.load(path))


def tables_of(run: Run) -> dict[str, Table]:
    own = ReportedRun(run)
    return {table.name: table for table in (program_table(own), collective_table(own)) if table is not None}


def reading(path: Path) -> str:
    (text,) = tables(path)["programs"].reading
    return text.replace("\N{NO-BREAK SPACE}", " ")


@dataclass
class WithoutRank1(ProgramOnPaper):
    """Rank 1 left no profile."""

    def logs(self) -> list[SpanLogContents]:
        return [
            replace(log, spans=tuple(span for span in log.spans if span.kind in {"iteration", "optimizer"}))
            if log.header.rank == 1
            else log
            for log in super().logs()
        ]


def test_every_rank_has_its_parts_in_time_and_share(tmp_path: Path) -> None:
    found = by_heading(tables(program_run(tmp_path, {"ddp": ProgramOnPaper()}))["programs"])
    assert [row["rank"] for row in found] == ["rank 0 on east-0", "rank 1 on west-0", "rank 2 on south-0"]
    # Iteration 5: backward ends at 65, the last of three all-reduces of 60 at 234.5, the optimizer at 240.5.
    assert {heading: text.partition(" /")[0] for heading, text in found[0].items()} == {
        "variant": "ddp",
        "rank": "rank 0 on east-0",
        "iteration": "244 ms",
        "forward and backward": "65.0 ms",
        "collectives, not hidden": "170 ms",
        "optimizer": "6.00 ms",
        "other": "4.00 ms",
        "collectives, hidden": "30.0 ms",
    }
    assert found[0]["forward and backward"] == "65.0 ms / 26.6 %"


def test_the_reading_says_what_was_waited_for_and_for_whom(tmp_path: Path) -> None:
    said = reading(program_run(tmp_path, {"ddp": ProgramOnPaper()}))
    assert "64.5 % of the profiled iteration in collectives, 3 all-reduces of 16.8 MB, and computed nothing" in said
    assert "Computation hid another 14.3 %." in said
    assert "Rank 2 on south-0 was the last to begin 3 of 3 all-reduces" in said
    assert "A measured iteration sent 28.5 MB to 31.5 MB over the WAN" in said


def test_a_program_without_collectives_is_said_to_have_none(tmp_path: Path) -> None:
    path = program_run(tmp_path, {"alone": ProgramOnPaper(hosts=(("east-0", "east"),), buckets=0)})
    assert reading(path).startswith("No collective ran in the profiled iteration.")
    assert list(tables(path)) == ["programs"]


def test_collectives_have_count_bytes_and_the_last_rank(tmp_path: Path) -> None:
    (row,) = by_heading(tables(program_run(tmp_path, {"ddp": ProgramOnPaper()}))["collectives"])
    texts = [*row.values()][1:]
    assert texts[:4] == ["all-reduce / all 3 ranks", "3", "16.8 MB", "50.3 MB"]
    assert texts[6:] == ["42.7 ms", "rank 2 on south-0 / 3 of 3 times"]


def test_without_a_profile_nothing_is_made_up(tmp_path: Path) -> None:
    path = program_run(tmp_path, {"ddp": ProgramOnPaper(profiled=0)})
    assert reading(path).startswith("No iteration was profiled (profile: 0), so that it is not known")
    (table,) = tables(path).values()
    assert [row["rank"] for row in by_heading(table)] == ["none was profiled"]


def test_a_rank_without_a_profile_is_unknown_and_named(tmp_path: Path) -> None:
    path = program_run(tmp_path, {"ddp": WithoutRank1()})
    unknown = by_heading(tables(path)["programs"])[1]
    assert (unknown["rank"], unknown["iteration"]) == ("rank 1 on west-0", "244 ms")
    assert {*unknown.values()} - {"ddp", "rank 1 on west-0", "244 ms"} == {"n/a"}
    assert "Rank 1 on west-0 left no profile." in reading(path)
    # Which rank was last cannot be known without rank 1.
    assert "last to begin" not in reading(path)
    assert by_heading(tables(path)["collectives"])[0]["last to begin"] == "n/a"


def test_slower_profiled_iterations_are_said_to_be(tmp_path: Path) -> None:
    class Slowed(ProgramOnPaper):
        def logs(self) -> list[SpanLogContents]:
            def later(log: SpanLogContents) -> SpanLogContents:
                spans = [
                    span._replace(end_ns=span.end_ns + 100 * MS)
                    if (span.kind, span.iteration) == ("iteration", 5)
                    else span
                    for span in log.spans
                ]
                return replace(log, spans=tuple(spans))

            return [later(log) for log in super().logs()]

    said = reading(program_run(tmp_path, {"ddp": Slowed()}))
    assert "Profiled iterations took" in said
    assert "1.41 times the median of those without a profiler" in said
    assert "neither computation nor a collective" in said


def test_a_run_of_schedules_has_no_such_tables(tmp_path: Path) -> None:
    assert tables_of(made(tmp_path, {("10ms", "x"): [[1.0]]})) == {}


@pytest.mark.parametrize("profiled", [0, 1])
def test_the_page_names_ranks_and_not_stages(tmp_path: Path, profiled: int) -> None:
    path = program_run(tmp_path, {"ddp": ProgramOnPaper(profiled=profiled)})
    write_report([path], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Where the time of programs went" in page
    assert ("rank 2 on south-0" in page) == bool(profiled)
    assert "python train.py --lr 0.1" in page
    assert "stage" not in page.split("<h2>How it was run")[0].split("</style>")[1]


def test_the_page_of_a_schedule_says_nothing_of_programs(tmp_path: Path) -> None:
    path = write_run(tmp_path, {("10ms", "x"): [[1.0]]})
    write_report([path], tmp_path / "report.html")
    assert "programs went" not in (tmp_path / "report.html").read_text()
