"""The supervisor of a process that is killed, that dismisses it, or that cannot end its own testbed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.until import until_within
from wanbed.module_process import RUN_MODULE
from wanbed.testbed.claims import supervisor
from wanbed.testbed.claims.processes import MARKER, SUPERVISED, marked_processes
from wanbed.testbed.claims.registry import claim, claims
from wanbed.testbed.claims.supervisor import Supervisor

OWNER = """
import os, subprocess, sys
from pathlib import Path
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.claims.registry import claim
from wanbed.testbed.claims.supervisor import Supervisor

root = Path(sys.argv[1])
ours = claim("exp.yaml", root)
with Supervisor(ours.record.identifier, root=root):
    environment = {**os.environ, MARKER: ours.record.identifier}
    # Of another session, and with a child of its own.
    subprocess.Popen(["sh", "-c", "sleep 60; true"], env=environment, start_new_session=True)
    if not os.fork():
        # A process that is slow to become its program.
        sys.stdin.read(1)
        os.execvpe("sleep", ["sleep", "60"], environment)
    print(ours.record.identifier, flush=True)
    os.waitpid(-1, 0)
"""
PATIENCE_S = 30


until = partial(until_within, PATIENCE_S)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that owns a testbed with processes, in a process group of its own."""
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    process = subprocess.Popen(
        [sys.executable, *RUN_MODULE, "owner", str(tmp_path / "state")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    with process:
        yield process
        process.kill()


def test_processes_and_record_of_a_killed_owner_go_with_it(owner: "subprocess.Popen[str]", tmp_path: Path) -> None:
    assert owner.stdin is not None
    assert owner.stdout is not None
    identifier = owner.stdout.readline().strip()
    until(lambda: len(marked_processes(identifier)) == 2)
    owner.kill()
    owner.wait()
    assert marked_processes(identifier, SUPERVISED), "it waits for the process that has not become its program yet"
    assert len(marked_processes(identifier)) == 2
    owner.stdin.write("now")
    owner.stdin.flush()
    until(lambda: not marked_processes(identifier, SUPERVISED))
    assert marked_processes(identifier) == []
    assert claims(tmp_path / "state") == []


def test_a_signal_to_the_owners_process_group_does_not_end_the_supervisor(
    owner: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert owner.stdout is not None
    identifier = owner.stdout.readline().strip()
    until(lambda: len(marked_processes(identifier)) == 2)
    os.killpg(owner.pid, signal.SIGKILL)
    until(lambda: not marked_processes(identifier, SUPERVISED))
    assert marked_processes(identifier) == []
    assert claims(tmp_path / "state") == []


@pytest.mark.parametrize("orphaned", [False, True])
def test_a_dismissed_supervisor_ends_nothing(orphaned: bool) -> None:
    value = f"wb-test-dismissed-{os.getpid()}"
    with subprocess.Popen(["sleep", "60"], env={**os.environ, MARKER: value}) as process:
        with Supervisor(value, orphaned=orphaned) as dismissed:
            assert len(marked_processes(value, SUPERVISED)) == 1
            dismissed.dismiss()
        assert marked_processes(value, SUPERVISED) == []
        assert process.poll() is None
        process.kill()


def test_a_supervisor_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "module_command", lambda *_: ["sh", "-c", "exit 3"])
    with pytest.raises(RuntimeError, match="the supervisor of wb-1 did not start: status 3"):
        Supervisor("wb-1")


def test_an_orphaned_supervisor_is_no_child_of_its_owner() -> None:
    value = f"wb-test-orphaned-{os.getpid()}"
    with Supervisor(value, orphaned=True) as supervising:
        (pid,) = marked_processes(value, SUPERVISED)
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        assert int(parent) != os.getpid()
        supervising.dismiss()


@pytest.mark.parametrize("orphaned", [False, True])
def test_a_supervisor_that_is_not_dismissed_takes_over(tmp_path: Path, orphaned: bool) -> None:
    ours = claim("exp.yaml", tmp_path)
    with (
        subprocess.Popen(["sleep", "60"], env={**os.environ, MARKER: ours.record.identifier}) as process,
        pytest.raises(KeyboardInterrupt),
        Supervisor(ours.record.identifier, root=tmp_path, orphaned=orphaned),
    ):
        raise KeyboardInterrupt
    assert process.returncode == -signal.SIGKILL
    until(lambda: claims(tmp_path) == [])
