"""Call commands in this process, and parts of commands with their errors reported as a command reports them."""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr

import typer
from typer.testing import CliRunner

from tests.reliability.fuzz.judgement import Ended
from wanbed.runner.cli.command_line import app
from wanbed.runner.cli.exit_status import one_line_errors
from wanbed.runner.runs.faults import DONE


def called(arguments: Sequence[str]) -> Ended:
    """Return how a command ends, called in this process."""
    done = CliRunner().invoke(app, list(arguments))
    left = None if isinstance(done.exception, SystemExit) else done.exception
    return Ended(done.exit_code, done.stdout, done.stderr, left)


def called_part(call: Callable[[], object]) -> Ended:
    """Return how the call ends; what it returns itself, if that says so."""
    errors = io.StringIO()
    try:
        with redirect_stderr(errors), one_line_errors():
            done = call()
    except typer.Exit as end:
        return Ended(end.exit_code, errors=errors.getvalue())
    return done if isinstance(done, Ended) else Ended(DONE, errors=errors.getvalue())
