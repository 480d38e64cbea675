"""``kill -9`` of a command: nothing of it is left, and its neighbour never notices.

At random moments of every command: ``make reliability``.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray.machine_namespaces import links_outside
from tests.support.runner.wanbed_command import WANBED
from tests.support.testbed.processes import command_line
from tests.support.until import until_within
from wanbed import results
from wanbed.testbed.claims.processes import SUPERVISED, marked_processes
from wanbed.testbed.claims.registry import STATE_ROOT, claims
from wanbed.testbed.hosts.ping import ping
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.testbed import Testbed, bring_up

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 5ms, rate: 20Mbit}
compute: {forward: 5ms, backward: 10ms, activation: 256KiB}
training: {microbatches: 4, iterations: 400}
"""

NOT_DILATED = ("--set", "dilation=1")
"""The run measures no capacity first."""

PATIENCE_S = 150


class Killed(AbstractContextManager["Killed"]):
    """A command to kill, and what it has started until then.

    Its namespaces are held open until the end of the block, which goes on until nothing is left: the kernel would give
    their numbers to others' namespaces.
    """

    def __init__(self, *arguments: str | Path, **popen: Any) -> None:
        argv = [*WANBED, *map(str, arguments)]
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **popen}
        self.process = subprocess.Popen(argv, **streams)
        self.identifiers: set[str] = set()
        self._held: dict[str, int] = {}

    def look(self, source: str = "") -> list[str]:
        """Command lines of what runs on its testbeds with that text in what they are for."""
        assert self.process.poll() is None, "the command was over before it was killed"
        mine = [claim.record for claim in claims() if claim.record.owner_pid == self.process.pid]
        self.identifiers |= {record.identifier for record in mine}
        pids = [pid for record in mine if source in record.source for pid in marked_processes(record.identifier)]
        for pid in pids:
            self._hold(pid)
        return [command_line(pid) for pid in pids]

    def _hold(self, pid: int) -> None:
        # A process that is just ending is in none.
        with suppress(OSError):
            descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            number = f"net:[{os.fstat(descriptor).st_ino}]"
            if number in self._held or number == os.readlink("/proc/self/ns/net"):
                os.close(descriptor)
            else:
                self._held[number] = descriptor

    @property
    def namespaces(self) -> set[str]:
        return {*self._held}

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for descriptor in self._held.values():
            os.close(descriptor)

    def kill(self) -> None:
        self.look()
        self.process.kill()
        self.process.wait()

    def is_gone(self) -> bool:
        """Whether no process, namespace or record is left."""
        return not (
            any(marked_processes(identifier) for identifier in self.identifiers)
            or namespaces_of(every_process()) & self.namespaces
            or {claim.record.identifier for claim in claims()} & self.identifiers
            or any(
                draft.name.endswith(identifier) for draft in STATE_ROOT.glob(".*") for identifier in self.identifiers
            )
        )


until = partial(until_within, PATIENCE_S)


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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture
def run(file: Path, substrate: str, tmp_path: Path) -> Callable[..., Killed]:
    """Starts `wanbed run`."""
    return lambda *options: Killed("run", file, "--substrate", substrate, "--runs", tmp_path / "runs", *options)


def test_nothing_is_left_of_a_run_killed_while_its_network_comes_up(run: Callable[..., Killed]) -> None:
    links = links_outside()
    with run(*NOT_DILATED) as killed:
        time.sleep(1.3)
        killed.kill()
        until(killed.is_gone)
    assert links_outside() == links


@pytest.mark.parametrize(
    ("options", "source", "program"),
    [
        # Before training it is the same supervisor that ends the same kinds of processes.
        pytest.param((), "capacity measurement", "iperf3 --client", id="capacity measurement", marks=pytest.mark.soak),
        pytest.param(NOT_DILATED, "experiment.yaml", "iperf3 --client", id="calibration", marks=pytest.mark.soak),
        pytest.param(NOT_DILATED, "experiment.yaml", "wanbed.workloads.rank ", id="training"),
    ],
)
def test_nothing_is_left_of_a_run_killed_while_programs_run_on_its_hosts(
    *, options: tuple[str, ...], source: str, program: str, run: Callable[..., Killed], peer: Testbed, tmp_path: Path
) -> None:
    links = links_outside()
    with run(*options) as killed:
        until(lambda: any(program in line for line in killed.look(source)))
        killed.kill()
        assert killed.namespaces
        until(killed.is_gone)
    assert links_outside() == links
    assert ping(peer.spawn, "here-0", "there-0", 20).lost < 0.5
    for folder in (tmp_path / "runs").glob("*"):
        # Without a manifest it was killed between making the folder and writing into it.
        if (folder / "manifest.json").exists():
            assert not results.load(folder).complete


def test_children_of_a_killed_commands_programs_end_too_even_without_its_mark(file: Path) -> None:
    script = "env -i setsid sleep 300 & sleep 300 & echo up; wait"
    argv: list[str | Path] = ["exec", file, "east-0", "--no-wan", "--", "sh", "-c", script]
    with Killed(*argv, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.process.stdout is not None
        assert killed.process.stdout.readline() == "up\n"
        until(lambda: any("sleep 300" in line for line in killed.look()))
        killed.kill()
        killed.process.stdout.close()
        until(killed.is_gone)


def test_what_is_left_without_a_supervisor_is_named_by_the_next_command_and_removed_by_clean(
    file: Path, peer: Testbed
) -> None:
    with Killed("exec", file, "east-0", "--no-wan", "--", "sleep", "300") as killed:
        until(lambda: any(line.startswith("sleep") for line in killed.look()))
        (identifier,) = killed.identifiers
        (supervisor,) = marked_processes(identifier, SUPERVISED)
        os.kill(supervisor, signal.SIGKILL)
        killed.kill()
        following = [*WANBED, "exec", str(file), "east-0", "--no-wan", "--", "true"]
        reported = subprocess.run(following, check=True, capture_output=True, text=True, timeout=120).stderr
        (line,) = [line for line in reported.splitlines() if identifier in line]
        assert "`wanbed clean` removes" in line
        done = subprocess.run([*WANBED, "clean"], check=True, capture_output=True, text=True, timeout=120)
        assert killed.is_gone()
    removed, kept = (
        [line for line in done.stdout.splitlines() if line.startswith(said)] for said in ("removed", "left alone")
    )
    assert any(identifier in line for line in removed)
    assert any(peer.identifier in line for line in kept)
    assert ping(peer.spawn, "here-0", "there-0", 20).lost < 0.5
