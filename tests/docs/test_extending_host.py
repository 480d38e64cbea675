"""The page's kind of host, taken from the page and used: programs really run, and are recorded."""

import json
import os
import subprocess
from collections.abc import Mapping
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Unpack

import pytest

from tests.docs.pages import DOCS, blocks
from tests.testbed.hosts.conformity import differences
from wanbed.module_process import module_command
from wanbed.testbed import host_kinds
from wanbed.testbed.host_kinds import HOST_KINDS, host_network
from wanbed.testbed.hosts.emulated_hosts import EmulatedNetwork
from wanbed.testbed.hosts.host import HostNetwork, HostProcess, NetworkHost, Program, SpawnOptions
from wanbed.testbed.hosts.process_group import ProcessGroup

CLASSES, REGISTRATION = blocks(DOCS / "extending.md", "python", "A kind of host")


class PlainHost:
    """A host that is this machine: no root is needed."""

    namespace = "/proc/self/ns/net"
    shell_pid = None

    def configure(self, etc: Path, address: str, environment: Mapping[str, str]) -> None:
        self.configured = etc, address, environment

    def spawn(self, argv: list[str], **popen: Unpack[SpawnOptions]) -> "subprocess.Popen[Any]":
        return subprocess.Popen(argv, **popen)

    def start_module(
        self, module: str, arguments: list[str], output: int, environment: Mapping[str, str]
    ) -> HostProcess:
        whole = {**os.environ, **environment}
        return Program(module_command(module, *arguments), env=whole, stdout=output, stderr=output)


class PlainNetwork:
    def __init__(self) -> None:
        self.hosts: dict[str, PlainHost] = {}

    @property
    def module_parent(self) -> int:
        return os.getpid()

    def add(self, name: str, marker: str) -> PlainHost:
        assert marker == "wb-1"
        return self.hosts.setdefault(name, PlainHost())

    def stop(self) -> None:
        self.hosts.clear()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module that the page shows."""
    file = tmp_path_factory.mktemp("page") / "recorded_hosts.py"
    file.write_text(CLASSES)
    specification = spec_from_file_location("recorded_hosts", file)
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def hosts(page: ModuleType, tmp_path: Path) -> HostNetwork:
    network: HostNetwork = page.RecordedNetwork(PlainNetwork, tmp_path / "started.jsonl")
    return network


def recorded(folder: Path) -> list[tuple[str, list[str]]]:
    lines = map(json.loads, (folder / "started.jsonl").read_text().splitlines())
    return [(line["host"], line["command"]) for line in lines]


def test_the_page_names_the_files_in_which_it_goes() -> None:
    assert CLASSES.startswith("# testbed/hosts/recorded_hosts.py\n")
    assert REGISTRATION.startswith("# testbed/host_kinds.py\n")


def test_a_program_runs_on_the_host_and_is_recorded(hosts: HostNetwork, tmp_path: Path) -> None:
    host = hosts.add("east-0", "wb-1")
    said = host.spawn(["sh", "-c", "echo here; exit 3"], stdout=subprocess.PIPE, text=True)
    assert said.communicate(timeout=30) == ("here\n", None)
    assert said.returncode == 3
    assert recorded(tmp_path) == [("east-0", ["sh", "-c", "echo here; exit 3"])]


def test_a_module_runs_on_the_host_within_a_group_and_its_end_is_seen(hosts: HostNetwork, tmp_path: Path) -> None:
    host = hosts.add("west-0", "wb-1")
    with ProcessGroup() as group:
        start = partial(host.start_module, "wanbed.workloads.rank", [], environment={})
        group.start(start, tmp_path / "words")
        assert group.first_failure(partial(group.wait_for_any, 30)) == 0
        assert group.statuses() == [1]
        assert group.stderr_tail(0) == "wanbed rank: usage: python -m wanbed.workloads.rank CONFIG.json"
    assert recorded(tmp_path) == [("west-0", ["wanbed.workloads.rank"])]


def test_all_else_is_left_to_the_other_kind(page: ModuleType, tmp_path: Path) -> None:
    plain = PlainNetwork()
    hosts = page.RecordedNetwork(lambda: plain, tmp_path / "started.jsonl")
    host = hosts.add("east-0", "wb-1")
    host.configure(tmp_path, "10.1.0.2", {"A": "1"})
    assert plain.hosts["east-0"].configured == (tmp_path, "10.1.0.2", {"A": "1"})
    assert (host.namespace, host.shell_pid, hosts.module_parent) == ("/proc/self/ns/net", None, os.getpid())
    hosts.stop()
    assert plain.hosts == {}


def test_the_pages_classes_have_what_the_protocols_ask_for(page: ModuleType) -> None:
    assert differences(page.RecordedHost, NetworkHost) == []
    assert differences(page.RecordedNetwork, HostNetwork) == []


def test_the_pages_line_makes_it_the_kind_that_a_testbed_takes(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {**vars(host_kinds), "RecordedNetwork": page.RecordedNetwork}
    exec(REGISTRATION, names)  # noqa: S102 - the line of our own page
    assert names["HOST_KINDS"] == {**HOST_KINDS, "real": page.RecordedNetwork}
    monkeypatch.setattr(host_kinds, "HOST_KINDS", names["HOST_KINDS"])
    network = host_network()
    assert isinstance(network, page.RecordedNetwork)
    assert isinstance(network._network, EmulatedNetwork)
