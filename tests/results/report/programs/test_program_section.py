"""The report's section on programs: where each rank's time went, and what it says about that."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.results.programs import MS, ProgramOnPaper, program_run
from tests.support.results.runs import made, write_run
from wanbed import results
from wanbed.results.records.span_log import SpanLogContents
from wanbed.results.report.programs.program_section import ProgramSection, program_section
from wanbed.results.report.report import write_report

pytestmark = pytest.mark.usefixtures("unpainted")


def section(path: Path) -> ProgramSection:
    found = program_section(results.load(path))
    assert found is not None
    return found


def rows(section: ProgramSection, group: int = 0) -> dict[str, dict[str, tuple[str, str]]]:
    return {row[0][0]: dict(zip(section.columns, row, strict=True)) for row in section.groups[group].ranks}


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
    found = rows(section(program_run(tmp_path, {"ddp": ProgramOnPaper()})))
    assert list(found) == ["rank 0 on east-0", "rank 1 on west-0", "rank 2 on south-0"]
    first = {name: text.replace("\u00a0", " ") for name, (text, _) in found["rank 0 on east-0"].items()}
    # Iteration 5: backward ends at 65, the last of three all-reduces of 60 at 234.5, the optimizer at 240.5.
    assert first == {
        "rank": "rank 0 on east-0",
        "iteration": "244 ms",
        "forward and backward": "65.0 ms",
        "collectives, not hidden": "170 ms",
        "optimizer": "6.00 ms",
        "other": "4.00 ms",
        "collectives, hidden": "30.0 ms",
    }
    assert found["rank 0 on east-0"]["forward and backward"][1] == "26.6\u00a0%"


def test_the_reading_says_what_was_waited_for_and_for_whom(tmp_path: Path) -> None:
    reading = section(program_run(tmp_path, {"ddp": ProgramOnPaper()})).groups[0].reading.replace("\u00a0", " ")
    assert "64.5 % of the profiled iteration in collectives, 3 all-reduces of 16.8 MB, and computed nothing" in reading
    assert "Computation hid another 14.3 %." in reading
    assert "Rank 2 on south-0 was the last to begin 3 of 3 all-reduces" in reading
    assert "A measured iteration sent 28.5 MB to 31.5 MB over the WAN" in reading


def test_a_program_without_collectives_is_said_to_have_none(tmp_path: Path) -> None:
    found = section(program_run(tmp_path, {"alone": ProgramOnPaper(hosts=(("east-0", "east"),), buckets=0)}))
    assert found.groups[0].reading.startswith("No collective ran in the profiled iteration.")
    assert not found.any_collectives


def test_collectives_have_count_bytes_and_the_last_rank(tmp_path: Path) -> None:
    (row,) = section(program_run(tmp_path, {"ddp": ProgramOnPaper()})).groups[0].collectives
    texts = [" / ".join(filter(None, cell)).replace("\u00a0", " ") for cell in row]
    assert texts[:4] == ["all-reduce / all 3 ranks", "3", "16.8 MB", "50.3 MB"]
    assert texts[6:] == ["42.7 ms", "rank 2 on south-0 / 3 of 3 times"]


def test_without_a_profile_nothing_is_made_up(tmp_path: Path) -> None:
    found = section(program_run(tmp_path, {"ddp": ProgramOnPaper(profiled=0)}))
    assert found.groups[0].reading.startswith("No iteration was profiled (profile: 0), so that it is not known")
    assert (found.groups[0].ranks, found.any_collectives) == ([], False)


def test_a_rank_without_a_profile_is_unknown_and_named(tmp_path: Path) -> None:
    found = section(program_run(tmp_path, {"ddp": WithoutRank1()}))
    unknown = rows(found)["rank 1 on west-0"]
    assert unknown["iteration"][0] == "244\u00a0ms"
    assert {text for name, (text, _) in unknown.items() if name not in {"rank", "iteration"}} == {"n/a"}
    assert "Rank 1 on west-0 left no profile." in found.groups[0].reading
    # Which rank was last cannot be known without rank 1.
    assert "last to begin" not in found.groups[0].reading
    assert found.groups[0].collectives[0][7][0] == "n/a"


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

    reading = section(program_run(tmp_path, {"ddp": Slowed()})).groups[0].reading
    assert "Profiled iterations took" in reading
    assert "1.41 times the median of those without a profiler" in reading
    assert "neither computation nor a collective" in reading


def test_a_run_of_schedules_has_no_such_section(tmp_path: Path) -> None:
    assert program_section(made(tmp_path, {("10ms", "x"): [[1.0]]})) is None


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
