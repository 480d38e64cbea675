"""What a machine without a compiler says, and what a failed build leaves."""

import sysconfig
from pathlib import Path

import pytest

from wanbed.ground.compiled_core import core_build
from wanbed.ground.compiled_core.core_build import CompileError, CompilerError, build_core
from wanbed.ground.compiled_core.core_cache import RECORD
from wanbed.ground.compiled_core.core_modules import core_key, core_sources
from wanbed.runner.runs.faults import MACHINE_LACKS, NO_DATA, status_of


def refusal(root: Path) -> str:
    with pytest.raises(CompilerError) as refused:
        build_core(root)
    assert status_of(refused.value) == MACHINE_LACKS
    return str(refused.value)


def test_a_machine_without_a_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -pipe")
    assert refusal(tmp_path) == "no C compiler 'no-such-compiler': apt-get install build-essential"


def test_a_machine_without_mypyc_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(core_build, "find_spec", lambda _: None)
    assert refusal(tmp_path) == "mypyc is not installed: pip install 'wanbed[compiled]'"


def test_a_machine_without_pythons_headers_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", "true")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert refusal(tmp_path) == f"no Python.h in {tmp_path}: apt-get install python3-dev, for this Python"


def test_what_is_compiled_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    folder = tmp_path / core_key(core_sources())
    folder.mkdir()
    (folder / RECORD).write_text("{}")
    assert build_core(tmp_path) == (folder, False)


def test_a_failed_build_is_told_in_a_line_and_leaves_its_log_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import sys\nprint('reading')\nsys.exit('channel.py:3: error: no such thing')\n")
    monkeypatch.setattr(core_build, "_SETUP", broken)
    monkeypatch.setattr(core_build, "_check_machine", lambda: None)
    with pytest.raises(CompileError) as failed:
        build_core(tmp_path / "cache")
    (log,) = (tmp_path / "cache").glob("*.log")
    assert str(failed.value) == f"compiling failed: channel.py:3: error: no such thing (all of it: {log})"
    assert status_of(failed.value) == NO_DATA
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {log.name, "lock"}
