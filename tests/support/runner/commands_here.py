"""Call a command in this process, in the current folder."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from wanbed.runner.cli.command_line import app


def wanbed(*arguments: object, answer: str | None = None) -> Result:
    """Call a command to its end, and return its exit status and what it printed. ``answer`` is typed into it."""
    return CliRunner().invoke(app, [str(each) for each in arguments], input=answer)


def called(*arguments: object, status: int = 0, answer: str | None = None) -> Result:
    """Call a command to its end, which has to have that exit status, and return what it printed."""
    done = wanbed(*arguments, answer=answer)
    assert done.exit_code == status, done.output
    return done


def printed(*arguments: object, status: int = 0) -> Any:
    """Call a command with ``--json`` as ``called`` does, and return the document on its standard output."""
    return json.loads(called(*arguments, "--json", status=status).stdout)


def refusal(*arguments: object, status: int = 2, answer: str | None = None) -> str:
    """Return the one line with which a command refuses. It has printed nothing else, and made no file or folder."""
    before = sorted(Path().rglob("*"))
    done = wanbed(*arguments, answer=answer)
    assert (done.exit_code, done.stdout) == (status, ""), done.output
    assert sorted(Path().rglob("*")) == before
    (line,) = done.stderr.splitlines()
    assert line.isprintable()
    assert line.startswith("wanbed: ")
    return line.removeprefix("wanbed: ")
