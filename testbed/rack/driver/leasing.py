"""Read what the machines of a rack are before anything is made on them, and lease them, all at the same time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

from wanbed.ground.errors import MissingError, WanbedError
from wanbed.testbed.network.addressing import MAX_SLOTS
from wanbed.testbed.network.shared_rate import Timers
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.machine.facts import MachineFacts, sources_hash
from wanbed.testbed.rack.machine_handle import CalledMachine, MachineHandle, MachineLostError, MachineOrder
from wanbed.testbed.rack.machine_plan import WIREGUARD, Underlay

Log = Callable[[str], None]

_USER_MODE_LINUX = "UML"
"""The processor that a User-Mode Linux kernel names."""


@contextmanager
def naming(machine: str) -> Iterator[None]:
    """Let an expected error that the block raises name the machine, unless it does so already."""
    try:
        yield
    except WanbedError as fault:
        if machine in str(fault):
            raise
        raise type(fault)(f"machine {machine}: {fault}") from None


def ask_all(machines: Sequence[CalledMachine], method: str, *arguments: Any) -> list[Any]:
    """Call a method of every machine at the same time and return what each returned. An error of one names it."""
    pending = [machine.start_call(method, *arguments) for machine in machines]
    found = []
    for machine, each in zip(machines, pending, strict=True):
        with naming(machine.name):
            found.append(each.result())
    return found


def read_facts(machines: Sequence[MachineHandle]) -> dict[str, MachineFacts]:
    """Return the facts of every machine by its name."""
    return dict(zip((machine.name for machine in machines), ask_all(machines, "facts"), strict=True))


def check_alike(found: Mapping[str, MachineFacts], log: Log) -> None:
    """Log in what machines differ. Raise MissingError for a machine whose wanbed is not this one."""
    for name, facts in found.items():
        if facts.sources != sources_hash():
            raise MissingError(
                f"machine {name}: its wanbed {facts.version} ({facts.sources}) is not this one ({sources_hash()}): "
                "install the same on every machine"
            )
    for what, of in _COMPARED.items():
        values: dict[str, list[str]] = {}
        for name, facts in found.items():
            values.setdefault(of(facts), []).append(name)
        if len(values) > 1:
            listed = "; ".join(f"{value} on {', '.join(names)}" for value, names in values.items())
            log(f"the machines differ in their {what}: {listed}")


def check_lacks_nothing(found: Mapping[str, MachineFacts]) -> None:
    """Raise MissingError for the first thing that hosts need and a machine lacks."""
    for name, facts in found.items():
        if facts.missing:
            raise MissingError(f"machine {name}: {facts.missing[0]}")


def underlays_of(
    found: Mapping[str, MachineFacts], overlay: str, keys: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Underlay]:
    """Return each machine's card, with its public key of ``keys``. Raise MissingError if a machine's is not known."""
    underlays = {}
    for name, facts in found.items():
        if facts.card is None:
            raise MissingError(f"machine {name}: no card has its address: give the address of one that others reach")
        underlays[name] = Underlay(
            facts.card.address, facts.card.interface, facts.card.mtu, overlay, keys.get(name, "")
        )
    return underlays


def public_keys(machines: Sequence[MachineHandle], overlay: str) -> dict[str, str]:
    """Let every machine draw keys for an encrypted overlay, and return the public ones; of another overlay none.

    Raise MissingError, naming the machine, if one lacks the programs.
    """
    if overlay != WIREGUARD:
        return {}
    return dict(zip((machine.name for machine in machines), ask_all(machines, "public_key"), strict=True))


def free_slot(machines: Sequence[MachineHandle]) -> int:
    """Return an address slot that no testbed of any of these machines has. Raise MissingError if there is none."""
    used = set().union(*ask_all(machines, "used_slots"))
    free = [slot for slot in range(1, MAX_SLOTS + 1) if slot not in used]
    if not free:
        raise MissingError(f"the machines have no free testbed slot of {MAX_SLOTS} in common: end some testbeds there")
    return free[0]


def timers_of(found: Mapping[str, MachineFacts]) -> Timers:
    """Return the clock that wakes the machines' qdiscs: that of the gateway guest if one is User-Mode Linux too."""
    return Timers.GUEST if any(facts.cpu == _USER_MODE_LINUX for facts in found.values()) else Timers.KERNEL


def _card(facts: MachineFacts, what: str) -> str:
    return "none" if facts.card is None else str(getattr(facts.card, what) or "unknown")


_COMPARED: Mapping[str, Callable[[MachineFacts], str]] = {
    "kernel": lambda facts: facts.kernel,
    "processor": lambda facts: f"{facts.cores} x {facts.cpu}",
    "card's driver": lambda facts: _card(facts, "driver"),
    "card's speed": lambda facts: _card(facts, "speed_bps"),
    "card's MTU": lambda facts: _card(facts, "mtu"),
    "GPU driver": lambda facts: ", ".join(sorted({str(gpu.get("driver")) for gpu in facts.gpus})) or "none",
}


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
