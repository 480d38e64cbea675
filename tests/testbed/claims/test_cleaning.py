import multiprocessing
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.until import until_within
from wanbed.testbed.claims import cleaning
from wanbed.testbed.claims import cleaning as module
from wanbed.testbed.claims.cleaning import (
    Cleaned,
    CleaningError,
    Leftover,
    clean,
    clean_claim,
    end_processes,
    leftovers,
    leftovers_text,
)
from wanbed.testbed.claims.processes import MARKER, SUPERVISED, marked_processes
from wanbed.testbed.claims.registry import Claim, claim, claims

until = partial(until_within, 60)

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes of the test, ended with it at the latest."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def marked(identifier: str, *argv: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(argv or ["sleep", "60"], env={**os.environ, MARKER: identifier}, start_new_session=True)


def left_behind(root: Path, source: str = "exp.yaml") -> Claim:
    """A testbed whose owner was killed."""

    def claim_and_die() -> None:
        claim(source, root)
        os._exit(0)

    child = FORK.Process(target=claim_and_die)
    child.start()
    child.join()
    return next(each for each in claims(root) if each.record.owner_pid == child.pid)


def test_a_testbed_whose_owner_is_gone_is_removed_with_its_processes_and_files(
    tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    root = tmp_path / "state"
    left = left_behind(root)
    (left.folder / "guest").mkdir()
    (left.folder / "guest" / "log").write_text("words")
    started += [marked(left.record.identifier) for _ in range(3)]
    assert clean(root) == [Cleaned(left.record.identifier, "exp.yaml", 3)]
    assert [process.wait() for process in started] == [-signal.SIGKILL] * 3
    assert not root.exists()


def test_a_living_owners_testbed_is_left_alone(tmp_path: Path, started: list["subprocess.Popen[bytes]"]) -> None:
    ours, left = claim("ours", tmp_path), left_behind(tmp_path)
    started += [marked(ours.record.identifier), marked(left.record.identifier)]
    assert [each.identifier for each in clean(tmp_path)] == [left.record.identifier]
    assert started[1].wait() == -signal.SIGKILL
    assert started[0].poll() is None
    assert claims(tmp_path) == [ours]


def test_the_name_of_a_program_does_not_matter(tmp_path: Path, started: list["subprocess.Popen[bytes]"]) -> None:
    left = left_behind(tmp_path)
    started += [subprocess.Popen(["sleep", "60"]), marked(left.record.identifier)]
    clean(tmp_path)
    assert started[0].poll() is None


def test_processes_started_by_a_dying_process_are_killed_too(started: list["subprocess.Popen[bytes]"]) -> None:
    identifier = "wb-test-breeding"
    started.append(marked(identifier, "sh", "-c", "while :; do setsid sleep 60 & sleep 0.02; done"))
    until(lambda: len(marked_processes(identifier)) >= 3)
    assert end_processes(identifier) >= 3
    assert marked_processes(identifier) == []


def test_starting_process_without_environment_is_found_at_the_second_look(
    started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    started.append(subprocess.Popen(["sleep", "60"]))
    looks = iter([[], [started[0].pid], []])
    monkeypatch.setattr(cleaning, "processes_of", lambda *_: next(looks, []))
    assert end_processes("wb-test-starting") == 1
    assert started[0].wait() == -signal.SIGKILL


def test_a_process_that_ignores_polite_signals_is_ended_too(started: list["subprocess.Popen[bytes]"]) -> None:
    identifier = "wb-test-deaf"
    started.append(marked(identifier, "sh", "-c", "trap '' TERM INT HUP; echo; sleep 60; sleep 60"))
    assert end_processes(identifier) >= 1
    assert marked_processes(identifier) == []


def test_a_process_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "processes_of", lambda *_: [2**22 + 1])
    monkeypatch.setattr(cleaning, "_DEADLINE_S", 0.0)
    with pytest.raises(CleaningError, match=rf"testbed wb-stuck: processes \[{2**22 + 1}\] do not end"):
        end_processes("wb-stuck")


def test_a_testbed_whose_processes_do_not_end_stays_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_behind(tmp_path)
    monkeypatch.setattr(cleaning, "processes_of", lambda *_: [2**22 + 1])
    monkeypatch.setattr(cleaning, "_DEADLINE_S", 0.0)
    with pytest.raises(CleaningError):
        clean(tmp_path)
    assert claims(tmp_path) == [left]


def test_testbed_can_be_removed_although_its_owner_lives(
    tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    ours = claim("ours", tmp_path)
    started.append(marked(ours.record.identifier))
    assert clean_claim(ours) == Cleaned(ours.record.identifier, "ours", 1)
    assert list(tmp_path.iterdir()) == []


def test_abandoned_drafts_go(tmp_path: Path) -> None:
    ours = claim("ours", tmp_path)
    draft = tmp_path / f".wb-0123456789ab.{os.getpid()}.{ours.record.owner_start_ticks - 1}"
    (draft / "folder").mkdir(parents=True)
    assert clean(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_cleaning_where_nothing_is_does_nothing(tmp_path: Path) -> None:
    assert clean(tmp_path / "nowhere") == []
    assert not (tmp_path / "nowhere").exists()


def test_leftovers_are_what_a_killed_owner_left_and_nothing_of_a_living_one(
    tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    claim("ours", tmp_path)
    left = left_behind(tmp_path)
    started += [marked(left.record.identifier) for _ in range(2)]
    until(lambda: len(marked_processes(left.record.identifier)) == 2)
    assert leftovers(tmp_path) == [Leftover(left.record.identifier, "exp.yaml", processes=2, namespaces=0)]
    assert leftovers(tmp_path / "nowhere") == []


def test_what_a_supervisor_is_ending_is_not_a_leftover(
    tmp_path: Path, started: list["subprocess.Popen[bytes]"]
) -> None:
    left = left_behind(tmp_path)
    supervisor = subprocess.Popen(["sleep", "60"], env={**os.environ, SUPERVISED: left.record.identifier})
    started.append(supervisor)
    until(lambda: marked_processes(left.record.identifier, SUPERVISED) != [])
    assert leftovers(tmp_path) == []


LEFT = Leftover("wb-1", "/home/me/exp.yaml", processes=12, namespaces=3)


def text_of(left: list[Leftover], monkeypatch: pytest.MonkeyPatch, *, inside: bool = False) -> str | None:
    monkeypatch.setattr(module, "in_user_namespace", lambda: inside)
    monkeypatch.setattr(module, "leftovers", lambda: left)
    return leftovers_text()


def test_leftovers_are_one_line_with_the_command_that_removes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert text_of([LEFT], monkeypatch) == (
        "killed runs left wb-1 of /home/me/exp.yaml (12 processes, 3 network namespaces): "
        "`wanbed clean` removes what they left"
    )


def test_of_many_leftovers_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of([Leftover(f"wb-{number}", "x", 0, 0) for number in range(9)], monkeypatch)
    assert text is not None
    assert text.startswith("killed runs left wb-0 of x (its record), wb-1 of x (its record), ")
    assert ", and 6 more: `wanbed clean` " in text


@pytest.mark.parametrize(("left", "inside"), [([], False), ([LEFT], True)])
def test_nothing_is_reported_where_nothing_is_left_or_can_be_seen(
    left: list[Leftover], inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert text_of(left, monkeypatch, inside=inside) is None
