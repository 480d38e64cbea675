import os
from pathlib import Path

import pytest

from testbed.kernel.missing import MissingError
from testbed.virtual_time import guest_place
from testbed.virtual_time.guest_place import (
    LEAST_MEMORY_BYTES,
    WANTED_MAP_COUNT,
    WANTED_MEMORY_BYTES,
    idle_ticks,
    least_busy_core,
    map_count_advice,
    memory_for_guest,
    raise_map_count,
)

GIB = 2**30


def test_idle_time_is_read_for_every_core() -> None:
    assert idle_ticks("cpu 1 2 3 40 5\ncpu0 1 1 1 15 0\ncpu11 0 1 2 25 5\nintr 1 2\n") == {0: 15, 11: 25}


def test_the_core_is_one_that_this_process_may_use() -> None:
    assert least_busy_core() in os.sched_getaffinity(0)


def on_a_machine(monkeypatch: pytest.MonkeyPatch, folders: list[Path], available_bytes: int) -> None:
    monkeypatch.setattr(guest_place, "_memory_folders", lambda: folders)
    monkeypatch.setattr(guest_place, "_available_memory_bytes", lambda: available_bytes)


def test_guest_gets_the_wanted_memory_or_three_quarters_of_the_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = os.statvfs(tmp_path)
    free_bytes = state.f_bavail * state.f_frsize
    on_a_machine(monkeypatch, [tmp_path], 4 * GIB)
    assert memory_for_guest() == (tmp_path, min(4 * GIB, free_bytes) * 3 // 4)
    on_a_machine(monkeypatch, [tmp_path], 100 * GIB)
    assert memory_for_guest()[1] == min(WANTED_MEMORY_BYTES, free_bytes * 3 // 4)


def test_too_little_memory_is_reported_with_the_place_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_machine(monkeypatch, [tmp_path / "none", tmp_path], LEAST_MEMORY_BYTES)
    with pytest.raises(MissingError, match=rf"takes 1365 MiB of memory: {tmp_path} has 1024 MiB .* in TMPDIR$"):
        memory_for_guest()


def test_the_limit_of_mappings_is_named_where_it_is_low(tmp_path: Path) -> None:
    limit = tmp_path / "max_map_count"
    limit.write_text("65530\n")
    advice = map_count_advice(limit)
    assert advice is not None
    assert "may have 255 MiB; for more, as root: sysctl vm.max_map_count=1048576" in advice
    raise_map_count(limit)
    assert limit.read_text() == str(WANTED_MAP_COUNT)
    assert map_count_advice(limit) is None


def test_a_higher_limit_is_left_alone(tmp_path: Path) -> None:
    limit = tmp_path / "max_map_count"
    limit.write_text("2000000\n")
    raise_map_count(limit)
    assert limit.read_text() == "2000000\n"
