"""Starting the command is quick, because only the module of the command that is called is loaded."""

import inspect
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.runner.commands_here import called, wanbed
from wanbed.runner.cli.command_line import COMMANDS

HEAVY = {
    "jinja2",
    "matplotlib",
    "mininet",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyroute2",
    "rich",
    "torch",
    "yaml",
}
OF_A_SIMULATION = HEAVY - {"matplotlib", "mininet", "pyroute2", "torch"}


def loaded_by(folder: Path, *arguments: str) -> set[str]:
    """The heavy libraries that a command has loaded by its end."""
    script = (
        "import json, sys\nfrom wanbed.command import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 0, end.code\n"
        "print(json.dumps(sorted(name for name in sys.modules if '.' not in name)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return HEAVY & set(json.loads(done.stderr.splitlines()[-1]))


OURS = {"wanbed.results.reading", "wanbed.runner.planner", "wanbed.runner.resolve", "wanbed.runner.simulator"}
"""Packages of ours that a command works with, and no help."""

HELP_SPARES = HEAVY - {"pydantic", "rich"} | OURS | {"google"}
MISSING_FILE_SPARES = HEAVY - {"pydantic", "rich", "yaml"} | {
    "google",
    "wanbed.runner.planner.planning",
    "wanbed.runner.simulator",
}
COMMANDS_OF_FILES = ("calibrate", "exec", "plan", "run", "simulate")


def test_neither_help_nor_a_file_that_is_not_there_loads_what_a_command_works_with(tmp_path: Path) -> None:
    script = (
        "import json, sys\nfrom wanbed.command import main\n"
        "lines, loaded, before = sys.argv[1:], {}, set()\n"
        "for line in lines:\n"
        "    sys.argv[1:] = line.split()\n"
        "    try:\n        main()\n"
        "    except SystemExit as end:\n        assert end.code == (0 if '--help' in line else 2), (line, end.code)\n"
        "    loaded[line], before = sorted({*sys.modules} - before), {*sys.modules}\n"
        "print(json.dumps(loaded))"
    )
    spared = {
        **{f"{name} --help": HELP_SPARES for name in COMMANDS},
        **{
            f"{name} missing.yaml{' east-0 true' * (name == 'exec')}": MISSING_FILE_SPARES for name in COMMANDS_OF_FILES
        },
    }
    done = subprocess.run(
        [sys.executable, "-c", script, *spared], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert loaded.keys() == spared.keys()
    offenders = {line: sorted(spared[line] & set(modules)) for line, modules in loaded.items()}
    assert {line: modules for line, modules in offenders.items() if modules} == {}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_what_calls_no_command_loads_no_library(tmp_path: Path, arguments: list[str]) -> None:
    assert loaded_by(tmp_path, *arguments) == set()


def test_a_command_of_few_needs_loads_what_typer_and_its_table_do(tmp_path: Path) -> None:
    assert loaded_by(tmp_path, "examples") <= {"pydantic", "rich"}


def test_a_simulation_with_its_report_loads_neither_matplotlib_nor_netlink_nor_mininet_nor_torch(
    tmp_path: Path,
) -> None:
    assert loaded_by(tmp_path, "simulate", "first") == OF_A_SIMULATION
    (report,) = tmp_path.glob("runs/first-*/report.html")
    assert report.read_text(encoding="utf-8").count('role="img"') == 2 * 4, (
        "each chart for a wide page and a narrow one"
    )


def test_a_dry_run_neither_draws_nor_reads_tables(tmp_path: Path) -> None:
    assert not {"matplotlib", "pandas", "jinja2", "pyroute2"} & loaded_by(tmp_path, "simulate", "first", "--dry-run")


THREADS = "OPENBLAS_NUM_THREADS"


@pytest.mark.parametrize(("said", "expected"), [({}, "1"), ({THREADS: "4"}, "4")])
def test_a_simulation_has_no_threads_for_linear_algebra_unless_the_user_says_so(
    tmp_path: Path, said: dict[str, str], expected: str
) -> None:
    script = (
        "import os\nfrom wanbed.command import main\n"
        f"try:\n    main()\nfinally:\n    print(os.environ.get({THREADS!r}))"
    )
    argv = [sys.executable, "-c", script, "simulate", "first", "--dry-run"]
    others = {name: value for name, value in os.environ.items() if name != THREADS}
    done = subprocess.run(argv, cwd=tmp_path, env=others | said, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == expected


def test_commands_that_start_programs_of_users_leave_them_their_threads() -> None:
    assert not {"calibrate", "exec", "profile", "run", "shell", "validate"} & {
        name for name, command in COMMANDS.items() if command.computes
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_the_first_sentence_of_its_docstring(name: str) -> None:
    module, _, function = COMMANDS[name].function.partition(":")
    paragraph = (inspect.getdoc(getattr(import_module(module), function)) or "").split("\n\n")[0]
    assert f"{' '.join(paragraph.split()).partition('. ')[0].rstrip('.')}." == COMMANDS[name].summary


def test_help_lists_every_command_with_its_whole_line() -> None:
    text = " ".join(wanbed("--help").stdout.split())
    for name, command in COMMANDS.items():
        assert f"{name} {command.summary}" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name: str) -> None:
    done = called(name, "--help")
    assert done.stdout.startswith(f"Usage: root {name} ") or f" {name} " in done.stdout.splitlines()[0]


def test_a_misspelt_command_is_refused_with_the_nearest() -> None:
    assert "'simulate'" in called("simulat", status=2).stderr


def test_the_version_is_printed() -> None:
    done = wanbed("--version")
    assert (done.exit_code, done.stdout.split()[0]) == (0, "wanbed")


@pytest.fixture
def bash(tmp_path: Path) -> Path:
    """A folder with a command ``wanbed`` on the PATH, where completion is tried."""
    command = tmp_path / "bin" / "wanbed"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m wanbed "$@"\n')
    command.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["cal"], {"calibrate"}),
        (["simulate", "fir"], {"first", "first-of-mine.yaml"}),
        (["exec", "fig4"], {"fig4-timeline"}),
        (["simulate", "first", "--dry"], {"--dry-run"}),
        (["examples", "headline-d"], {"headline-deep"}),
        (["runs", "mine"], {"mine-1"}),
        (["run", "runs/"], set()),
    ],
)
def test_bash_completes_commands_experiments_options_and_runs(
    bash: Path, typed: list[str], completed: set[str]
) -> None:
    (bash / "first-of-mine.yaml").write_text("")
    (bash / "runs" / "mine-1").mkdir(parents=True)
    (bash / "runs" / "mine-1" / "manifest.json").write_text("{}")
    words = " ".join(f"'{word}'" for word in ["wanbed", *typed])
    script = (
        'eval "$(wanbed --show-completion bash)"\n'
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed)}; COMPREPLY=()\n"
        '_wanbed_completion wanbed; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    path = f"{bash / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=bash, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == completed
