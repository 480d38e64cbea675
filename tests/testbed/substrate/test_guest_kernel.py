"""The host's side of the gateway guest, with a shell script in place of the guest."""

import errno
import os
import resource
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import MissingError
from wanbed.ground.strict_model import parse_model
from wanbed.testbed.claims.processes import MARKER, marked_processes
from wanbed.testbed.kernel.course_run import AppliedChange
from wanbed.testbed.kernel.link_counters import Counters
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.gateway_plan import GatewayPlan
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.substrate import guest_kernel
from wanbed.testbed.substrate.guest_device import GuestDevice
from wanbed.testbed.substrate.guest_kernel import (
    MAX_GUEST_HOSTS,
    WANTED_BYTES,
    GuestCourses,
    GuestKernel,
    enlarge_buffers,
    guest_gateways,
)
from wanbed.testbed.substrate.substrate import GuestFacts, SubstrateError

KERNEL_COMMAND_LINE_MAX = 4096
NO_GATEWAYS = GatewayPlan((), exact_packets=False)

READY = 'echo \'{"ready":"6.1.0-uml"}\'\n'
COUNTERS = (
    '{"counters":[{"source":"east","destination":"west",'
    '"total":[500,5,70,1],"pairs":[["east-0","west-0",400,4,60,1]]}]}'
)


class Nothing:
    """A netlink socket that is never used."""

    def close(self) -> None:
        pass


Boot = Callable[..., GuestKernel]


@pytest.fixture
def booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boot]:
    """Starts a guest that behaves as a script says, without hosts."""
    popen = subprocess.Popen
    monkeypatch.setattr(guest_kernel, "open_netlink", lambda _: Nothing())
    monkeypatch.setattr(guest_kernel, "guest_device", lambda: GuestDevice(None))
    monkeypatch.setattr(guest_kernel, "fitted_kernel", lambda kernel: kernel)
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")

    def boot(script: str, plan: GatewayPlan = NO_GATEWAYS) -> GuestKernel:
        def in_its_place(_: list[str], **options: Any) -> "subprocess.Popen[bytes]":
            return popen(["sh", "-c", script], **{**options, "cwd": tmp_path})

        monkeypatch.setattr(subprocess, "Popen", in_its_place)
        guest = up.enter_context(guest_gateways(plan, tmp_path, "wb-1", {}))
        facts = guest.facts
        assert (facts.name, facts.kernel, facts.guest) == ("guest", "6.1.0-uml", GuestFacts("tap", 0, None))
        return guest

    with ExitStack() as up:
        yield boot


def answering(**answers: str) -> str:
    """A guest's script that answers each request by its name, until its input closes."""
    cases = "".join(f"{verb}*) {script};;\n" for verb, script in answers.items())
    return f'{READY}while read -r request; do\ncase "$request" in\n{cases}esac\ndone\n'


def saying(text: str) -> str:
    return f"echo '{text}'"


def plan_of(hosts: int) -> GatewayPlan:
    document = {
        "datacenters": [{"name": "east", "hosts": hosts // 2}, {"name": "west", "hosts": hosts - hosts // 2}],
        "wan": {"latency": "10ms"},
    }
    return plan_gateways(resolve_topology(parse_model(TopologySpec, document, "test")), slot=250)


def test_stuck_guest_console_is_nudged_until_it_answers(booted: Boot) -> None:
    stuck = f"{READY}while read -r request; do read -r nudge; echo; read -r nudge; echo; {saying(COUNTERS)}; done\n"
    guest = booted(stuck)
    for _ in range(2):
        (port,) = guest.read_counters()
        assert port.source == "east"


def test_guest_kernel_messages_go_to_the_log_and_are_not_answers(booted: Boot, tmp_path: Path) -> None:
    words = "[    7.25] random: crng init done"
    guest = booted(answering(counters=f"{saying(words)}; {saying(COUNTERS)}"))
    assert len(guest.read_counters()) == 1
    assert any(words in log.read_text() for log in tmp_path.rglob("guest.log"))


@pytest.mark.parametrize(("exact", "packets"), [(True, (5, 4)), (False, (None, None))])
def test_guest_counters_have_packets_only_where_the_kernel_counts_them(
    booted: Boot, exact: bool, packets: tuple[int | None, int | None]
) -> None:
    guest = booted(answering(counters=saying(COUNTERS)), replace(NO_GATEWAYS, exact_packets=exact))
    (port,) = guest.read_counters()
    assert (port.source, port.destination) == ("east", "west")
    assert port.total == Counters(500, packets[0], 70, 1)
    assert port.pairs == {("east-0", "west-0"): Counters(400, packets[1], 60, 1)}


def test_a_long_answer_is_read_from_its_file_which_goes(booted: Boot, tmp_path: Path) -> None:
    answer = """echo '{"east wan1":{}}' > answer-1.json; echo '{"file":"answer-1.json"}'"""
    assert booted(answering(qdiscs=answer)).read_qdiscs() == {"east wan1": {}}
    assert not (tmp_path / "answer-1.json").exists()


def test_offloads_are_those_the_guest_read(booted: Boot) -> None:
    answer = saying('{"east wan1":{"mtu_bytes":1500}}')
    assert booted(answering(offloads=answer)).read_offloads() == {"east wan1": {"mtu_bytes": 1500}}


def test_a_trim_is_reported_in_nanoseconds(booted: Boot, tmp_path: Path) -> None:
    booted(answering(settle=f'echo "$request" > said; {saying("{}")}')).settle(123_456)
    assert (tmp_path / "said").read_text() == "settle 123456\n"


def test_error_in_the_guest_is_reported_with_its_message(booted: Boot) -> None:
    guest = booted(answering(qdiscs=saying('{"error":"ReadBackError: east wan1: asked for more"}')))
    with pytest.raises(SubstrateError, match=r"^the gateway guest: ReadBackError: east wan1: asked for more$"):
        guest.read_qdiscs()


def test_failed_gateways_are_reported_with_the_guests_error(booted: Boot) -> None:
    with pytest.raises(SubstrateError, match=r"^the gateway guest: NetlinkError: \(2, 'No such file'\)$"):
        booted("""echo '{"error":"NetlinkError: (2, '"'No such file'"')"}'; exec sleep 60""")


@pytest.mark.parametrize(
    "script",
    ["echo Kernel panic >&2", f"{READY}echo Kernel panic >&2; exit 1", "echo Kernel panic >&2; echo Aborted >&2"],
)
def test_a_guest_that_ends_is_reported_with_its_stderr_tail(booted: Boot, script: str) -> None:
    with pytest.raises(SubstrateError, match=r"^the gateway guest ended; its stderr tail: Kernel panic$"):
        booted(script).read_qdiscs()


def test_guest_that_ended_before_a_request_is_reported(booted: Boot) -> None:
    guest = booted(f"{READY}exec >&- <&-")
    for _ in range(3):
        with pytest.raises(SubstrateError, match=r"^the gateway guest ended; its stderr tail: empty$"):
            guest.settle(1)


def test_silent_guest_is_reported_with_the_timeout(booted: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_kernel, "_ANSWER_DEADLINE_S", 0.1)
    guest = booted(answering(qdiscs="exec sleep 60"))
    with pytest.raises(SubstrateError, match=r"^the gateway guest did not answer within 0 s; its stderr tail: empty$"):
        guest.read_qdiscs()


def test_threads_that_ask_at_once_hear_their_own_answers(booted: Boot) -> None:
    guest = booted(answering(counters=saying(COUNTERS), qdiscs=saying('{"east wan1":{}}')))
    heard: list[bool] = []

    def ask() -> None:
        heard.extend(guest.read_counters()[0].source == "east" for _ in range(50))

    asking = threading.Thread(target=ask)
    asking.start()
    assert all(guest.read_qdiscs() == {"east wan1": {}} for _ in range(50))
    asking.join()
    assert heard == [True] * 50


def test_a_guest_ends_with_its_block_at_once(booted: Boot, tmp_path: Path) -> None:
    booted(f"{READY}exec sleep 60")
    marker = f"wb-{os.getpid()}"
    with guest_gateways(NO_GATEWAYS, tmp_path, marker, {}):
        assert len(marked_processes(marker)) == 1
    assert marked_processes(marker) == []


def test_a_guest_program_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with (
        pytest.raises(SubstrateError, match=r"^linux\.uml is not installed: apt-get install user-mode-linux$"),
        guest_gateways(NO_GATEWAYS, tmp_path, "wb-1", {}),
    ):
        pass


def test_a_guest_that_may_open_too_few_files_is_not_booted(booted: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (79, 79))
    with pytest.raises(MissingError, match=r"^the gateway guest takes 80 open files at least, and ulimit -n allows 79"):
        booted(READY, plan_of(8))


class StartedError(Exception):
    """Stands for the guest's start."""


def started_with(plan: GatewayPlan, folder: Path, device: GuestDevice, patch: pytest.MonkeyPatch) -> Any:
    """Return the command line and the options that start the guest."""
    started: list[tuple[list[str], dict[str, Any]]] = []

    def note(argv: list[str], **options: Any) -> None:
        started.append((argv, options))
        raise StartedError

    patch.setattr(subprocess, "Popen", note)
    patch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    patch.setattr(guest_kernel, "guest_device", lambda: device)
    patch.setattr(guest_kernel, "fitted_kernel", lambda kernel: kernel)
    folder.mkdir()
    with pytest.raises(StartedError), guest_gateways(plan, folder, "wb-1", {}):
        pass
    return started[0]


def test_without_tap_devices_the_guest_gets_veth_pairs_made_before_it_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv, _ = started_with(plan_of(2), tmp_path / "f", GuestDevice("Permission denied"), monkeypatch)
    script = argv[argv.index("guest") - 1]
    assert script == (
        'ip link add uml0 up type veth peer name tap0 && ip link add uml1 up type veth peer name tap1 && "$@"; true'
    )
    assert [word.split(",depth")[0] for word in argv if word.startswith("vec")] == [
        "vec0:transport=raw,ifname=uml0",
        "vec1:transport=raw,ifname=uml1",
    ]


def test_the_guest_finds_the_modules_of_the_callers_pythonpath_and_mounts_with_its_own_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/my modules:relative")
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "f"
    started_with(plan_of(2), folder, GuestDevice(None), monkeypatch)
    lines = (folder / "init").read_text().splitlines()
    assert f"export PYTHONPATH='/my modules:{tmp_path}/relative'" in lines
    assert not any("LD_LIBRARY_PATH" in line for line in lines)
    assert f"{folder}/mount -t proc proc /proc" in lines
    assert (folder / "mount").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("device", [GuestDevice(None), GuestDevice("Permission denied")])
@pytest.mark.parametrize("exact", [True, False])
def test_as_many_hosts_as_are_allowed_fit_the_kernels_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool, device: GuestDevice
) -> None:
    # A testbed's folder is /run/wanbed/SLOT; here it may be as long as a path of 64 characters.
    folder = tmp_path / "f"
    plan = replace(plan_of(MAX_GUEST_HOSTS), exact_packets=exact)
    argv, options = started_with(plan, folder, device, monkeypatch)
    kernel = argv[argv.index("guest") + 1 :]
    assert kernel[0] == "/usr/bin/linux.uml"
    assert sum("transport=" in word for word in kernel) == MAX_GUEST_HOSTS
    assert len(" ".join(kernel)) < KERNEL_COMMAND_LINE_MAX
    assert options["env"][MARKER] == "wb-1"
    assert GatewayPlan.from_json((folder / "gateways.json").read_text()) == plan


class Raw:
    """A packet socket of a machine with a limit on buffers, which root may exceed."""

    def __init__(self, limit_bytes: int, root: bool) -> None:
        self._limit_bytes, self._root = limit_bytes, root
        self._bytes = 212_992

    def __call__(self, **_: Any) -> "Raw":
        return self

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def setsockopt(self, _: int, option: int, value: int) -> None:
        if option != socket.SO_RCVBUF and not self._root:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self._bytes = 2 * (min(value, self._limit_bytes) if option == socket.SO_RCVBUF else value)

    def getsockopt(self, *_: int) -> int:
        return self._bytes


@pytest.mark.parametrize(
    ("limit_bytes", "root", "size_bytes"),
    [(212_992, True, WANTED_BYTES), (2**22, False, WANTED_BYTES), (212_992, False, 425_984)],
)
def test_buffers_are_as_large_as_the_machine_allows(
    monkeypatch: pytest.MonkeyPatch, limit_bytes: int, root: bool, size_bytes: int
) -> None:
    monkeypatch.setattr(guest_kernel, "_packet_sockets", lambda _: [3])
    monkeypatch.setattr(guest_kernel.socket, "socket", Raw(limit_bytes, root))
    assert enlarge_buffers([41, 42]) == size_bytes


def test_a_process_without_packet_sockets_is_left_alone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert enlarge_buffers([os.getpid()]) is None
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before


def test_a_process_that_has_gone_has_none() -> None:
    assert enlarge_buffers([2**22 + 1]) is None


AHEAD_NS = -7 * 10**12


class Guest:
    """A guest whose clock is ``AHEAD_NS`` ahead, and which takes its time to answer that it is told when to begin."""

    def __init__(self, *slow_s: float) -> None:
        self.asked: list[str] = []
        self.begins_ns: list[int] = []
        self._slow_s = list(slow_s)

    def ask(self, request: str) -> dict[str, Any]:
        verb, _, argument = request.partition(" ")
        self.asked.append(verb)
        if verb == "clock":
            return {"now_ns": time.monotonic_ns() + AHEAD_NS}
        if verb == "begin":
            self.begins_ns.append(int(argument))
            time.sleep(self._slow_s.pop(0) if self._slow_s else 0)
        made = [["east", "west", 5, 7], ["east", "west", 9, None]]
        return {"changes": made, "real_time_priority": True} if verb == "end" else {}


def test_the_guest_is_told_the_begin_on_its_own_clock_before_it_comes() -> None:
    guest = Guest()
    courses = GuestCourses(guest.ask)
    asked_ns = time.monotonic_ns()
    begin_ns = courses.begin()
    assert asked_ns < begin_ns <= time.monotonic_ns()
    record = courses.end()
    assert abs(guest.begins_ns[-1] - AHEAD_NS - begin_ns) <= record.clock_error_ns
    assert record.begin_ns == begin_ns
    assert record.changes == (AppliedChange("east", "west", 5, 7), AppliedChange("east", "west", 9, None))
    assert record.real_time_priority


def test_a_guest_that_answers_after_the_begin_is_told_a_later_one() -> None:
    guest = Guest(0.06)
    courses = GuestCourses(guest.ask)
    begin_ns = courses.begin()
    assert len(guest.begins_ns) >= 2
    assert abs(guest.begins_ns[-1] - AHEAD_NS - begin_ns) <= courses.end().clock_error_ns


def test_states_are_held_by_their_time() -> None:
    guest = Guest()
    GuestCourses(guest.ask).hold(3)
    assert guest.asked == ["hold"]
