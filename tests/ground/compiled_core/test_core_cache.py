"""Which core a process runs: the compiled one only if it was built from the very sources that are there."""

import importlib
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.support.sudo import hand_over, play_sudo
from wanbed.ground.compiled_core.core_cache import RECORD, core_files, find_core
from wanbed.ground.compiled_core.core_modules import (
    CORE_MODULES,
    ROOT,
    core_key,
    core_sources,
    installed_arrays,
    source_path,
)

KEY = "0123456789abcdef"


def built(folder: Path, key: str) -> Path:
    (folder / key).mkdir(parents=True)
    (folder / key / RECORD).write_text("{}")
    return folder / key


def test_without_a_core_the_sources_run_and_the_reason_has_the_remedy(tmp_path: Path) -> None:
    core = find_core(KEY, [tmp_path / "none"])
    assert (core.folder, str(core)) == (None, "pure: not compiled, `wanbed compile` makes it faster")


def test_a_core_of_other_sources_is_not_used(tmp_path: Path) -> None:
    built(tmp_path, "fedcba9876543210")
    core = find_core(KEY, [tmp_path])
    assert (core.folder, core.reason) == (None, "compiled are other sources, `wanbed compile` makes it faster")


def test_a_core_of_the_present_sources_is_used(tmp_path: Path) -> None:
    folder = built(tmp_path, KEY)
    core = find_core(KEY, [tmp_path / "first", tmp_path])
    assert (core.folder, core.name) == (folder, "compiled")


def test_a_core_whose_building_broke_off_is_not_used(tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir()
    assert find_core(KEY, [tmp_path]).name == "pure"


def test_under_sudo_another_users_core_is_passed_over(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = hand_over(built(tmp_path, KEY))
    play_sudo(monkeypatch, tmp_path_factory.mktemp("proc"), "somebody")
    assert find_core(KEY, [tmp_path]).name == "pure"
    assert capsys.readouterr().err.startswith(f"wanbed: {folder} is passed over")


def test_every_change_of_a_source_changes_the_key() -> None:
    sources = core_sources()
    key = core_key(sources)
    for module, source in sources.items():
        assert core_key({**sources, module: source + b"\n"}) != key
    first, second = list(sources)[:2]
    moved = {**sources, first: sources[first] + sources[second][:1], second: sources[second][1:]}
    assert core_key(moved) != key


def test_the_key_has_the_version_of_the_arrays_that_compiled_code_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, keys = core_sources(), set()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for version in (None, "1.0", "1.1"):
        if version is not None:
            (tmp_path / "librt").mkdir()
            (tmp_path / f"librt-{version}.dist-info").mkdir()
        installed_arrays.cache_clear()
        importlib.invalidate_caches()
        keys.add(core_key(sources))
        if version is not None:
            (tmp_path / "librt").rmdir()
            (tmp_path / f"librt-{version}.dist-info").rmdir()
    monkeypatch.undo()
    installed_arrays.cache_clear()
    assert len(keys) == 3


def test_the_extensions_stand_in_folders_like_the_sources(tmp_path: Path) -> None:
    suffix = EXTENSION_SUFFIXES[0]
    shared = tmp_path / f"0f__mypyc{suffix}"
    shared.touch()
    files = core_files(tmp_path)
    assert set(files) == {*CORE_MODULES, "0f__mypyc"}
    assert files["0f__mypyc"] == shared
    assert files["wanbed.flow.channel"] == tmp_path / "wanbed" / "flow" / f"channel{suffix}"


def test_every_compiled_module_is_in_a_package_that_looks_for_the_core() -> None:
    for module in CORE_MODULES:
        parts = module.split(".")
        packages = [ROOT.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts))]
        assert any("use_compiled_core()" in package.read_text() for package in packages), module
        assert source_path(module).is_file()


def test_looking_for_the_core_costs_next_to_nothing() -> None:
    program = (
        "import sys; from wanbed.ground.compiled_core.core_cache import use_compiled_core; before = set(sys.modules); "
        "use_compiled_core(); print(len(set(sys.modules) - before), 'mypyc' in sys.modules, 'mypy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False", "False"]
