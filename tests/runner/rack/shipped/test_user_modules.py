import sys
import zipfile
from importlib import import_module, invalidate_caches
from pathlib import Path

import pytest

from ground.strict_model import InputError
from runner.planner.experiment_file import parse_experiment
from runner.rack.shipped import user_modules
from runner.rack.shipped.user_modules import packed_modules, user_class_paths

MODULES = {
    "rackmine.py": "import rackbeside\nfrom workloads.schedules.gpipe import GPipe\nclass Mine(GPipe): pass\n",
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


def test_a_module_goes_with_those_beside_it_that_it_imports(tmp_path: Path) -> None:
    import_module("rackmine")
    assert names_in(packed_modules(["rackmine:Mine"]), tmp_path) == ["rackbeside.py", "rackmine.py"]


def test_a_package_goes_with_all_its_files(tmp_path: Path) -> None:
    assert names_in(packed_modules(["rackpack.inner.deep:Deep"]), tmp_path) == [
        "rackpack/__init__.py",
        "rackpack/inner/deep.py",
        "rackpack/table.txt",
    ]


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    one = packed_modules(["rackpack:X"])
    (tmp_path / "rackpack/__init__.py").touch()
    assert packed_modules(["rackpack:X"]) == one


def test_a_package_with_compiled_modules_is_left_to_the_machines(tmp_path: Path) -> None:
    (tmp_path / "rackpack/fast.so").write_bytes(b"")
    assert packed_modules(["rackpack:X"]) == b""
    assert packed_modules([]) == b""


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_modules, "MOST_BYTES", 10)
    with pytest.raises(InputError, match=r"^the modules of rackpack:X have 0 MiB, and at most 0 are sent"):
        packed_modules(["rackpack:X"])


def test_only_a_users_classes_are_packed() -> None:
    document = {
        "name": "x",
        "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
        "compute": {"forward": "5ms", "activation": "64KiB"},
        "variants": [{"name": "own", "schedule": "rackmine:Mine"}, {"name": "stock", "schedule": "gpipe"}],
        "engine": "rack",
    }
    points = parse_experiment(document, "x.yaml", Path()).points()
    assert user_class_paths(points) == (["rackmine:Mine"], [])
