import json
import os
import pty
import select
import socket
import threading
import tty
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from wanbed.testbed.substrate.guest_agent import LONGEST_LINE_BYTES, Answers, serve

Handlers = Mapping[str, Callable[[str], object]]


def refuse(_: str) -> object:
    raise RuntimeError("no such port")


HANDLERS: Handlers = {
    "echo": lambda argument: {"echo": argument},
    "long": lambda argument: {"text": "x" * int(argument)},
    "refuse": refuse,
    "unwritable": lambda _: {"what": object()},
}


class Host:
    """The host's side of the console."""

    def __init__(self, descriptor: int, folder: Path, agent: threading.Thread) -> None:
        self.descriptor = descriptor
        self.folder = folder
        self.agent = agent
        self._pending = b""

    def say(self, text: bytes) -> None:
        os.write(self.descriptor, text)

    def hear(self) -> dict[str, Any]:
        while b"\n" not in self._pending:
            assert select.select([self.descriptor], [], [], 5)[0], "no answer"
            self._pending += os.read(self.descriptor, 100)
        line, _, self._pending = self._pending.partition(b"\n")
        assert len(line) <= LONGEST_LINE_BYTES
        return dict(json.loads(line))

    def ask(self, request: str) -> dict[str, Any]:
        self.say(request.encode() + b"\n")
        return self.hear()

    def agent_has_ended(self) -> bool:
        self.agent.join(timeout=5)
        return not self.agent.is_alive()


def socket_ends() -> tuple[int, int]:
    one, other = socket.socketpair()
    return one.detach(), other.detach()


def terminal_ends() -> tuple[int, int]:
    host, guest = pty.openpty()
    tty.setraw(guest)
    return host, guest


@pytest.fixture(params=[socket_ends, terminal_ends], ids=["socket", "terminal"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    ours, console = request.param()
    answers = Answers(console, tmp_path)
    agent = threading.Thread(target=serve, args=(console, HANDLERS, answers.send), daemon=True)
    agent.start()
    host = Host(ours, tmp_path, agent)
    yield host
    if agent.is_alive():
        host.say(b"stop\n")
        agent.join()
    for descriptor in (host.descriptor, console):
        os.close(descriptor)


def test_a_request_is_answered_by_its_handler_with_its_argument(host: Host) -> None:
    assert host.ask("echo 40000000") == {"echo": "40000000"}
    assert host.ask("echo several words") == {"echo": "several words"}
    assert host.ask("echo") == {"echo": ""}


def test_requests_are_answered_in_turn_however_they_arrive(host: Host) -> None:
    host.say(b"echo 1\necho 2\nec")
    assert [host.hear(), host.hear()] == [{"echo": "1"}, {"echo": "2"}]
    host.say(b"ho 3\n")
    assert host.hear() == {"echo": "3"}


def test_failed_request_is_answered_with_its_error_and_serving_goes_on(host: Host) -> None:
    assert host.ask("refuse") == {"error": "RuntimeError: no such port"}
    assert host.ask("echo 1") == {"echo": "1"}


@pytest.mark.parametrize("request_line", [b"unknown verb\n", b"\xff\xfe\n", b"long many\n", b"unwritable\n"])
def test_a_request_that_makes_no_sense_is_answered_by_an_error(host: Host, request_line: bytes) -> None:
    host.say(request_line)
    assert set(host.hear()) == {"error"}
    assert host.ask("echo 1") == {"echo": "1"}


def test_an_empty_line_is_answered_by_an_empty_line(host: Host) -> None:
    host.say(b"\necho 1\n")
    assert select.select([host.descriptor], [], [], 5)[0]
    assert os.read(host.descriptor, 1) == b"\n"
    assert host.hear() == {"echo": "1"}


def test_a_short_answer_comes_over_the_console_and_leaves_no_file(host: Host) -> None:
    room = LONGEST_LINE_BYTES - len('{"text":""}')
    assert len(host.ask(f"long {room}")["text"]) == room
    assert list(host.folder.iterdir()) == []


def test_a_long_answer_comes_as_the_name_of_a_file_that_holds_it(host: Host) -> None:
    names = [host.ask(f"long {length}")["file"] for length in (LONGEST_LINE_BYTES, 1_000_000)]
    assert len(set(names)) == 2
    held = [json.loads((host.folder / name).read_text())["text"] for name in names]
    assert [len(text) for text in held] == [LONGEST_LINE_BYTES, 1_000_000]


def test_a_file_that_cannot_be_written_is_tried_again_under_another_name(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text, failures = Path.write_text, iter([True, True])

    def flaky(path: Path, text: str) -> int:
        if next(failures, False):
            raise OSError(5, "Input/output error")
        return write_text(path, text)

    monkeypatch.setattr(Path, "write_text", flaky)
    answer = host.ask(f"long {2 * LONGEST_LINE_BYTES}")
    assert json.loads((host.folder / answer["file"]).read_text()) == {"text": "x" * 2 * LONGEST_LINE_BYTES}


def test_stop_ends_it(host: Host) -> None:
    host.say(b"stop\necho 1\n")
    assert host.agent_has_ended()


def test_it_ends_when_the_host_goes_away(host: Host) -> None:
    assert host.ask("echo 1") == {"echo": "1"}
    os.close(host.descriptor)
    ended = host.agent_has_ended()
    host.descriptor = os.open(os.devnull, os.O_RDWR)
    assert ended
