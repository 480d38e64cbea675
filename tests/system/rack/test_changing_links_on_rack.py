"""Links that change over several machines, which namespaces of this kernel play: only trunks, for want of netem."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rack.changing_driver import MACHINE_OF, RATES_MBIT, changing_topology
from tests.support.rack.guests.guest_machine import ROOT
from tests.support.rack.rack_machine import RackMachine, namespace_machines
from tests.support.until import until_within
from wanbed.module_process import module_command
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.claims.registry import claims
from wanbed.testbed.kernel.course_run import AppliedChange
from wanbed.testbed.rack.machine_handle import RunOrder
from wanbed.testbed.rack.rack_testbed import RackPlacement, RackTestbed, rack_testbed

LEASE_S = 3.0
PERIOD_NS = 10**9


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RackMachine]]:
    with namespace_machines(3, tmp_path_factory.mktemp("machines"), lease_s=LEASE_S, trunks=True) as running:
        yield running


@pytest.fixture
def rack(machines: list[RackMachine], tmp_path: Path) -> Iterator[RackTestbed]:
    handles = [machine.handle for machine in machines]
    placement = RackPlacement(MACHINE_OF)
    with rack_testbed(changing_topology(), handles, placement, RunOrder("changing"), root=tmp_path) as testbed:
        yield testbed


def trunks_mbit(rack: RackTestbed) -> dict[str, float]:
    """The rate of each trunk, by machine, as its kernel has it."""
    held = rack.read_qdiscs()
    return {
        port.partition(" ")[0]: qdiscs["htb_trunk_bytes_per_s"] * 8e-6
        for port, qdiscs in held.items()
        if port.partition(" ")[2].startswith("wan")
    }


def test_every_machine_holds_its_part_of_a_trunk_as_it_is_at_any_time(rack: RackTestbed) -> None:
    assert rack.changing is not None
    for step, rate_mbit in enumerate(RATES_MBIT):
        rack.changing.hold(step * PERIOD_NS)
        # The trunk to the west is divided between two machines; on the way back one machine sends.
        assert trunks_mbit(rack) == {"space0": rate_mbit / 2, "space1": rate_mbit / 2, "space2": rate_mbit}
    rack.changing.hold(0)


def test_changes_are_made_on_every_machine_and_recorded_on_the_drivers_time_line(rack: RackTestbed) -> None:
    assert rack.changing is not None
    rack.begin_trial(time.monotonic_ns())
    begin_ns = rack.changing.begin()
    last_ns = begin_ns + (len(RATES_MBIT) - 1) * PERIOD_NS
    until_within(60, lambda: time.monotonic_ns() > last_ns and set(trunks_mbit(rack).values()) == {RATES_MBIT[-1], 25})
    record = rack.changing.end()
    ended_ns = time.monotonic_ns()
    assert record.begin_ns == begin_ns
    assert [change[:3] for change in record.changes] == [
        AppliedChange(*ends, step * PERIOD_NS, None)[:3]
        for step in range(1, len(RATES_MBIT))
        for ends in (("east", "west"), ("west", "east"))
    ]
    for change in record.changes:
        # They have this machine's clock: what is stated is all that a change can seem too early.
        assert change.applied_ns is not None
        assert change.due_ns - record.clock_error_ns <= change.applied_ns <= ended_ns - begin_ns
    assert 0 < record.clock_error_ns < 10**9
    assert trunks_mbit(rack) == {"space0": 50, "space1": 50, "space2": 100}


@pytest.mark.soak
def test_of_a_driver_that_was_killed_while_links_change_nothing_is_left(
    machines: list[RackMachine], tmp_path: Path
) -> None:
    places = json.dumps([machine.place for machine in machines])
    driver = subprocess.Popen(
        module_command("tests.support.rack.changing_driver", places, str(tmp_path)),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == b"changing\n"
    held = [each.record.identifier for machine in machines for each in claims(machine.claims)]
    assert len(held) == 3
    driver.kill()
    driver.wait()
    driver.stdout.close()
    until_within(LEASE_S + 20, lambda: not any(claims(machine.claims) for machine in machines))
    assert not any(marked_processes(identifier) for identifier in held)
