"""Lease the machines of a run, all at the same time."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager

from wanbed.testbed.rack.driver.inventory import naming
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.machine_handle import MachineHandle, MachineLostError
from wanbed.testbed.rack.orders import MachineOrder


@contextmanager
def leased(machines: Sequence[MachineHandle], orders: Mapping[str, MachineOrder]) -> Iterator[dict[str, RackMachine]]:
    """Lease every machine, all at the same time, and take all down at the end of the block.

    If one goes meanwhile, the others begin to end their parts at once, all at the same time.
    """
    up: list[RackMachine] = []

    def end_others(gone: RackMachine, fault: MachineLostError) -> None:
        for each in [*up]:
            if each is not gone:
                each.end_with(fault)

    with ExitStack() as ending, ThreadPoolExecutor(max_workers=len(machines)) as pool:

        def lease(machine: MachineHandle) -> RackMachine:
            with naming(machine.name):
                # Followed from here on: its lease would not wait for a machine that takes longer.
                held = RackMachine(machine, machine.call("bring_up", orders[machine.name]), end_others)
            up.append(held)
            ending.callback(held.take_down)
            ending.callback(held.close)
            return held

        pending = [pool.submit(lease, machine) for machine in machines]
        wait(pending)
        yield {machine.name: each.result() for machine, each in zip(machines, pending, strict=True)}
