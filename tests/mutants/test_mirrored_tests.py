from pathlib import Path

from tests.mutants.mirrored_tests import mirrored_folder, nearest_first


def tree(root: Path, *tests: str) -> None:
    for name in tests:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_a_folder_without_tests_is_judged_by_those_above_it(tmp_path: Path) -> None:
    tree(tmp_path, "tests/runner/test_other.py", "tests/runner/tcp/test_channel.py")
    assert mirrored_folder(Path("runner/tcp/channel.py"), tmp_path) == Path("tests/runner/tcp")
    assert mirrored_folder(Path("runner/bound/limit.py"), tmp_path) == Path("tests/runner")


def test_a_modules_own_tests_come_first_then_those_that_name_it(tmp_path: Path) -> None:
    tree(tmp_path, "tests/core/test_a.py", "tests/core/test_b.py", "tests/core/test_c.py")
    (tmp_path / "tests/core/test_a.py").write_text("from core.c import C\n", encoding="utf-8")
    assert nearest_first(Path("core/c.py"), tmp_path) == [
        Path("tests/core/test_c.py"),
        Path("tests/core/test_a.py"),
        Path("tests/core/test_b.py"),
    ]
