"""Both kinds of host do the same for the programs that run on them, each in namespaces of its own."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wanbed.testbed.claims.processes import MARKER
from wanbed.testbed.host_kinds import HOST_KINDS
from wanbed.testbed.hosts.host import HostNetwork, NetworkHost
from wanbed.testbed.hosts.host_environment import write_host_files
from wanbed.testbed.virtual_time import light_hosts


@pytest.fixture(params=HOST_KINDS)
def network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostNetwork]:
    # A setting of the whole kernel, which here is not a guest's.
    monkeypatch.setattr(light_hosts, "use_the_same_addresses", lambda: None)
    made = HOST_KINDS[request.param]()
    yield made
    made.stop()


@pytest.fixture
def host(network: HostNetwork, tmp_path: Path) -> NetworkHost:
    made = network.add("east-0", "wb-test")
    made.configure(write_host_files(tmp_path / "etc", "10.9.0.2 west-0\n"), "10.9.0.1", {})
    return made


def said(host: NetworkHost, script: str) -> str:
    process = host.spawn(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    output: str = process.communicate(timeout=30)[0]
    return output.strip()


def test_a_program_sees_the_hosts_name_its_names_and_the_testbeds_mark(host: NetworkHost) -> None:
    assert said(host, f"hostname; cat /etc/hosts; echo ${MARKER}").split("\n") == [
        "east-0",
        "10.9.0.2 west-0",
        "wb-test",
    ]
    assert "west-0" not in Path("/etc/hosts").read_text()


def test_a_program_asks_its_own_host_for_other_names(host: NetworkHost) -> None:
    machine = Path("/etc/resolv.conf").read_text()
    assert said(host, "cat /etc/resolv.conf") == "nameserver 127.0.0.1\noptions attempts:1 timeout:1" != machine.strip()
    assert Path("/etc/resolv.conf").read_text() == machine


def test_a_program_starts_in_the_given_folder_of_its_host_or_in_the_root(host: NetworkHost, tmp_path: Path) -> None:
    assert said(host, "pwd") == "/"
    process = host.spawn(["cat", "/etc/hosts", "hosts"], stdout=subprocess.PIPE, text=True, cwd=str(tmp_path / "etc"))
    assert process.communicate(timeout=30)[0] == 2 * "10.9.0.2 west-0\n"


def test_a_program_runs_in_the_hosts_network(host: NetworkHost) -> None:
    own = os.readlink("/proc/self/ns/net")
    assert said(host, "readlink /proc/self/ns/net") == f"net:[{os.stat(host.namespace).st_ino}]" != own


def test_a_module_runs_there_as_the_child_of_the_networks_process(
    network: HostNetwork, host: NetworkHost, tmp_path: Path
) -> None:
    # The rank waits for what it is to read, so that it is still there when its parent is looked up.
    config, output = tmp_path / "config.json", tmp_path / "output"
    os.mkfifo(config)
    with output.open("wb") as file:
        process = host.start_module("wanbed.workloads.rank", [str(config)], file.fileno(), {})
    parent = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent == network.module_parent
    config.write_text("nothing of the kind")
    assert process.wait(30) == 1
    assert output.read_text().startswith(f"wanbed rank: {config}: not JSON")


def test_a_process_by_which_others_join_is_in_the_hosts_network(host: NetworkHost) -> None:
    if host.shell_pid is not None:
        assert os.stat(f"/proc/{host.shell_pid}/ns/net").st_ino == os.stat(host.namespace).st_ino
