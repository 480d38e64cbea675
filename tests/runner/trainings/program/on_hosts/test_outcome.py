from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed.results.records.span_log import Span, SpanLog, SpanLogHeader
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.trainings.program.on_hosts.outcome import measured_ns, profiled_iterations, read_ranks, unmarked
from wanbed.runner.trainings.program.resolution.resolved_program import ResolvedProgram
from wanbed.runner.trainings.program.spec.program_spec import ProgramSpec


def program(**changes: Any) -> ResolvedProgram:
    spec = ProgramSpec.model_validate({"command": ["train"]})
    return ResolvedProgram(**{**vars(ResolvedProgram(spec, 4, 1, 1, Path("/"))), **changes})


def logged(folder: Path, rank: int, iterations: int, begin_ns: int = 0, *others: Span) -> Path:
    path = folder / f"rank-{rank}.spans"
    log = SpanLog(path, SpanLogHeader(rank, f"host-{rank}", "east", 0, pipeline=rank, stage=0))
    for number in range(iterations):
        log.record(Span("iteration", number, -1, begin_ns + 10 * number, begin_ns + 10 * number + 10))
    for other in others:
        log.record(other)
    log.flush()
    return path


def test_what_lies_beyond_the_iterations_is_left_out_though_the_program_was_killed(tmp_path: Path) -> None:
    (log,) = read_ranks({0: logged(tmp_path, 0, 6)}, program(), "mine")
    assert [span.iteration for span in log.spans] == [0, 1, 2, 3]
    assert log.complete


def test_a_rank_that_marked_nothing_is_left_out_and_named(tmp_path: Path) -> None:
    logs = read_ranks({0: logged(tmp_path, 0, 4), 1: tmp_path / "rank-1.spans"}, program(), "mine")
    assert [log.header.rank for log in logs] == [0]
    assert unmarked(logs, 2) == [1]


def test_a_message_has_the_host_at_its_other_end_which_a_rank_does_not_know(tmp_path: Path) -> None:
    paths = {
        rank: logged(tmp_path, rank, 4, 0, Span(kind, 3, -1, 31, 35, 8, "", "0,1"))
        for rank, kind in enumerate(("send", "receive"))
    }
    logs = read_ranks(paths, program(), "mine")
    assert [(log.spans[-1].kind, log.spans[-1].peer) for log in logs] == [("send", "host-1"), ("receive", "host-0")]


def test_the_measured_part_ends_before_the_profiled_iterations_and_begins_with_the_last_rank(tmp_path: Path) -> None:
    logs = read_ranks({0: logged(tmp_path, 0, 4), 1: logged(tmp_path, 1, 4, begin_ns=3)}, program(), "mine")
    assert measured_ns(logs, program(), 1) == (13, 33)


def test_iterations_are_profiled_only_where_a_profiler_left_what_it_saw(tmp_path: Path) -> None:
    logs = read_ranks({0: logged(tmp_path, 0, 4)}, program(), "mine")
    assert profiled_iterations(logs, program()) == 0
    (log,) = logs
    seen = replace(log, spans=(*log.spans, Span("optimizer", 3, -1, 30, 31), Span("all_reduce", 3, -1, 31, 32)))
    assert profiled_iterations([seen], program()) == 1
    assert profiled_iterations([replace(log, spans=seen.spans[:-1])], program()) == 0


def test_too_few_iterations_and_none_at_all_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="after 2 iterations at rank 0 on host-0, where 4 were to be done: let it do"):
        read_ranks({0: logged(tmp_path, 0, 2)}, program(), "mine")
    with pytest.raises(TrialError, match="no iteration was marked: it stepped no optimizer"):
        read_ranks({0: tmp_path / "rank-5.spans"}, program(), "mine")
