"""Emulated hosts without root: the commands that they would start, and their registration with Mininet."""

import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import mininet.net
import pytest
from mininet.net import Mininet
from mininet.node import Node

from wanbed.ground.errors import MissingError
from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.hosts import emulated_hosts
from wanbed.testbed.hosts.emulated_hosts import EmulatedHost, EmulatedNetwork
from wanbed.testbed.kernel.killed import KilledError


@pytest.fixture
def host() -> EmulatedHost:
    """A host whose shell was never started."""
    unborn = EmulatedHost.__new__(EmulatedHost)
    unborn.name, unborn._marker, unborn.pid, unborn.shell = "east-0", "wb-1", 41, None
    unborn.intfs, unborn.ports, unborn.nameToIntf, unborn.inNamespace = {}, {}, {}, True
    return unborn


def test_creating_a_network_starts_nothing_and_changes_no_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Mininet, "inited", False)
    for name in ("ensureRoot", "fixLimits"):
        monkeypatch.setattr(mininet.net, name, lambda: pytest.fail("Mininet would change the machine's settings"))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    network = EmulatedNetwork()
    assert (network.hosts, network.links, network.built) == ([], [], True)
    network.stop()


@pytest.mark.parametrize(
    ("before", "after"),
    [((1024, 2**20), (16_384, 2**20)), ((256, 4096), (4096, 4096)), ((2**20, 2**20), (2**20, 2**20))],
)
def test_open_file_limit_is_raised_for_many_hosts(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: tuple[int, int]
) -> None:
    limits = {resource.RLIMIT_NOFILE: before}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    EmulatedNetwork()
    assert limits == {resource.RLIMIT_NOFILE: after}


def test_a_hosts_processes_are_marked_and_have_its_name(host: EmulatedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, Any]]] = []
    monkeypatch.setattr(Node, "_popen", lambda _, argv, **popen: started.append((argv, popen)))
    host._popen(["bash", "-is"], close_fds=False)
    ((argv, popen),) = started
    assert argv[:2] == ["unshare", "--uts"]
    assert argv[-2:] == ["bash", "-is"]
    assert popen == {"env": {**os.environ, MARKER: "wb-1"}, "close_fds": False}


def test_the_name_is_set_before_the_program_takes_over(host: EmulatedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def run_outside_the_namespace(_: Node, argv: list[str], **popen: Any) -> None:
        script = argv[argv.index("-c") + 1].replace("/proc/sys/kernel/hostname", "/dev/stdout")
        done = subprocess.run(
            ["sh", "-c", script, *argv[argv.index("-c") + 2 :]], **popen, capture_output=True, text=True, check=True
        )
        said.extend(done.stdout.splitlines())

    monkeypatch.setattr(Node, "_popen", run_outside_the_namespace)
    host.name = "a'b c"
    host._popen(["sh", "-c", f'echo "${MARKER} $1"', "sh", "two  words"])
    assert said == ["a'b c", "wb-1 two  words"]


def test_a_shell_that_ends_before_its_prompt_is_an_error_with_what_it_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: EmulatedHost, __: list[str], **popen: Any) -> Any:
        return subprocess.Popen(["sh", "-c", "echo mount: Operation not permitted; exit 1"], **popen)

    monkeypatch.setattr(EmulatedHost, "_popen", fail)
    with pytest.raises(MissingError, match=r"^east-0: the host's shell ended: mount: Operation not permitted: "):
        EmulatedHost("east-0", "wb-1")


def test_a_shell_that_is_killed_before_its_prompt_says_nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(_: EmulatedHost, __: list[str], **popen: Any) -> Any:
        return subprocess.Popen(["sh", "-c", "kill -KILL $$"], **popen)

    monkeypatch.setattr(EmulatedHost, "_popen", kill)
    with pytest.raises(KilledError, match=r"^east-0: the host's shell was ended by SIGKILL$"):
        EmulatedHost("east-0", "wb-1")


def test_a_shell_that_never_prints_its_prompt_is_waited_for_with_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_hosts, "_PROMPT_S", 0.2)
    shells: list[subprocess.Popen[bytes]] = []

    def hang(_: EmulatedHost, __: list[str], **popen: Any) -> Any:
        shells.append(subprocess.Popen(["sleep", "60"], **popen))
        return shells[-1]

    monkeypatch.setattr(EmulatedHost, "_popen", hang)
    with pytest.raises(MissingError, match=r"^east-0: the host's shell printed nothing for 0 s: "):
        EmulatedHost("east-0", "wb-1")
    shells[0].kill()
    shells[0].wait()


def test_a_program_is_started_in_the_namespaces_of_the_hosts_shell(
    host: EmulatedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[tuple[Any, ...]] = []
    monkeypatch.setattr(emulated_hosts, "enter_host", lambda *arguments, **popen: entered.append((*arguments, popen)))
    host.spawn(["ping", "west-0"], text=True)
    assert entered == [(41, "wb-1", ["ping", "west-0"], {"text": True})]
    assert host.namespace == "/proc/41/ns/net"


def test_a_hosts_prompt_knows_its_address_its_files_and_its_environment(
    host: EmulatedHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines: list[tuple[str, ...]] = []
    monkeypatch.setattr(host, "cmd", lambda *words: lines.append(words))
    etc = tmp_path / "files of hosts"
    etc.mkdir()
    (etc / "hosts").touch()
    host.configure(etc, "10.1.0.2", {"CUDA_VISIBLE_DEVICES": "GPU-1 GPU-2"})
    assert host.IP() == "10.1.0.2"
    assert [str(interface) for interface in host.intfList()] == ["eth0"]
    assert lines == [
        ("(setsid sleep infinity < /dev/null > /dev/null 2>&1 &)",),
        ("mount", "--bind", f"'{etc}/hosts'", "/etc/hosts"),
        ("export", "CUDA_VISIBLE_DEVICES='GPU-1 GPU-2'"),
    ]


def test_stopping_ends_the_shell_and_once_is_enough(host: EmulatedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "cleanup", lambda node: setattr(node, "shell", None))
    shell = host.shell = subprocess.Popen(["sleep", "60"])
    host.stop_shell()
    assert shell.returncode == -signal.SIGKILL
    host.stop_shell()
