import json
from pathlib import Path

from wanbed.runner.trainings.program.on_hosts.iteration_watch import IterationWatch

HEADER = json.dumps({"version": 2, "rank": 0})


def iteration(number: int) -> str:
    return json.dumps(["iteration", number, -1, 0, 1, 0, "", "", -1])


def watch(folder: Path, ranks: int = 2) -> IterationWatch:
    return IterationWatch({rank: folder / f"rank-{rank}.spans" for rank in range(ranks)})


def log(folder: Path, rank: int, *lines: str) -> None:
    with (folder / f"rank-{rank}.spans").open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def test_nothing_is_complete_before_a_rank_logs(tmp_path: Path) -> None:
    following = watch(tmp_path)
    following.look()
    assert (following.total, following.all_complete, following.slowest) == (0, False, None)


def test_iterations_are_counted_as_they_are_logged_and_other_spans_are_not(tmp_path: Path) -> None:
    following = watch(tmp_path)
    log(tmp_path, 0, HEADER, iteration(0), json.dumps(["optimizer", 0, -1, 0, 1, 0, "", "", -1]))
    following.look()
    log(tmp_path, 0, iteration(1))
    log(tmp_path, 1, HEADER, iteration(0))
    following.look()
    following.look()
    assert following.ended == {0: 2, 1: 1}
    assert following.slowest == 1


def test_a_line_that_is_still_being_written_counts_once_it_is_whole(tmp_path: Path) -> None:
    following = watch(tmp_path, 1)
    whole = iteration(0)
    (tmp_path / "rank-0.spans").write_text(f"{HEADER}\n{whole[:9]}")
    following.look()
    assert following.total == 0
    (tmp_path / "rank-0.spans").write_text(f"{HEADER}\n{whole}\n")
    following.look()
    assert following.total == 1


def test_all_is_complete_once_every_rank_that_marks_has_ended_its_last_iteration(tmp_path: Path) -> None:
    following = watch(tmp_path, 3)
    for rank in (0, 1):
        log(tmp_path, rank, HEADER, iteration(0))
    log(tmp_path, 0, '{"complete": true}')
    following.look()
    assert not following.all_complete
    log(tmp_path, 1, '{"complete": true}')
    following.look()
    assert following.all_complete
    assert following.complete == {0, 1}
