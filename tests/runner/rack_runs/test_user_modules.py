import os
import shutil
import sys
import zipfile
from importlib import import_module, invalidate_caches
from pathlib import Path

import pytest

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.rack_runs import user_modules as shipped
from wanbed.runner.rack_runs.user_modules import UserModules, lacking_module, packed_modules, user_modules

MODULES = {
    "rackmine.py": "import rackbeside\nfrom wanbed.workloads.schedules.gpipe import GPipe\nclass Mine(GPipe): pass\n",
    "rackbeside.py": "VALUE = 1\n",
    "rackother.py": "VALUE = 2\n",
    "rackpack/__init__.py": "",
    "rackpack/inner/deep.py": "VALUE = 3\n",
    "rackpack/table.txt": "data",
}


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    invalidate_caches()
    for name in [name for name in sys.modules if name.startswith("rack")]:
        monkeypatch.delitem(sys.modules, name)


def names_in(archive: bytes, tmp_path: Path) -> list[str]:
    file = tmp_path / "modules.zip"
    file.write_bytes(archive)
    return zipfile.ZipFile(file).namelist()


def packed(class_path: str) -> UserModules:
    return packed_modules((class_path,), ())


def test_a_module_goes_with_those_beside_it_that_it_imports(tmp_path: Path) -> None:
    import_module("rackmine")
    assert names_in(packed("rackmine:Mine").archive, tmp_path) == ["rackbeside.py", "rackmine.py"]


def test_a_package_goes_with_all_its_files(tmp_path: Path) -> None:
    assert names_in(packed("rackpack.inner.deep:Deep").archive, tmp_path) == [
        "rackpack/__init__.py",
        "rackpack/inner/deep.py",
        "rackpack/table.txt",
    ]


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    one = packed("rackpack:X")
    os.utime(tmp_path / "rackpack/__init__.py", (0, 0))
    assert packed("rackpack:X") == one


def test_what_is_compiled_has_to_be_on_the_machine_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rackpack/fast.so").write_bytes(b"")
    (tmp_path / "rackpack/__init__.py").write_text(MODULES["rackmine.py"].replace("import rackbeside\n", ""))
    modules = packed("rackpack:Mine")
    assert (modules.archive, [*modules.staying]) == (b"", ["rackpack"])
    assert lacking_module(modules) is None
    (tmp_path / "rackpack/fast.so").write_bytes(b"another")
    assert lacking_module(modules) == "another rackpack than on the machine that drives: install the same"
    shutil.rmtree(tmp_path / "rackpack")
    monkeypatch.delitem(sys.modules, "rackpack")
    invalidate_caches()
    assert str(lacking_module(modules)).startswith("no module rackpack, which is not sent because")


def test_what_is_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "MOST_BYTES", 10)
    modules = packed("rackpack:X")
    assert (modules.archive, [*modules.staying]) == (b"", ["rackpack"])


def test_a_class_that_cannot_be_imported_is_told_with_the_fault(tmp_path: Path) -> None:
    modules = packed("rackmine:Mine")
    (tmp_path / "rackbeside.py").unlink()
    invalidate_caches()
    assert lacking_module(modules) == ("rackmine:Mine: No module named 'rackbeside': install what is missing there")


def test_only_a_users_classes_are_packed() -> None:
    document = {
        "name": "x",
        "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
        "compute": {"forward": "5ms", "activation": "64KiB"},
        "variants": [{"name": "own", "schedule": "rackmine:Mine"}, {"name": "stock", "schedule": "gpipe"}],
        "engine": "rack",
    }
    modules = user_modules(parse_experiment(document, "x.yaml", Path()).points())
    assert (modules.schedules, modules.backends) == (("rackmine:Mine",), ())
