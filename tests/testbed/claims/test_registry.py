import json
import multiprocessing
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.testbed.claims import registry
from wanbed.testbed.claims.processes import process_start_ticks
from wanbed.testbed.claims.registry import Claim, abandoned_drafts, claim, claims, state_root
from wanbed.testbed.network.addressing import MAX_SLOTS

FORK = multiprocessing.get_context("fork")


def in_child(act: Callable[[], Any]) -> None:
    """Run an action in a child process that then ends like a killed one, without clean-up."""

    def run() -> None:
        act()
        os._exit(0)

    child = FORK.Process(target=run)
    child.start()
    child.join()
    assert child.exitcode == 0


def test_a_claim_is_a_folder_of_its_own_with_a_record_of_its_owner(tmp_path: Path) -> None:
    ours = claim("exp.yaml", tmp_path)
    assert ours.folder == tmp_path / str(ours.record.slot)
    assert json.loads((ours.folder / "record.json").read_text()) == asdict(ours.record)
    assert (ours.record.owner_pid, ours.record.source) == (os.getpid(), "exp.yaml")
    assert ours.record.owner_alive()
    assert claims(tmp_path) == [ours]


def test_claims_have_distinct_slots_and_release_frees_the_slot(tmp_path: Path) -> None:
    first, second, third = (claim("", tmp_path) for _ in range(3))
    assert [each.record.slot for each in (first, second, third)] == [1, 2, 3]
    assert len({each.record.identifier for each in (first, second, third)}) == 3
    second.release()
    assert [each.record.slot for each in claims(tmp_path)] == [1, 3]
    assert claim("", tmp_path).record.slot == 2


def test_a_slot_may_be_asked_for_and_is_refused_if_it_is_taken(tmp_path: Path) -> None:
    assert claim("", tmp_path, slot=7).record.slot == 7
    with pytest.raises(InputError, match=r"/7: this testbed slot was taken just now, try again$"):
        claim("", tmp_path, slot=7)
    assert abandoned_drafts(tmp_path) == []
    assert [each.record.slot for each in claims(tmp_path)] == [7]


def test_claims_are_listed_by_slot_whatever_the_number_of_its_digits(tmp_path: Path) -> None:
    for _ in range(11):
        claim("", tmp_path)
    assert [each.record.slot for each in claims(tmp_path)] == list(range(1, 12))


def test_processes_that_claim_at_once_get_distinct_slots(tmp_path: Path) -> None:
    together = FORK.Barrier(4)
    slots = FORK.SimpleQueue()

    def claim_some() -> None:
        together.wait(timeout=20)
        slots.put([claim("", tmp_path).record.slot for _ in range(8)])

    children = [FORK.Process(target=claim_some) for _ in range(4)]
    for child in children:
        child.start()
    taken = [slot for _ in children for slot in slots.get()]
    for child in children:
        child.join()
    assert sorted(taken) == list(range(1, 33))
    assert not abandoned_drafts(tmp_path)


def test_claim_without_a_free_slot_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    for slot in range(1, MAX_SLOTS + 1):
        (tmp_path / str(slot) / "something").mkdir(parents=True)
    with pytest.raises(InputError, match=r"all 250 testbed slots are taken, run `wanbed clean` or end some"):
        claim("", tmp_path)
    assert len(list(tmp_path.iterdir())) == MAX_SLOTS


def test_where_nothing_was_ever_claimed_there_are_neither_claims_nor_drafts(tmp_path: Path) -> None:
    assert claims(tmp_path / "nowhere") == []
    assert abandoned_drafts(tmp_path / "nowhere") == []


def test_an_owner_that_has_ended_is_not_alive(tmp_path: Path) -> None:
    in_child(lambda: claim("", tmp_path))
    (left,) = claims(tmp_path)
    assert not left.record.owner_alive()


def test_later_process_with_the_owners_pid_is_not_the_owner(tmp_path: Path) -> None:
    ours = claim("", tmp_path).record
    assert ours.owner_alive()
    assert not replace(ours, owner_start_ticks=ours.owner_start_ticks - 1).owner_alive()


def test_zombie_process_has_no_start_time() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_start_ticks(process.pid) is None
    process.wait()
    assert process_start_ticks(process.pid) is None


def test_start_time_is_parsed_after_any_process_name(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    shutil.copy(shutil.which("sleep") or "", program)
    process = subprocess.Popen([program, "60"])
    try:
        beside = process_start_ticks(os.getpid())
        start = process_start_ticks(process.pid)
        assert start is not None
        assert beside is not None
        assert start >= beside
    finally:
        process.kill()
        process.wait()


def test_a_claim_that_was_cut_off_before_its_slot_is_an_abandoned_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        os._exit(0)

    for step in ("write_text", "rename"):
        monkeypatch.setattr(Path, step, die)
        in_child(lambda: claim("", tmp_path))
        monkeypatch.undo()
    assert len(abandoned_drafts(tmp_path)) == 2
    assert claims(tmp_path) == []


def test_a_draft_of_a_living_process_is_not_abandoned_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Path]] = []

    def looking_first(step: Callable[..., Any]) -> Callable[..., Any]:
        def looked(*arguments: Any, **named: Any) -> Any:
            seen.append(abandoned_drafts(tmp_path))
            return step(*arguments, **named)

        return looked

    for step in ("write_text", "rename"):
        monkeypatch.setattr(Path, step, looking_first(getattr(Path, step)))
    claim("", tmp_path)
    assert seen
    assert not any(seen)


def test_a_claim_succeeds_although_the_root_is_removed_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "wanbed"
    mkdir = Path.mkdir

    def removed_once(path: Path, *arguments: Any, **named: Any) -> None:
        if path.parent == root:
            monkeypatch.undo()
            root.rmdir()
        mkdir(path, *arguments, **named)

    monkeypatch.setattr(Path, "mkdir", removed_once)
    ours = claim("", root)
    assert claims(root) == [ours]


def test_a_folder_on_disk_ends_with_the_claim_whoever_releases_it(tmp_path: Path) -> None:
    ours = claim("", tmp_path)
    folder = ours.make_disk_folder()
    (folder / "train.py").write_text("pass")
    assert folder.stat().st_mode & 0o777 == 0o700
    (found,) = claims(tmp_path)
    found.release()
    assert not folder.exists()
    assert not claims(tmp_path)


def test_a_release_that_is_cut_off_half_way_leaves_a_draft_and_no_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die_half_way(folder: Path, **_: object) -> None:
        (folder / "record.json").unlink()
        os._exit(0)

    def cut_off() -> None:
        ours = claim("", tmp_path)
        (ours.folder / "more").mkdir()
        monkeypatch.setattr(registry.shutil, "rmtree", die_half_way)
        ours.release()

    in_child(cut_off)
    assert claims(tmp_path) == []
    (left,) = abandoned_drafts(tmp_path)
    assert [path.name for path in left.iterdir()] == ["more"]


def test_releasing_late_leaves_the_next_owner_of_the_slot_alone(tmp_path: Path) -> None:
    first = claim("", tmp_path)
    stale = Claim(first.record, first.folder)
    first.release()
    second = claim("", tmp_path)
    assert second.folder == stale.folder
    stale.release()
    assert claims(tmp_path) == [second]


def test_a_testbed_that_goes_while_claims_are_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going, staying = claim("", tmp_path), claim("", tmp_path)
    read_text = Path.read_text

    def gone(path: Path, *arguments: Any, **named: Any) -> str:
        if path.parent == going.folder:
            shutil.rmtree(going.folder)
        return read_text(path, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", gone)
    assert claims(tmp_path) == [staying]


def test_each_user_has_a_folder_of_testbeds() -> None:
    assert state_root(0) == Path("/run/wanbed")
    assert state_root(1000) != state_root(1001)


def test_a_folder_that_somebody_else_made_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim("exp.yaml", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert claims(tmp_path) == []
    assert abandoned_drafts(tmp_path) == []
    with pytest.raises(InputError, match=f"^{tmp_path}: belongs to somebody else"):
        claim("exp.yaml", tmp_path)


def test_only_the_user_writes_to_the_folder_of_testbeds_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = claim("exp.yaml", tmp_path / "root")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "root", made.folder)] == [0o755, 0o755]
    (tmp_path / "root").chmod(0o777)
    assert claims(tmp_path / "root") == []
    with pytest.raises(InputError, match="or anybody may write there"):
        claim("exp.yaml", tmp_path / "root")


def test_a_link_to_a_folder_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="belongs to somebody else"):
        claim("exp.yaml", tmp_path / "link")
