import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.until import until_within
from wanbed.testbed.claims import processes
from wanbed.testbed.claims.processes import MARKER, marked_processes, processes_of


@pytest.fixture
def asleep() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts processes that sleep until the test ends."""
    started = []

    def start(**environment: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(["sleep", "60"], env={**os.environ, **environment})
        started.append(process)
        # For a moment of its start a process shows no environment.
        until_within(60, lambda: Path(f"/proc/{process.pid}/environ").read_bytes() != b"")
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_processes_are_found_only_by_the_identifier_in_their_environment(
    asleep: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    ours, theirs, similar = (
        asleep(**{MARKER: mark}) for mark in ("wb-test-one", "wb-test-other", "wb-test-one-and-more")
    )
    unmarked = asleep(OTHER="wb-test-one")
    found = marked_processes("wb-test-one")
    assert found == [ours.pid]
    assert not {theirs.pid, similar.pid, unmarked.pid} & set(found)


def test_another_variable_marks_others(asleep: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    asleep(**{MARKER: "wb-test-variable"})
    other = asleep(WANBED_TEST_MARK="wb-test-variable")
    assert marked_processes("wb-test-variable", "WANBED_TEST_MARK") == [other.pid]


def test_a_namespace_whose_oldest_process_is_not_marked_belongs_to_others(
    asleep: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    asleep()
    ours = asleep(**{MARKER: "wb-test-visitor"})
    asleep()
    assert processes_of("wb-test-visitor") == [ours.pid]


def test_this_processs_own_namespace_belongs_to_no_testbed_even_if_only_younger_processes_are_seen(
    asleep: Callable[..., "subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, younger = asleep(**{MARKER: "wb-test-oldest"}), asleep()
    monkeypatch.setattr(processes, "_all_processes", lambda: [ours.pid, younger.pid])
    assert processes_of("wb-test-oldest") == [ours.pid]
