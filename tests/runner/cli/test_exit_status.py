"""A limit on the address space is lived with, or refused in a line."""

import errno
import os
import re
import resource
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from pydantic_core import SchemaError

from wanbed.ground.errors import InputError, MissingError
from wanbed.results.records.run_store import RunError
from wanbed.runner.cli.exit_status import fail, fit_address_space, log, one_line_errors, reporting
from wanbed.runner.resolve.dilation import CapacityError
from wanbed.runner.runs import faults
from wanbed.runner.runs.faults import (
    BAD_INPUT,
    DONE,
    MACHINE_LACKS,
    NO_DATA,
    NOT_COMPARABLE,
    OUTSIDE_TOLERANCE,
    REGRESSED,
    TrialError,
)
from wanbed.testbed.claims.cleaning import CleaningError
from wanbed.testbed.hosts.ping import MeasurementError
from wanbed.testbed.kernel.qdiscs import ReadBackError
from wanbed.testbed.substrate.substrate import SubstrateError
from wanbed.testbed.virtual_time.guest import GuestError
from wanbed.testbed.virtual_time.light_hosts import ServerEndedError

STATUS = [
    (InputError, 2),
    (RunError, 2),
    (MissingError, 5),
    (CapacityError, 5),
    (TrialError, 4),
    (MeasurementError, 4),
    (SubstrateError, 4),
    (ReadBackError, 4),
    (CleaningError, 4),
    (GuestError, 4),
    (ServerEndedError, 4),
]


def status_after(fault: BaseException, cause: BaseException | None = None) -> int:
    """Return the exit status of a command in which ``fault`` is raised."""
    with pytest.raises(typer.Exit) as ended, one_line_errors():
        raise fault from cause
    return ended.value.exit_code


INTERRUPTED = "wanbed: interrupted, nothing of it is left running\n"


def test_every_error_with_a_status_is_there_by_its_name() -> None:
    for name in faults.STATUS:
        module, _, kind = name.rpartition(".")
        assert issubclass(getattr(import_module(module), kind), Exception)


@pytest.mark.parametrize("value", [None, "", "0"])
def test_an_expected_error_has_no_traceback_unless_asked_for(
    value: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WANBED_DEBUG", raising=False)
    if value is not None:
        monkeypatch.setenv("WANBED_DEBUG", value)
    status_after(InputError("exp.yaml: wrong"))
    assert capsys.readouterr().err == "wanbed: exp.yaml: wrong\n"


@pytest.mark.parametrize("fault", [InputError("exp.yaml: wrong"), KeyboardInterrupt(), FileNotFoundError(2, "no", "x")])
def test_debugging_shows_where_an_expected_error_and_what_it_hides_come_from(
    fault: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        try:
            int("seven")
        except ValueError:
            raise fault from None

    monkeypatch.setenv("WANBED_DEBUG", "1")
    with pytest.raises(typer.Exit), one_line_errors():
        refuse()
    *trace, line = capsys.readouterr().err.splitlines()
    assert line.startswith("wanbed: ")
    assert trace[0] == "Traceback (most recent call last):"
    assert 'int("seven")' in "".join(trace)
    assert "raise fault from None" in "".join(trace)


def test_a_fault_of_a_report_names_the_runs_and_an_expected_error_its_own_line_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for fault, line in (
        (IndexError("no"), "please report the lines above. The report failed, what was run is in runs/a, runs/b"),
        (InputError("exp.yaml: wrong"), "wanbed: exp.yaml: wrong"),
    ):
        with pytest.raises(typer.Exit), one_line_errors(), reporting(Path("runs/a"), Path("runs/b")):
            raise fault
        assert capsys.readouterr().err.splitlines()[-1].endswith(line)


def test_the_statuses_are_those_that_scripts_rely_on() -> None:
    assert REGRESSED == OUTSIDE_TOLERANCE
    assert (DONE, OUTSIDE_TOLERANCE, BAD_INPUT, NOT_COMPARABLE, NO_DATA, MACHINE_LACKS) == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(("kind", "status"), STATUS)
def test_every_expected_error_is_one_line_and_its_status(
    kind: type[Exception], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for own in (kind, type("Special", (kind,), {})):
        assert status_after(own("exp.yaml: repeats: 0 is not a whole number from 1 to 1000")) == status
        line = "wanbed: exp.yaml: repeats: 0 is not a whole number from 1 to 1000\n"
        assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (MemoryError(), "memory or threads ran out: make room"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), r"memory or threads ran out \("),
        (OSError(errno.EMFILE, "Too many open files", "a.yaml"), r"too many open files \("),
        (ModuleNotFoundError("No module named 'mininet.net'", name="mininet.net"), ".*pip install mininet$"),
        (ModuleNotFoundError("No module named 'distutils'", name="distutils.version"), ".*pip install setuptools$"),
    ],
)
def test_a_limit_of_the_process_or_a_module_that_hosts_need_is_what_the_machine_lacks(
    fault: Exception, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_after(fault) == MACHINE_LACKS
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(f"wanbed: {words}", line)


@pytest.mark.parametrize(
    ("fault", "cause", "status", "lines"),
    [
        (
            InputError("exp.yaml: seed: is bad", "exp.yaml: repeats: is\nbad"),
            None,
            BAD_INPUT,
            "wanbed: exp.yaml: seed: is bad\nwanbed: exp.yaml: repeats: is bad\n",
        ),
        (typer.Exit(7), None, 7, ""),
        (KeyboardInterrupt(), None, 130, INTERRUPTED),
        (RuntimeError("Error calling __set_name__"), KeyboardInterrupt(), 130, INTERRUPTED),
        (
            SchemaError("Field `device`:\n    SchemaError: Error building:\n    KeyboardInterrupt: "),
            None,
            130,
            INTERRUPTED,
        ),
    ],
    ids=[
        "every mistake of an input has a line",
        "a status",
        "an interrupt",
        "an interrupt that Python wraps",
        "an interrupt that pydantic names",
    ],
)
def test_mistakes_statuses_and_interrupts_end_as_scripts_and_shells_expect(
    fault: BaseException,
    cause: BaseException | None,
    status: int,
    lines: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert status_after(fault, cause) == status
    assert capsys.readouterr().err == lines


@pytest.mark.parametrize("text", ["two\nlines", "a\r\nb\n", "tab\tand bell\a", "a guest's\x1b[31mcolours"])
def test_any_message_is_reported_in_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        fail(text, NO_DATA)
    line = capsys.readouterr().err
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert line.startswith("wanbed: ")


@pytest.mark.parametrize("fault", [ValueError("a mistake of ours"), KeyError("x"), AssertionError()])
def test_an_unexpected_error_keeps_its_traceback_and_is_no_result(
    fault: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_after(fault) == NO_DATA
    first, *_, line = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert line.startswith("wanbed: this is a fault of wanbed itself")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_unwinds_the_block_and_sets_the_status(number: signal.Signals) -> None:
    undone: list[bool] = []

    def block() -> None:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            undone.append(True)

    with pytest.raises(typer.Exit) as ended, one_line_errors():
        block()
    assert ended.value.exit_code == 128 + number
    assert undone == [True]


@pytest.mark.parametrize("fault", [None, InputError("x"), KeyboardInterrupt(), ValueError("y")])
def test_signals_are_handled_as_before_once_the_block_is_over(fault: BaseException | None) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        with one_line_errors():
            if fault is not None:
                raise fault
    except (typer.Exit, ValueError):
        pass
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


def test_the_handlers_of_before_are_there_again_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with one_line_errors():
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


NAMES = ("ARROW_DEFAULT_MEMORY_POOL", "OPENBLAS_NUM_THREADS")


@pytest.fixture(autouse=True)
def _without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        # Set first, so that it is unset again after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def settings() -> list[str | None]:
    return [os.environ.get(name) for name in NAMES]


def limit(monkeypatch: pytest.MonkeyPatch, limit_bytes: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit_bytes, limit_bytes))


def test_without_a_limit_libraries_do_as_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, resource.RLIM_INFINITY)
    fit_address_space()
    assert settings() == [None, None]


def test_below_a_limit_libraries_reserve_little_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 2 << 30)
    os.environ["OPENBLAS_NUM_THREADS"] = "4"
    fit_address_space()
    assert settings() == ["system", "4"]


def test_a_limit_that_is_too_low_for_any_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 300_000 << 10)
    with pytest.raises(MissingError, match=r"takes 800000 KiB of address space, ulimit -v allows 300000: raise it$"):
        fit_address_space()


@pytest.mark.parametrize("command", ["report", "trace", "simulate"])
def test_a_limit_is_met_before_a_command_imports_more_than_fits(command: str) -> None:
    argv = ["prlimit", "--as=330000000", sys.executable, "-m", "wanbed", command, "nothing"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.partition(" takes ")[0]) == (5, "wanbed: wanbed")


def test_a_name_in_a_line_does_not_reach_the_terminal_raw(capsys: pytest.CaptureFixture[str]) -> None:
    log("machine \x1b[31mred\u202e\n is lost")
    assert capsys.readouterr().err == "wanbed: machine \\x1b[31mred\\u202e is lost\n"
