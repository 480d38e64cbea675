"""The kit on a bare machine, which a folder plays; pip's own wheel is a script that installs nothing."""

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from studies.gpu_kit import install as module
from studies.gpu_kit.install import install, missing


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, system = tmp_path / "kit", tmp_path / "packed/system"
    for name in ("bin/mnexec", "bin/ping", "sbin/insmod", "modules/6.1/kernel/veth.ko"):
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).touch(0o755)
    (folder / "wheels").mkdir(parents=True)
    with tarfile.open(folder / "system.tar.xz", "w:xz") as archive:
        archive.add(system, "system")
    with zipfile.ZipFile(folder / "wheels/pip-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/__main__.py", "")
    (folder / "wheels/wanbed-0.1.0-py3-none-any.whl").touch()
    monkeypatch.setattr(module.shutil, "which", lambda name: "/usr/bin/ping" if name == "ping" else None)
    return folder


def test_root_gets_links_to_the_programs_that_the_machine_lacks(kit: Path, tmp_path: Path) -> None:
    system = tmp_path / "machine"
    assert list(install(kit, system, root=True)) == [
        f"install: {system}/usr/bin/mnexec is the kit's",
        f"install: {system}/usr/sbin/insmod is the kit's",
        f"install: {system}/usr/lib/uml/modules is the kit's",
    ]
    assert (system / "usr/bin/mnexec").resolve() == (kit / "system/bin/mnexec").resolve()
    assert not (system / "usr/bin/ping").exists()
    assert (kit / "env/bin/python").exists()
    assert list(install(kit, system, root=True)) == []


def test_an_ordinary_user_gets_them_in_the_environment(kit: Path, tmp_path: Path) -> None:
    assert list(install(kit, tmp_path / "machine", root=False)) == []
    assert not (tmp_path / "machine").exists()
    assert (kit / "env/bin/mnexec").is_symlink()
    assert (kit / "env/sbin/insmod").is_symlink()


def test_other_wheels_make_the_environment_anew(kit: Path, tmp_path: Path) -> None:
    list(install(kit, tmp_path, root=False))
    (kit / "env/mark").touch()
    list(install(kit, tmp_path, root=False))
    assert (kit / "env/mark").exists()
    (kit / "wheels/wanbed-0.1.0-py3-none-any.whl").write_bytes(b"newer")
    list(install(kit, tmp_path, root=False))
    assert not (kit / "env/mark").exists()


def test_what_is_in_the_virtual_environment_of_the_caller_is_seen_behind_the_kits_own(
    kit: Path, tmp_path: Path
) -> None:
    caller = tmp_path / "torch-env"
    venv.create(caller, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = caller / "lib" / version / "site-packages"
    (packages / "brought.py").write_text("origin = 'caller'\n", encoding="utf-8")
    (packages / "carried.py").write_text("origin = 'caller'\n", encoding="utf-8")
    made = f"from install import install; from pathlib import Path; list(install(Path({str(kit)!r}), root=False))"
    subprocess.run([caller / "bin/python", "-c", made], cwd=Path(module.__file__).parent, check=True)
    (kit / "env/lib" / version / "site-packages/carried.py").write_text("origin = 'kit'\n", encoding="utf-8")
    origins = "import brought, carried; print(brought.origin, carried.origin)"
    done = subprocess.run([kit / "env/bin/python", "-c", origins], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["caller", "kit"]


def test_a_wheel_that_pip_refuses_ends_it_in_one_line(kit: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(kit / "wheels/pip-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/__main__.py", "import sys; sys.exit('ERROR: not a supported wheel')")
    with pytest.raises(SystemExit, match=r"^install: pip failed: ERROR: not a supported wheel$"):
        list(install(kit, tmp_path, root=False))


def test_what_the_machine_should_have_brought_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEEDED", ("json", "no_such_module"))
    assert missing(Path(sys.executable)) == ["no_such_module"]


def test_it_runs_before_anything_of_wanbed_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(Path(module.__file__)), "--help"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
