"""The hook in programs without torch, in older Pythons, and where something is wrong: none of them is disturbed."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workloads.hooked_programs import HookedProgram, run_program, spans_of, start_program
from wanbed.workloads.user_programs.program_start import HOOK_FOLDER

ROOT = Path(__file__).parents[4]

CALLS = """
import sys
sys.path.insert(0, {root!r})
import wanbed
for _ in range(6):
    wanbed.mark_iteration()
print("torch" in sys.modules)
"""


def test_calls_mark_iterations_of_a_program_without_torch(tmp_path: Path) -> None:
    program = start_program(tmp_path, CALLS.format(root=str(ROOT)), marked_by="call", profile=1)
    assert program.wait() == (0, "False\n", "")
    assert [span.iteration for span in spans_of(program.log, "iteration")] == [0, 1, 2, 3]
    assert (program.log.complete, program.log.device) == (True, None)


ENDING = """
import os, sys
sys.path.insert(0, {root!r})
import wanbed
wanbed.mark_iteration()
wanbed.mark_iteration()
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
if sys.argv[1] == "raised":
    raise RuntimeError("lost")
"""


@pytest.mark.parametrize(("end", "status"), [("killed", -9), ("raised", 1), ("ended early but well", 0)])
def test_the_iterations_before_any_end_are_kept_and_complete_after_a_good_one(
    tmp_path: Path, end: str, status: int
) -> None:
    program = start_program(tmp_path, ENDING.format(root=str(ROOT)), end, marked_by="call")
    assert program.wait()[0] == status
    assert [span.iteration for span in spans_of(program.log, "iteration")] == [0, 1]
    assert program.log.complete is (status == 0)


def test_calls_do_nothing_where_the_optimizer_marks(tmp_path: Path) -> None:
    program, errors = run_program(tmp_path, CALLS.format(root=str(ROOT)), marked_by="optimizer")
    assert errors == ""
    assert not program.log_path.exists()


def test_a_second_process_of_the_program_leaves_the_log_to_the_first(tmp_path: Path) -> None:
    script = (
        CALLS.format(root=str(ROOT)) + "import subprocess; subprocess.run([sys.executable, __file__], check=True)\n"
    )
    script = (
        "import os, sys\nif os.environ.setdefault('DEPTH', '') == 'xx': sys.exit()\nos.environ['DEPTH'] += 'x'\n"
        + script
    )
    program, errors = run_program(tmp_path, script, marked_by="call", iterations=9)
    assert errors == ""
    assert len(spans_of(program.log, "iteration")) == 6


def test_a_forked_child_records_nothing(tmp_path: Path) -> None:
    script = "import os\nif os.fork() == 0:\n    mark()\n    os._exit(0)\nos.wait()\nmark()\n"
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from wanbed import mark_iteration as mark\n" + script
    program, _ = run_program(tmp_path, script, marked_by="call")
    assert len(spans_of(program.log, "iteration")) == 1


def test_the_hidden_sitecustomize_runs_in_its_place(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys; sys.greeting = 'hello from theirs'", encoding="utf-8")
    script = "import sys, sitecustomize; print(sys.greeting, sitecustomize.__file__)"
    program = start_program(tmp_path, script, environment={"PYTHONPATH": str(theirs)})
    assert program.wait() == (0, f"hello from theirs {theirs / 'sitecustomize.py'}\n", "")


@pytest.fixture
def torch_without_hooks(tmp_path: Path) -> Path:
    """A folder with a package that is called torch and has optimizers without global hooks."""
    folder = tmp_path / "site" / "torch" / "optim"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("import torch.optim", encoding="utf-8")
    (folder / "__init__.py").write_text("import torch.optim.optimizer", encoding="utf-8")
    (folder / "optimizer.py").write_text("", encoding="utf-8")
    return folder.parents[1]


def test_a_torch_without_the_hooks_gets_one_line_and_its_program_runs_on(
    tmp_path: Path, torch_without_hooks: Path
) -> None:
    script = "import torch, torch.optim\nprint(torch.__spec__.loader.__class__.__name__, torch.__file__)"
    program = start_program(tmp_path, script, environment={"PYTHONPATH": str(torch_without_hooks)})
    status, output, errors = program.wait()
    assert (status, output) == (0, f"SourceFileLoader {torch_without_hooks / 'torch' / '__init__.py'}\n")
    (line,) = errors.splitlines()
    assert line.startswith("wanbed: the hook records no more: AttributeError: ")
    assert "register_optimizer_step_pre_hook" in line


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"iterations": 0}, "iterations: 0 is less than 1"),
        ({"profile": 4}, "profile: has to be 0 to 3, is 4"),
        ({"marked_by": "output"}, "marked_by: 'output' is neither 'optimizer' nor 'call'"),
        ({"header": {"rank": 0}}, "host: is missing or no str"),
        ({"epoch_ns": "0"}, "epoch_ns: is missing or no int"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_the_program_runs(
    tmp_path: Path, fields: dict[str, object], said: str
) -> None:
    status, output, errors = start_program(tmp_path, "print('ran')", **fields).wait()
    assert (status, output) == (0, "ran\n")
    (line,) = errors.splitlines()
    assert line.startswith("wanbed: the hook does not record: ValueError: ")
    assert line.endswith(said)


def test_a_log_that_cannot_be_written_is_one_line_and_the_program_runs(tmp_path: Path) -> None:
    log = str(tmp_path / "nowhere" / "log.spans")
    status, _, errors = start_program(tmp_path, CALLS.format(root=str(ROOT)), marked_by="call", log=log).wait()
    assert status == 0
    (line,) = errors.splitlines()
    assert line.startswith("wanbed: the hook records no more: FileNotFoundError: ")


def test_the_versions_that_a_program_runs_on_are_written(tmp_path: Path) -> None:
    program, _ = run_program(tmp_path, CALLS.format(root=str(ROOT)), marked_by="call")
    versions = json.loads(program.log_path.with_name(f"{program.log_path.name}.software.json").read_text())
    assert versions == {"python": platform.python_version(), "executable": sys.executable, "torch": None}


def test_without_a_configuration_the_folder_loads_nothing() -> None:
    script = "import sys; print([name for name in sys.modules if name.startswith('wanbed_hook')])"
    environment = {"PYTHONPATH": str(HOOK_FOLDER), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_other_versions_of_python_run_it(tmp_path: Path, version: str) -> None:
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no Python {version} here")
    script = "from wanbed_hook.hook import mark_iteration\nfrom wanbed_hook import profiling\nmark_iteration()\n"
    program = HookedProgram(tmp_path, [python, "-c", script], environment={}, marked_by="call")
    assert program.wait() == (0, "", "")
    assert len(spans_of(program.log, "iteration")) == 1


def test_a_header_is_written_whole(tmp_path: Path) -> None:
    program, _ = run_program(
        tmp_path, CALLS.format(root=str(ROOT)), marked_by="call", header={**_HEADER, "rank": 7, "pipeline": 7}
    )
    assert json.loads(program.log_path.read_text().splitlines()[0]) == {
        **_HEADER,
        "version": 2,
        "rank": 7,
        "pipeline": 7,
    }


_HEADER = {"rank": 0, "host": "east-0", "datacenter": "east", "gpu": 0, "pipeline": 0, "stage": 0}
