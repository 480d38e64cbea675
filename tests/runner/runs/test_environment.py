import json
import os
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.present import present
from tests.support.third_party import install
from wanbed.runner.runs import environment
from wanbed.runner.runs.environment import (
    cpu_model,
    foreign_compute,
    foreign_schedules,
    git_state,
    host_facts,
    library_versions,
    machine_facts,
    program_version,
)


def test_the_host_is_described() -> None:
    host = host_facts()
    assert host["kernel"] == os.uname().release
    assert host["cores"] == len(os.sched_getaffinity(0))
    assert host["memory_bytes"] > 2**27
    assert host["cpu"]


def test_the_processor_is_named_where_the_kernel_names_it() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t: a\n") == "Fast CPU @ 3 GHz"
    assert cpu_model("processor\t: 0\nCPU part\t: 0xd0c\n") is None


def test_the_facts_are_plain_json_with_the_load_and_the_sysctls_of_this_moment() -> None:
    facts = machine_facts()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert len(facts["load_average"]) == 3
    assert "net.core.rmem_max" in facts["machine_sysctls"]
    assert facts["programs"].keys() == {"iperf3", "ping"}


def test_unreadable_facts_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_GOVERNOR", tmp_path / "scaling_governor")
    monkeypatch.setattr(environment, "_CLOCK_SOURCE", tmp_path / "current_clocksource")
    monkeypatch.setattr(environment, "_SYSCTLS", ("net.core.of_another_kernel",))
    monkeypatch.setenv("PATH", "")
    facts = machine_facts()
    assert facts["host"]["frequency_governor"] is None
    assert facts["clock_source"] is None
    assert facts["machine_sysctls"] == {"net.core.of_another_kernel": None}
    assert facts["programs"] == {"iperf3": None, "ping": None}


@pytest.mark.parametrize(
    ("script", "text"),
    [("echo 'iperf 3.12 (cJSON)'; echo more", "iperf 3.12 (cJSON)"), ("true", None), ("echo 3.12; exit 1", None)],
)
def test_a_program_version_is_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, text: str | None
) -> None:
    program = tmp_path / "iperf3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert program_version("iperf3", "--version") == text


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init")
    (folder / "code.py").write_text("1\n", encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def test_a_checkout_has_a_revision_and_is_dirty_once_it_changes(checkout: Path) -> None:
    clean = present(git_state(checkout))
    assert len(clean["revision"]) == 40
    assert clean["dirty"] is False
    (checkout / "new.py").write_text("2\n", encoding="utf-8")
    assert git_state(checkout) == {**clean, "dirty": True}
    (checkout / "new.py").unlink()
    (checkout / "code.py").write_text("3\n", encoding="utf-8")
    assert git_state(checkout) == {**clean, "dirty": True}


def test_a_folder_without_git_is_no_checkout(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None


def test_a_folder_inside_anothers_checkout_is_no_checkout(checkout: Path) -> None:
    inside = checkout / "site-packages"
    inside.mkdir()
    assert git_state(inside) is None


def test_a_checkout_before_its_first_commit_has_no_revision(tmp_path: Path) -> None:
    git(tmp_path, "init")
    assert git_state(tmp_path) is None


def test_a_linked_worktree_is_a_checkout(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "worktree", "add", str(tmp_path / "linked"))
    assert git_state(tmp_path / "linked") == git_state(checkout)


def test_variables_of_a_git_hook_are_ignored(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = git_state(checkout)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert git_state(checkout) == expected


def test_a_machine_without_git_has_no_revision(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert git_state(checkout) is None


def test_a_git_that_hangs_is_given_up(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    slow = tools / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(environment, "GIT_TIMEOUT_S", 0.1)
    assert git_state(checkout) is None


def test_versions_cover_every_library_needed_at_run_time_and_no_other() -> None:
    versions = library_versions()
    assert {
        "python",
        "wanbed",
        "pydantic",
        "pyroute2",
        "mininet",
        "numpy",
        "rich",
        "pyarrow",
        "torch",
    } <= versions.keys()
    assert not {"pytest", "mypy"} & versions.keys()
    assert versions["pydantic"] == metadata.version("pydantic")
    assert versions["wanbed"] == metadata.version("wanbed")


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package of another author, which has the schedule ``lifo``."""
    entries = {"lifo": "their_schedules:Lifo"}
    install(tmp_path, monkeypatch, "their_schedules", "wanbed.schedules", entries, version="1.2")


@pytest.mark.usefixtures("third_party")
def test_a_schedule_of_another_package_is_reported_with_that_package() -> None:
    assert foreign_schedules(["gpipe", "lifo", "lifo", "torch-ddp"]) == [
        {
            "schedule": "lifo",
            "class": "their_schedules:Lifo",
            "distribution": "their-schedules",
            "version": "1.2",
        }
    ]


def test_a_schedule_that_is_given_by_its_class_is_reported_with_its_distribution_if_there_is_one() -> None:
    found = foreign_schedules(
        ["_pytest.outcomes:Exit", "module_of_mine:Lifo", "wanbed.workloads.schedules.gpipe:GPipe"]
    )
    assert [(each["schedule"], each["distribution"]) for each in found] == [
        ("_pytest.outcomes:Exit", "pytest"),
        ("module_of_mine:Lifo", None),
    ]
    assert found[0]["version"] == pytest.__version__


@pytest.mark.usefixtures("third_party")
def test_an_installed_schedule_that_is_not_run_is_not_reported() -> None:
    assert foreign_schedules(["gpipe", "atlas"]) == []


@pytest.mark.usefixtures("third_party")
def test_a_schedule_of_that_name_is_no_compute_back_end() -> None:
    assert foreign_compute(["lifo", "torch"]) == []
