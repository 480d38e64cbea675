import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.testbed.claims import registry
from wanbed.testbed.claims.processes import MARKER, marked_processes
from wanbed.testbed.claims.registry import Claim, claim
from wanbed.testbed.hosts import joining
from wanbed.testbed.hosts.joining import VISIT, JoinedTestbed, enter_host, join_testbed, record_hosts
from wanbed.testbed.network.topology import Topology

Started = list[tuple[list[str], dict[str, Any]]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """What would have been started."""
    calls: Started = []
    monkeypatch.setattr(joining.subprocess, "Popen", lambda argv, **popen: calls.append((argv, popen)))
    return calls


NETWORK = Topology((), 50_000, None, ())


def brought_up(root: Path, source: str, hosts: dict[str, int] | None = None, topology: Topology = NETWORK) -> Claim:
    ours = claim(source, root)
    record_hosts(ours.folder, topology, hosts or {"east-0": 41, "west-0": 42})
    return ours


def in_child(act: Callable[[], object]) -> None:
    def run() -> None:
        act()
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()


def test_a_testbed_is_found_by_what_it_is_for(tmp_path: Path) -> None:
    brought_up(tmp_path, "/elsewhere/exp.yaml")
    ours = brought_up(tmp_path, "/here/exp.yaml", {"east-0": 7})
    assert join_testbed("/here/exp.yaml", NETWORK, tmp_path) == JoinedTestbed(ours.record.identifier, {"east-0": 7})


def test_there_is_none_to_join_where_none_is_up(tmp_path: Path) -> None:
    assert join_testbed("/here/exp.yaml", NETWORK, tmp_path / "nowhere") is None
    brought_up(tmp_path, "/elsewhere/exp.yaml")
    assert join_testbed("/here/exp.yaml", NETWORK, tmp_path) is None


def test_the_latest_of_several_is_joined(tmp_path: Path) -> None:
    early, middle = brought_up(tmp_path, "exp.yaml"), brought_up(tmp_path, "exp.yaml")
    early.release()
    latest = brought_up(tmp_path, "exp.yaml")
    assert latest.record.slot < middle.record.slot
    joined = join_testbed("exp.yaml", NETWORK, tmp_path)
    assert joined is not None
    assert joined.identifier == latest.record.identifier


def test_a_testbed_whose_owner_is_gone_is_not_joined(tmp_path: Path) -> None:
    in_child(lambda: brought_up(tmp_path, "exp.yaml"))
    assert len(registry.claims(tmp_path)) == 1
    assert join_testbed("exp.yaml", NETWORK, tmp_path) is None


def test_a_testbed_of_the_same_file_with_another_network_is_not_joined(tmp_path: Path) -> None:
    brought_up(tmp_path, "exp.yaml", topology=replace(NETWORK, intra_latency_ns=70_000))
    assert join_testbed("exp.yaml", NETWORK, tmp_path) is None


def test_a_testbed_on_its_way_up_is_not_joined(tmp_path: Path) -> None:
    claim("exp.yaml", tmp_path)
    assert join_testbed("exp.yaml", NETWORK, tmp_path) is None


def test_program_enters_its_hosts_namespaces_with_the_testbeds_identifier(started: Started) -> None:
    JoinedTestbed("wb-1", {"east-0": 41, "west-0": 42}).spawn("west-0", ["ping", "-c", "1", "east-0"], text=True)
    ((argv, popen),) = started
    assert argv[:5] == ["nsenter", "--target=42", "--net", "--mount", "--uts"]
    assert argv[5:] == ["--wdns=/", "--", "ping", "-c", "1", "east-0"]
    environment = popen.pop("env")
    assert environment.pop(VISIT).startswith("wj-")
    assert environment == {**os.environ, MARKER: "wb-1"}
    assert popen == {"text": True}


def test_a_program_enters_the_user_namespace_of_a_testbed_that_has_its_own(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces = {"/proc/self/ns/user": "user:[1]", "/proc/41/ns/user": "user:[2]"}
    monkeypatch.setattr(os, "readlink", namespaces.__getitem__)
    enter_host(41, "wb-1", ["pwd"])
    ((argv, _),) = started
    assert argv[:5] == ["nsenter", "--target=41", "--user", "--preserve-credentials", "--net"]


def test_program_starts_in_the_given_folder_of_its_host(started: Started) -> None:
    enter_host(41, "wb-1", ["pwd"], cwd="/home/me/my runs")
    ((argv, popen),) = started
    assert argv[-3:] == ["--wdns=/home/me/my runs", "--", "pwd"]
    assert "cwd" not in popen, "nsenter would open it outside the host's mounts"


def test_programs_of_a_visit_end_with_it_and_others_stay() -> None:
    one, other = JoinedTestbed("wb-1", {}), JoinedTestbed("wb-1", {})
    assert one == other
    with subprocess.Popen(["sleep", "60"], env={**os.environ, VISIT: other.visit}) as staying:
        with one.programs_end_here():
            ending = subprocess.Popen(["sh", "-c", "sleep 60; true"], env={**os.environ, VISIT: one.visit})
        assert ending.wait() == -signal.SIGKILL
        assert marked_processes(one.visit, VISIT) == []
        assert staying.poll() is None
        staying.kill()


def test_given_environment_replaces_ours_but_keeps_the_identifier(started: Started) -> None:
    enter_host(41, "wb-1", ["env"], env={"PATH": "/bin"})
    ((_, popen),) = started
    assert popen["env"] == {"PATH": "/bin", MARKER: "wb-1"}


def test_a_host_that_the_testbed_does_not_have_is_refused_with_those_it_has(started: Started) -> None:
    with pytest.raises(
        InputError, match=r"^host 'east-1' is not on the testbed wb-1, which is up with east-0, west-0: "
    ):
        JoinedTestbed("wb-1", {"east-0": 41, "west-0": 42}).spawn("east-1", ["true"])
    assert started == []


def test_a_program_on_a_joined_host_sees_what_the_hosts_own_do(tmp_path: Path, started: Started) -> None:
    ours = claim("exp.yaml", tmp_path)
    record_hosts(ours.folder, NETWORK, {"east-0": 41, "west-0": 42}, {"west-0": {"CUDA_VISIBLE_DEVICES": "GPU-1"}})
    joined = join_testbed("exp.yaml", NETWORK, tmp_path)
    assert joined is not None
    joined.spawn("west-0", ["true"])
    ((_, popen),) = started
    assert popen["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-1"
