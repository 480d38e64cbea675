import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from studies.gpu_kit import collect as module
from studies.gpu_kit.collect import FILES, LARGE_BYTES, MODULES, CollectError, collect, distribution, listed, main


def test_a_list_of_installed_packages_is_read_by_normalized_names() -> None:
    assert listed("numpy==2.1.0\nPyYAML==6.0\ntyping_extensions==4.1\nlocal @ file:///x\n\n") == {
        "numpy",
        "pyyaml",
        "typing-extensions",
        "local",
    }
    assert distribution(Path("typing_extensions-4.16.0-py3-none-any.whl")) == "typing-extensions"


class Registries:
    """Plays pip, apt-get and dpkg-deb: two wheels, and a package with every file."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.lacking = ""

    def __call__(self, command: list[str], folder: Path | None = None) -> None:
        self.commands.append(command)
        if "download" in command and command[0] != "apt-get":
            wheels = Path(command[command.index("--dest") + 1])
            (wheels / "pyarrow-26-cp312-cp312-x.whl").write_bytes(bytes(LARGE_BYTES + 1))
            (wheels / "pydantic-2-py3-none-any.whl").write_bytes(b"small")
        elif command[0] == "apt-get":
            assert folder is not None
            (folder / "all.deb").touch()
        elif command[0] == "dpkg-deb":
            for name in (*FILES, f"{MODULES}/6.1/kernel/drivers/net/veth.ko"):
                if name != self.lacking:
                    (Path(command[-1]) / name).parent.mkdir(parents=True, exist_ok=True)
                    (Path(command[-1]) / name).write_text(name)
            for other in ("sch_netem", "sch_htb", "cls_bpf"):
                path = Path(command[-1]) / f"{MODULES}/6.1/kernel/net/sched/{other}.ko"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Registries:
    played = Registries()
    monkeypatch.setattr(module, "_run", played)
    return played


def test_large_packages_that_the_machine_has_are_left_out(registries: Registries, tmp_path: Path) -> None:
    def carried(*has: str) -> set[str]:
        collect(tmp_path / "kit", "3.12", frozenset(has))
        return {distribution(wheel) for wheel in (tmp_path / "kit/wheels").glob("*.whl")}

    assert carried() == {"pyarrow", "pydantic"}
    assert carried("pyarrow", "pydantic") == {"pydantic"}


def test_wheels_are_those_of_the_machines_python_and_of_tested_versions(registries: Registries, tmp_path: Path) -> None:
    collect(tmp_path / "kit", "3.12")
    (download,) = [each for each in registries.commands if "--python-version" in each]
    assert download[download.index("--python-version") + 1] == "3.12"
    assert download[download.index("--constraint") + 1].endswith("constraints.txt")
    names = {re.split("[<>=;]", word)[0] for word in download}
    assert {"pydantic", "pyarrow", "mininet", "nvidia-ml-py", "setuptools"} < names
    assert "torch" not in download


def test_the_archive_has_the_programs_and_the_guests_modules(registries: Registries, tmp_path: Path) -> None:
    collect(tmp_path / "kit", "3.12")
    with tarfile.open(tmp_path / "kit/system.tar.xz") as archive:
        names = set(archive.getnames())
    assert {f"system/{name}" for name in FILES.values()} < names
    assert "system/modules/6.1/kernel/net/sched/sch_netem.ko" in names
    assert (tmp_path / "kit/env.sh").is_file()
    assert (tmp_path / "kit/install.py").is_file()


def test_the_kit_has_the_steps_which_are_in_no_wheel(registries: Registries, tmp_path: Path) -> None:
    collect(tmp_path / "kit", "3.12")
    command = [sys.executable, "-m", "studies.gpu_kit.steps"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "kit")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1 facts (60 s): uname -a; ")
    assert str(tmp_path / "kit/studies/gpu_kit/first-hour.yaml") in done.stdout


def test_a_program_that_no_package_has_is_named(registries: Registries, tmp_path: Path) -> None:
    registries.lacking = "usr/bin/mnexec"
    with pytest.raises(CollectError, match=r"^usr/bin/mnexec is in none of mininet, "):
        collect(tmp_path / "kit", "3.12")


def test_an_unreachable_registry_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: No matching distribution\n")

    monkeypatch.setattr(subprocess, "run", refused)
    assert main([str(tmp_path / "kit")]) == 1
    assert capsys.readouterr().err.endswith("failed: ERROR: No matching distribution\n")
