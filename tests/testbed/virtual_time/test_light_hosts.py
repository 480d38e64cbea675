"""The fork server and its children, in this machine's own namespaces; system tests enter others."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.hosts.host import wait_for_any
from wanbed.testbed.virtual_time import fork_server
from wanbed.testbed.virtual_time.fork_server import _Server
from wanbed.testbed.virtual_time.light_hosts import ForkedProcess, ForkServer, ServerEndedError

PROGRAM = """
import os, sys, time

def main(arguments):
    what, *rest = arguments
    if what == "say":
        print(rest[0], os.environ["{marker}"], os.getppid(), flush=True)
        print("complaint", file=sys.stderr)
        return 0
    if what == "sleep":
        time.sleep(60)
    if what == "exit":
        sys.exit(int(rest[0]))
    raise ValueError(what)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "forked_program.py").write_text(PROGRAM.replace("{marker}", MARKER))
    root = Path(fork_server.__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(root)]))
    made = ForkServer("wb-test")
    yield made
    made.stop()


@pytest.fixture
def words(tmp_path: Path) -> Path:
    return tmp_path / "words"


def start(server: ForkServer, words: Path, *arguments: str, module: str = "forked_program") -> ForkedProcess:
    own = {kind: os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in fork_server.NAMESPACE_FLAGS}
    try:
        with words.open("ab") as file:
            return server.start(module, list(arguments), file.fileno(), own)
    finally:
        for descriptor in own.values():
            os.close(descriptor)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="entering even the own namespaces needs root")


@needs_root
def test_forked_program_is_a_child_of_the_server_with_the_testbeds_identifier(server: ForkServer, words: Path) -> None:
    process = start(server, words, "say", "hello")
    assert process.wait(30) == 0
    assert sorted(words.read_text().splitlines()) == ["complaint", f"hello wb-test {server.pid}"]


@needs_root
@pytest.mark.parametrize(("arguments", "status"), [(["exit", "0"], 0), (["exit", "7"], 7), (["nothing"], 1)])
def test_its_exit_status_is_reported(server: ForkServer, words: Path, arguments: list[str], status: int) -> None:
    process = start(server, words, *arguments)
    wait_for_any([process], 30)
    assert process.poll() == status
    assert process.returncode == status


@needs_root
def test_traceback_of_a_forked_program_is_in_its_output(server: ForkServer, words: Path) -> None:
    start(server, words, "nothing").wait(30)
    assert words.read_text().splitlines()[-1] == "ValueError: nothing"


@needs_root
def test_it_can_be_killed_and_more_than_once(server: ForkServer, words: Path) -> None:
    process = start(server, words, "sleep")
    assert process.poll() is None
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    process.kill()


@needs_root
def test_stopping_the_server_ends_all(server: ForkServer, words: Path) -> None:
    process = start(server, words, "sleep")
    server.stop()
    assert process.wait(30) == -signal.SIGKILL


@needs_root
def test_program_that_cannot_be_loaded_fails_alone_with_a_traceback(server: ForkServer, words: Path) -> None:
    assert start(server, words, module="no_such_module").wait(30) == 1
    assert words.read_text().splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert start(server, words, "exit", "0").wait(30) == 0


@needs_root
def test_request_to_an_ended_server_is_an_error_of_one_line(server: ForkServer, words: Path) -> None:
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(ServerEndedError, match="that it is forked from has ended"):
        start(server, words, "exit", "0")


def test_a_server_ends_quietly_whose_caller_was_killed_before_it_read_an_answer() -> None:
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        theirs.send(b"an answer")
        ours.close()
        _Server(theirs).serve()
