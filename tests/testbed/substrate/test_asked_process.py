"""A process that is asked line by line, with a shell script in its place; the gateway guest's tests hold the rest."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from wanbed.testbed.substrate.asked_process import AskedProcess
from wanbed.testbed.substrate.substrate import SubstrateError

ECHO = """while read -r request; do echo "{\\"asked\\": \\"$request\\"}"; done"""


class Started:
    """Starts scripts, which end with the test."""

    def __init__(self, up: ExitStack, folder: Path) -> None:
        self._up = up
        self.log = folder / "log"

    def __call__(self, script: str, **options: Any) -> AskedProcess:
        process = AskedProcess("the script", ["sh", "-c", script], os.environ, self.log, **options)
        return self._up.enter_context(closing(process))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    with ExitStack() as up:
        yield Started(up, tmp_path)


def test_a_request_has_its_answer(started: Started) -> None:
    process = started(ECHO)
    assert [process.ask(request, 10)["asked"] for request in ("one", "two")] == ["one", "two"]


def test_what_is_no_answer_goes_to_the_log_with_standard_error(started: Started) -> None:
    process = started("echo to error >&2; echo no answer; echo '{}'; exec sleep 60")
    assert process.answer(10) == {}
    assert started.log.read_text().splitlines() == ["to error", "no answer"]


def test_a_silent_process_is_nudged_only_if_it_is_to_be(started: Started) -> None:
    waits_for_three_lines = "read -r a; read -r b; read -r c; echo '{}'; exec sleep 60"
    assert started(waits_for_three_lines, nudge_s=0.01).ask("one", 10) == {}
    with pytest.raises(SubstrateError, match=r"^the script did not answer within 0 s; its stderr tail: empty$"):
        started(waits_for_three_lines).ask("one", 0.2)


def test_a_process_that_ends_is_an_error_with_its_last_words(started: Started) -> None:
    with pytest.raises(SubstrateError, match=r"^the script ended; its stderr tail: out of ideas$"):
        started("echo out of ideas >&2").answer(10)
