"""Name the modules that are compiled, and the hash of their sources."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

CORE_MODULES = (
    "wanbed.flow.channel",
    "wanbed.flow.congestion_window",
    "wanbed.flow.event_queue",
    "wanbed.flow.line",
    "wanbed.flow.number_rows",
    "wanbed.flow.packets.congestion_control",
    "wanbed.flow.packets.packet",
    "wanbed.flow.packets.receiver",
    "wanbed.flow.packets.sender",
    "wanbed.flow.packets.tick",
    "wanbed.flow.packets.way",
    "wanbed.flow.shared_capacity",
    "wanbed.flow.shared_channel",
    "wanbed.flow.stream",
    "wanbed.flow.striping",
    "wanbed.flow.window",
    "wanbed.runner.simulator.action_table",
    "wanbed.runner.simulator.channels.packet_channel",
    "wanbed.runner.simulator.channels.relayed_transfers",
    "wanbed.runner.simulator.channels.transfers",
    "wanbed.runner.simulator.rings.ring_all_reduce",
    "wanbed.runner.simulator.rings.rings",
    "wanbed.runner.simulator.simulated_ranks",
    "wanbed.runner.simulator.training",
    "wanbed.testbed.relay.lanes",
    "wanbed.workloads.schedules.planning.cell_simulation",
    "wanbed.workloads.schedules.planning.ordered_cell",
    "wanbed.workloads.schedules.planning.plan_run",
    "wanbed.workloads.schedules.planning.shortening",
    "wanbed.workloads.schedules.planning.split_planner",
    "wanbed.workloads.schedules.planning.stage_order",
)
"""They are compiled together: all of a process are compiled, or none. What they import besides stays interpreted.

A module that holds only data, and that users write or processes send to each other, is better left out.
"""

ANALYSED_MODULES = ("wanbed.ground.compiled_core.native_numbers",)
"""Modules that are not compiled, but that say how others are."""

_BUILT_AS = "3"
"""Changes when the way of building changes, so that what was built in another way is not used."""

ROOT = Path(__file__).parents[3]
"""The folder that has the package ``wanbed``."""


def source_path(module: str, root: Path = ROOT) -> Path:
    """Return the source file of a module below ``root``."""
    return root.joinpath(*module.split(".")).with_suffix(".py")


def core_sources(root: Path = ROOT) -> dict[str, bytes]:
    """Return the source of every module that is compiled or analysed. Raise OSError if one cannot be read."""
    return {module: source_path(module, root).read_bytes() for module in (*CORE_MODULES, *ANALYSED_MODULES)}


@cache
def installed_arrays() -> str:
    """Return the version of the compiler's arrays, which compiled code loads; "none" if they are not installed."""
    found = PathFinder.find_spec("librt")
    for folder in (found and found.submodule_search_locations) or ():
        for record in Path(folder).parent.glob("librt-*.dist-info"):
            return record.stem
    return "none"


def core_key(sources: Mapping[str, bytes]) -> str:
    """Return the name of the core that is built from these sources for this Python and its arrays: a hash of all."""
    key = sha256(f"{_BUILT_AS} {EXTENSION_SUFFIXES[0]} {installed_arrays()}".encode())
    for module, source in sources.items():
        key.update(f" {module} {len(source)} ".encode())
        key.update(source)
    return key.hexdigest()[:16]


@cache
def present_key() -> str | None:
    """Return the key of the sources that this process runs, None if they cannot be read."""
    try:
        return core_key(core_sources())
    except OSError:
        return None
