"""``kill -9`` of a run at any moment, then ``wanbed clean``: nothing of it is left, and its neighbour never notices."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import results
from testbed.claims.processes import marked_processes
from testbed.claims.registry import STATE_ROOT, claims
from testbed.hosts.ping import ping
from testbed.network.topology import Topology
from testbed.testbed import Testbed, bring_up

# The kernel numbers namespaces anew with the numbers of those that have gone: other tests' would look like the killed.
pytestmark = pytest.mark.measures

WANBED = [sys.executable, "-m", "runner.cli.command_line"]

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 2}, {name: west, hosts: 2}]
  wan: {latency: 5ms, rate: 200Mbit}
compute: {forward: 5ms, backward: 10ms, activation: 256KiB}
training: {microbatches: 4, iterations: 40}
dilation: 1
"""

MOMENTS_S = (0.6, 0.9, 1.3, 1.8, 2.4, 3.0, 4.0, 5.0, 7.0, 14.0)
"""From before anything exists, through the guest's boot and the calibration, into the first trial."""


@pytest.fixture(scope="module")
def peer(substrate: str, resolved: Callable[[dict[str, Any]], Topology]) -> Iterator[Testbed]:
    """Another testbed, up all the while."""
    document = {
        "datacenters": [{"name": "here", "hosts": 1}, {"name": "there", "hosts": 1}],
        "wan": {"latency": "10ms"},
    }
    with bring_up(resolved(document), substrate=substrate, source="neighbour") as testbed:
        yield testbed


def namespaces_of(pids: Iterable[int | str]) -> set[str]:
    """The network namespaces that processes are in, other than this one's own."""
    namespaces = set()
    for pid in pids:
        # A process that is just ending is in none.
        with suppress(OSError):
            namespaces.add(os.readlink(f"/proc/{pid}/ns/net"))
    return namespaces - {os.readlink("/proc/self/ns/net")}


def every_process() -> list[str]:
    return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def clean() -> None:
    subprocess.run([*WANBED, "clean"], check=True, capture_output=True, timeout=60)


def test_nothing_is_left_of_a_run_killed_at_any_of_ten_moments(peer: Testbed, substrate: str, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT)
    links = set(os.listdir("/sys/class/net"))
    caught: list[str] = []
    with_namespaces = 0
    for moment_s in MOMENTS_S:
        argv = [*WANBED, "run", str(file), "--substrate", substrate, "--runs", str(tmp_path / "runs")]
        run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moment_s)
        assert run.poll() is None, "the run was over before it was killed"
        killed = [claim.record.identifier for claim in claims() if claim.record.owner_pid == run.pid]
        namespaces = namespaces_of(pid for identifier in killed for pid in marked_processes(identifier))
        caught += killed
        with_namespaces += bool(namespaces)
        run.kill()
        run.wait()
        clean()
        assert not any(marked_processes(identifier) for identifier in caught)
        assert not {claim.record.identifier for claim in claims()} & set(caught)
        assert not namespaces_of(every_process()) & namespaces
        assert set(os.listdir("/sys/class/net")) == links
        assert not any(draft.name.endswith(identifier) for draft in STATE_ROOT.glob(".*") for identifier in caught)
    assert len(caught) >= len(MOMENTS_S) // 2, "most moments must have caught a testbed that was there"
    assert with_namespaces >= len(MOMENTS_S) // 2, "most moments must have caught namespaces"
    assert ping(peer.spawn, "here-0", "there-0", 20).lost < 0.5
    for folder in (tmp_path / "runs").iterdir():
        # Without a manifest it was killed between making the folder and writing into it.
        if (folder / "manifest.json").exists():
            assert not results.load(folder).complete


def test_clean_says_whom_it_leaves_alone(peer: Testbed) -> None:
    done = subprocess.run([*WANBED, "clean"], check=True, capture_output=True, text=True, timeout=60)
    assert peer.identifier in done.stdout
    assert "left alone" in done.stdout
    assert ping(peer.spawn, "here-0", "there-0", 20).lost < 0.5
