import os
import resource
from pathlib import Path

import pytest

from wanbed.ground.errors import MissingError
from wanbed.testbed.virtual_time.guest_place import (
    WANTED_MAP_COUNT,
    idle_ticks,
    least_busy_core,
    map_count_advice,
    memory_for_virtual_time,
    raise_map_count,
)


def test_idle_time_is_read_for_every_core() -> None:
    assert idle_ticks("cpu 1 2 3 40 5\ncpu0 1 1 1 15 0\ncpu11 0 1 2 25 5\nintr 1 2\n") == {0: 15, 11: 25}


def test_the_core_is_one_that_this_process_may_use() -> None:
    assert least_busy_core() in os.sched_getaffinity(0)


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


def test_a_limited_address_space_limits_the_memory_of_a_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1536 << 20, 1536 << 20))
    assert memory_for_virtual_time()[1] <= 1280 << 20
    monkeypatch.setattr(resource, "getrlimit", lambda _: (600 << 20, 600 << 20))
    with pytest.raises(MissingError, match=r"^virtual time maps 1280 MiB, and ulimit -v allows 600: raise it$"):
        memory_for_virtual_time()
