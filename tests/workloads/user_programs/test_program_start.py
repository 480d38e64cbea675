"""A program that can read its folder and not write to it."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.workloads.user_programs.conftest import Programs
from wanbed.testbed.rights import ENTER, hosts_allowed
from wanbed.workloads.user_programs.program_start import HOOK_FOLDER, with_hook


def test_the_hook_comes_first_and_the_callers_path_stays() -> None:
    environment = with_hook({"PYTHONPATH": "/theirs:/other", "HOME": "/root"}, Path("/run/hook.json"))
    assert environment == {
        "PYTHONPATH": f"{HOOK_FOLDER}:/theirs:/other",
        "WANBED_HOOK": "/run/hook.json",
        "HOME": "/root",
    }


def test_an_empty_path_does_not_become_the_current_folder() -> None:
    assert with_hook({"PYTHONPATH": ""}, Path("/h"))["PYTHONPATH"] == str(HOOK_FOLDER)


def test_the_folder_has_what_python_looks_for() -> None:
    assert (HOOK_FOLDER / "sitecustomize.py").is_file()


LABEL = "rank 1 on west-0"

WRITING = "echo here; cat data; touch written || echo refused; rm data || echo refused; mkdir made || echo refused"

REFUSED = "here\nkept\nrefused\nrefused\nrefused\n"


@pytest.fixture(autouse=True)
def _with_mounts() -> None:
    allowed = hosts_allowed()
    if allowed.directly is not None and allowed.inside is not None:
        pytest.skip(f"no mount namespaces: {allowed.reason}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "working folder"
    made.mkdir()
    (made / "data").write_text("kept\n")
    return made


@pytest.mark.parametrize("within", [(), ENTER], ids=["directly", "in a user namespace"])
def test_nothing_in_the_folder_can_be_changed(programs: Programs, folder: Path, within: Sequence[str]) -> None:
    assert programs.run("sh", "-c", WRITING, folder=str(folder), read_only=True, within=within) == (0, "")
    assert programs.stdout.read_text() == REFUSED
    assert [path.name for path in folder.iterdir()] == ["data"]


def test_the_folder_is_writable_again_for_everybody_else(programs: Programs, folder: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    assert programs.run("true", folder=str(folder), read_only=True) == (0, "")
    (folder / "written").touch()
    assert Path("/proc/self/mountinfo").read_text() == mounts


def test_a_folder_behind_a_link_is_read_only_by_both_names(programs: Programs, folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    script = f"{WRITING}; touch '{folder}/written' || echo refused"
    assert programs.run("sh", "-c", script, folder=str(link), read_only=True) == (0, "")
    assert programs.stdout.read_text() == f"{REFUSED}refused\n"


def test_what_is_mounted_below_the_folder_is_there_and_read_only_too(
    programs: Programs, folder: Path, own_mounts: Callable[[str], list[str]]
) -> None:
    (folder / "disk").mkdir()
    within = own_mounts(f"mount -t tmpfs tmpfs '{folder}/disk'; echo mounted > '{folder}/disk/data'")
    script = "cat disk/data; touch disk/written || echo refused"
    assert programs.run("sh", "-c", script, folder=str(folder), read_only=True, within=within) == (0, "")
    assert programs.stdout.read_text() == "mounted\nrefused\n"


def test_output_and_the_hooks_log_are_written_even_below_the_folder(programs: Programs, folder: Path) -> None:
    logs = folder / "results" / "logs"
    logs.mkdir(parents=True)
    hook = {"log": str(logs / "spans.jsonl")}
    script = f"{WRITING}; touch results/logs/spans.jsonl && echo logged; touch results/written || echo refused"
    found = programs.run("sh", "-c", script, folder=str(folder), read_only=True, hook=hook, stdout=str(logs / "stdout"))
    assert found == (0, "")
    assert (logs / "stdout").read_text() == f"{REFUSED}logged\nrefused\n"
    assert (logs / "spans.jsonl").exists()
    assert not (folder / "results" / "written").exists()


def test_a_folder_that_holds_the_logs_itself_is_refused(programs: Programs, folder: Path) -> None:
    hook = {"log": str(folder / "spans.jsonl")}
    status, printed = programs.run("touch", "started", folder=str(folder), read_only=True, hook=hook)
    fault = f"{LABEL}: {folder} cannot be read-only: start from a folder of the program's own\n"
    assert (status, printed) == (125, fault)
    assert not (folder / "started").exists()


def test_the_root_folder_is_refused(programs: Programs) -> None:
    fault = f"{LABEL}: / cannot be read-only: start from a folder of the program's own\n"
    assert programs.run("true", folder="/", read_only=True) == (125, fault)


def test_who_may_not_mount_is_told_what_was_tried_and_nothing_starts(programs: Programs, folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root takes all capabilities and user namespaces from a program")
    # A limit of user namespaces in one of this test's own, in which the program has no capability.
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -all --inh-caps -all "$@"'
    within = ("unshare", "--user", "--map-root-user", "sh", "-c", script, "sh")
    status, printed = programs.run("touch", "started", folder=str(folder), read_only=True, within=within)
    assert status == 125
    tried = "unshare --mount: Operation not permitted, unshare --user --mount: No space left on device"
    assert printed == f"{LABEL}: {folder} cannot be made read-only: {tried}: leave read_only out\n"
    assert not (folder / "started").exists()


def test_who_is_not_root_has_it_by_a_user_namespace(programs: Programs, folder: Path) -> None:
    # A user namespace in which this user has another number: its programs have no capabilities.
    within = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    assert subprocess.run([*within, "unshare", "--mount", "true"], check=False, stderr=subprocess.DEVNULL).returncode
    script = f"{WRITING}; id -u"
    assert programs.run("sh", "-c", script, folder=str(folder), read_only=True, within=within) == (0, "")
    assert programs.stdout.read_text() == f"{REFUSED}1000\n"


def test_root_that_may_not_map_itself_is_told_so(programs: Programs, folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root is root")
    within = ("setpriv", "--no-new-privs", "--bounding-set", "-all", "--inh-caps", "-all")
    status, printed = programs.run("touch", "started", folder=str(folder), read_only=True, within=within)
    tried = "unshare --mount: Operation not permitted, unshare --user --mount, writing /proc/self/uid_map: "
    assert status == 125
    assert printed.startswith(f"{LABEL}: {folder} cannot be made read-only: {tried}")
    assert not (folder / "started").exists()
