import re
from pathlib import Path

import pytest

from tests.support import third_party
from wanbed.ground.errors import InputError
from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.schedules.one_forward_one_backward import OneForwardOneBackward
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.registry import schedule_by_name, schedule_class_path, schedule_names
from wanbed.workloads.schedules.schedule import create_schedule, load_schedule

SHAPE = PipelineShape(2, 4)


@pytest.fixture
def third_party_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package of somebody else's that brings the schedule ``lifo``, and two that are none."""
    code = "from wanbed.workloads.schedules.gpipe import GPipe\n\n\nclass Lifo(GPipe):\n    pass\n\n\nunrelated = 1\n"
    entries = {"lifo": "their_schedules:Lifo", "broken": "their_schedules:unrelated", "gone": "not_there:Lifo"}
    third_party.install(tmp_path, monkeypatch, "their_schedules", "wanbed.schedules", entries, code=code)


def test_the_schedules_of_this_package_are_known_by_name() -> None:
    assert {"1f1b", "gpipe"} <= set(schedule_names())
    assert isinstance(schedule_by_name("gpipe", SHAPE), GPipe)
    assert isinstance(schedule_by_name("1f1b", SHAPE, {"warmup_depth": 3}), OneForwardOneBackward)


@pytest.mark.usefixtures("third_party_package")
def test_a_schedule_in_another_package_runs_by_its_name() -> None:
    assert "lifo" in schedule_names()
    assert schedule_class_path("lifo") == "their_schedules:Lifo"
    assert type(schedule_by_name("lifo", SHAPE)).__name__ == "Lifo"


@pytest.mark.usefixtures("third_party_package")
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("broken", "schedule: their_schedules:unrelated: unrelated is not a subclass of "),
        ("gone", "schedule: not_there:Lifo: No module named 'not_there'"),
    ],
)
def test_a_package_without_the_promised_schedule_is_named(name: str, line: str) -> None:
    with pytest.raises(InputError) as refusal:
        schedule_by_name(name, SHAPE)
    assert str(refusal.value).startswith(line)
    assert "\n" not in str(refusal.value)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"^schedule: no schedule 'gpip', did you mean 'gpipe'\?$"):
        schedule_class_path("gpip")


def test_a_name_without_a_near_match_lists_all() -> None:
    with pytest.raises(InputError, match=r"no schedule 'zzz', there are .*1f1b.*gpipe"):
        schedule_class_path("zzz")


@pytest.mark.parametrize(
    ("options", "line"),
    [({"depth": 1}, "no option 'depth': it takes warmup_depth"), ({"warmup_depth": 0}, "warmup_depth: 0 is below 1")],
)
def test_options_that_a_schedule_refuses_are_bad_input(options: dict[str, object], line: str) -> None:
    with pytest.raises(InputError, match=line):
        schedule_by_name("1f1b", SHAPE, options)


def test_a_class_path_makes_what_its_name_makes() -> None:
    assert load_schedule(schedule_class_path("gpipe")) is GPipe
    assert isinstance(create_schedule("wanbed.workloads.schedules.gpipe:GPipe", SHAPE, {}), GPipe)


@pytest.mark.parametrize("path", ["gpipe", "wanbed.workloads.schedules.gpipe:", "pathlib:Path", "pathlib:missing"])
def test_an_invalid_class_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=path.split(":", maxsplit=1)[0]):
        load_schedule(path)


def test_a_module_that_ends_the_program_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends_the_program.py").write_text("import sys\n\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=rf"SystemExit: 0 \({re.escape(str(tmp_path))}/ends_the_program.py:3\)"):
        load_schedule("ends_the_program:X")


def test_the_path_of_a_file_is_no_path_of_a_class() -> None:
    with pytest.raises(ValueError, match=r"'./sched.py:X' has the path of a file: write it like module:Class"):
        load_schedule("./sched.py:X")


def test_the_path_of_a_class_stands_for_itself() -> None:
    assert schedule_class_path("wanbed.workloads.schedules.gpipe:GPipe") == "wanbed.workloads.schedules.gpipe:GPipe"
    assert type(schedule_by_name("wanbed.workloads.schedules.gpipe:GPipe", SHAPE)).__name__ == "GPipe"
    with pytest.raises(InputError, match=r"schedule: nowhere:Lifo: No module named 'nowhere'"):
        schedule_by_name("nowhere:Lifo", SHAPE)
