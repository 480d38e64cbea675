from pathlib import Path

from wanbed.workloads.programs.hook_environment import HOOK_FOLDER, with_hook


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
