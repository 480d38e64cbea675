import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from wanbed.workloads.user_programs.hook.wanbed_hook.torch_import import after_import

NAME = "module_that_is_watched"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    return tmp_path


def test_the_action_comes_once_after_the_module_has_run(folder: Path) -> None:
    (folder / f"{NAME}.py").write_text("value = 1", encoding="utf-8")
    seen: list[int] = []
    finders = list(sys.meta_path)
    after_import(NAME, lambda module: seen.append(module.value))
    assert seen == []
    importlib.import_module("colorsys")
    module = importlib.import_module(NAME)
    assert seen == [1]
    assert sys.meta_path == finders
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(module.__loader__)
    sys.modules.pop(NAME)


def test_a_module_that_is_there_is_acted_on_at_once() -> None:
    seen: list[ModuleType] = []
    after_import("json", seen.append)
    assert seen == [importlib.import_module("json")]


def test_an_import_that_fails_may_be_tried_again(folder: Path) -> None:
    file = folder / f"{NAME}.py"
    file.write_text("raise RuntimeError('not yet')", encoding="utf-8")
    seen: list[ModuleType] = []
    after_import(NAME, seen.append)
    with pytest.raises(RuntimeError, match="not yet"):
        importlib.import_module(NAME)
    file.write_text("value = 'longer than it was'", encoding="utf-8")
    importlib.invalidate_caches()
    assert seen == []
    assert seen.append(importlib.import_module(NAME)) is None
    assert seen[0] is seen[1]
    sys.modules.pop(NAME)


def test_a_module_that_is_not_there_stays_missing(folder: Path) -> None:
    after_import(NAME, lambda module: None)
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match=NAME):
            importlib.import_module(NAME)
