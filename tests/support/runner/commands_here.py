"""Call a command in this process, in the current folder."""

from pathlib import Path

from typer.testing import CliRunner, Result

from wanbed.runner.cli.command_line import app


def wanbed(*arguments: object) -> Result:
    """Call a command to its end, and return its exit status and what it printed."""
    return CliRunner().invoke(app, [str(each) for each in arguments])


def refusal(*arguments: object, status: int = 2) -> str:
    """Return the one line with which a command refuses. It has printed nothing else, and made no file or folder."""
    before = sorted(Path().rglob("*"))
    done = wanbed(*arguments)
    assert (done.exit_code, done.stdout) == (status, ""), done.output
    assert sorted(Path().rglob("*")) == before
    (line,) = done.stderr.splitlines()
    assert line.isprintable()
    assert line.startswith("wanbed: ")
    return line.removeprefix("wanbed: ")
