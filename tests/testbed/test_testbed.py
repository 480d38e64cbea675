"""Bring-up and shutdown of a testbed without root: its parts only record their calls."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.until import until_within
from wanbed.ground.errors import MissingError
from wanbed.ground.strict_model import parse_model
from wanbed.testbed import testbed as module
from wanbed.testbed.claims.registry import claims
from wanbed.testbed.hosts.emulated_hosts import EmulatedNetwork
from wanbed.testbed.hosts.host_environment import HOST_PROGRAMS
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.substrate.offer import KERNEL, Offer
from wanbed.testbed.testbed import MAX_TRIM_NS, Testbed, bring_up, wan_delay_trim_ns

DOCUMENT = {"datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}], "wan": {"latency": "1ms"}}


@pytest.fixture
def topology() -> Topology:
    return resolve_topology(parse_model(TopologySpec, DOCUMENT, "test"))


@pytest.fixture(autouse=True)
def _able_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "choose_substrate", lambda _: Offer(KERNEL, True, "it was asked for"))
    monkeypatch.setattr(shutil, "which", lambda program, **_: f"/usr/bin/{program}")


@contextmanager
def parts(
    monkeypatch: pytest.MonkeyPatch, start: BaseException | None = None, stop: BaseException | None = None
) -> Iterator[list[str]]:
    """Build nothing; yield the recorded calls, and the faults to raise."""
    done: list[str] = []

    def note(step: str, fault: BaseException | None) -> None:
        done.append(step)
        if fault is not None:
            raise fault

    with monkeypatch.context() as patch:
        patch.setattr(Testbed, "_start", lambda *_, awake: note("start", start))
        patch.setattr(Testbed, "_stop", lambda _: note("stop", stop))
        yield done


@pytest.mark.parametrize("program", HOST_PROGRAMS)
def test_missing_program_is_reported_with_its_package_before_bring_up(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda asked, **_: None if asked == program else f"/usr/bin/{asked}")
    with (
        pytest.raises(MissingError, match=f"^{program} is not installed: apt-get install {HOST_PROGRAMS[program]}$"),
        bring_up(topology, root=tmp_path / "state"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_netem_is_reported_before_anything_is_made(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: str) -> Offer:
        raise MissingError("no netem anywhere")

    monkeypatch.setattr(module, "choose_substrate", none)
    with pytest.raises(MissingError), bring_up(topology, root=tmp_path / "state"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_testbed_is_on_record_for_as_long_as_it_is_up(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with parts(monkeypatch):
        with bring_up(topology, source="exp.yaml", root=tmp_path) as testbed:
            (ours,) = claims(tmp_path)
            assert (ours.record.identifier, ours.record.source) == (testbed.identifier, "exp.yaml")
            assert testbed.folder == ours.folder
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("awake", [False, True])
def test_processors_stay_awake_for_as_long_as_a_testbed_that_wants_it_is_up(
    awake: bool, topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []

    @contextmanager
    def noted() -> Iterator[bool]:
        held.append(True)
        yield True
        held.pop()

    monkeypatch.setattr(module, "prompt_wakeups", noted)
    with parts(monkeypatch):
        with bring_up(topology, root=tmp_path, awake=awake):
            assert held == [True] * awake
        assert held == []


def test_addresses_and_plan_are_those_of_the_slot(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with parts(monkeypatch), bring_up(topology, root=tmp_path), bring_up(topology, root=tmp_path) as second:
        assert second.addresses.slot == 2
        assert second.gateway_plan.gateways[0].host_ports[0].host_address == "10.2.0.2"


@pytest.mark.parametrize("fault", [RuntimeError("half way"), KeyboardInterrupt(), SystemExit(143)])
def test_a_testbed_that_fails_on_its_way_up_is_taken_down(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    with (
        parts(monkeypatch, start=fault) as done,
        pytest.raises(type(fault)),
        bring_up(topology, root=tmp_path),
    ):
        pass
    assert done == ["start", "stop"]
    assert list(tmp_path.iterdir()) == []


def test_a_fault_while_it_is_up_takes_it_down(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        parts(monkeypatch) as done,
        pytest.raises(ZeroDivisionError),
        bring_up(topology, root=tmp_path),
    ):
        raise ZeroDivisionError
    assert done == ["start", "stop"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", [RuntimeError("stuck"), KeyboardInterrupt(), SystemExit(143)])
def test_a_shutdown_that_fails_is_left_to_the_supervisor(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    with (
        parts(monkeypatch, stop=fault),
        pytest.raises(type(fault)),
        bring_up(topology, root=tmp_path) as testbed,
    ):
        assert [each.record.identifier for each in claims(tmp_path)] == [testbed.identifier]
    until_within(60, lambda: claims(tmp_path) == [])


@pytest.mark.parametrize("stuck", ["substrate", "network"])
def test_every_part_is_taken_down_even_where_another_cannot_be(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    done: list[str] = []

    def stop(part: str) -> None:
        done.append(part)
        if part == stuck:
            raise RuntimeError(part)

    @contextmanager
    def gateways() -> Iterator[None]:
        yield
        stop("substrate")

    monkeypatch.setattr(Testbed, "_start", lambda testbed, *_, awake: testbed._parts.enter_context(gateways()))
    monkeypatch.setattr(EmulatedNetwork, "stop", lambda _: stop("network"))
    monkeypatch.setattr(module, "end_processes", done.append)
    with pytest.raises(RuntimeError, match=stuck), bring_up(topology, root=tmp_path) as testbed:
        pass
    assert done == [testbed.identifier, "substrate", "network"]


def test_a_testbed_that_cannot_even_be_laid_out_gives_its_slot_back(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no plan")

    monkeypatch.setattr(module, "plan_gateways", refuse)
    with pytest.raises(RuntimeError, match="no plan"), bring_up(topology, root=tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("idle_rtt_ms", "trim_ns"), [(80.0, 0), (80.4, 200_000), (79.9, 0), (81.9, 950_000), (85.0, MAX_TRIM_NS)]
)
def test_wan_delay_trim_is_half_the_excess_of_the_idle_rtt_within_a_bound(idle_rtt_ms: float, trim_ns: int) -> None:
    assert wan_delay_trim_ns(idle_rtt_ms, 80_000_000) == trim_ns
