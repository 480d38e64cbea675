"""Name the modules that are compiled, and the hash of their sources."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

CORE_MODULES = (
    "runner.simulator.event_queue",
    "runner.simulator.network.alike",
    "runner.simulator.network.changing.changing_channel",
    "runner.simulator.network.shared_capacity",
    "runner.simulator.network.shared_channel",
    "runner.simulator.network.stream",
    "runner.simulator.network.transfers",
    "runner.simulator.rings.bucket_sum",
    "runner.simulator.rings.ring_all_reduce",
    "runner.simulator.rings.rings",
    "runner.simulator.rings.shared_ring",
    "runner.simulator.rings.sparse_ring",
    "runner.simulator.span_rows",
    "runner.simulator.training.rank_state",
    "runner.simulator.training.training",
    "runner.simulator.training.training_loop",
    "runner.tcp.channel",
    "testbed.network.flow_model.congestion_window",
    "testbed.network.flow_model.fair_share",
    "testbed.network.flow_model.line",
    "testbed.network.flow_model.striping",
    "testbed.network.flow_model.window",
    "workloads.schedules.atlas",
    "workloads.schedules.data_parallel",
    "workloads.schedules.eager_one_forward_one_backward",
    "workloads.schedules.fixed_order",
    "workloads.schedules.gpipe",
    "workloads.schedules.one_forward_one_backward",
    "workloads.schedules.planning.cell_simulation",
    "workloads.schedules.planning.planned_schedule",
    "workloads.schedules.schedule",
    "workloads.schedules.varuna",
    "workloads.schedules.zero_bubble",
)
"""They are compiled together: all of a process are compiled, or none. What they import besides stays interpreted.

A module that holds only data, and that users write or processes send to each other, is better left out.
"""

ANALYSED_MODULES = ("ground.compiled_core.own_subclasses",)
"""Modules that are not compiled, but that say how others are."""

BUILT_AS = "2"
"""Changes when the way of building changes, so that what was built in another way is not used."""

ROOT = Path(__file__).resolve().parents[2]
"""The folder of wanbed's packages."""


def source_path(module: str, root: Path = ROOT) -> Path:
    """Return the source file of a module below ``root``."""
    return root.joinpath(*module.split(".")).with_suffix(".py")


def core_sources(root: Path = ROOT) -> dict[str, bytes]:
    """Return the source of every module that is compiled or analysed. Raise OSError if one cannot be read."""
    return {module: source_path(module, root).read_bytes() for module in (*CORE_MODULES, *ANALYSED_MODULES)}


def core_key(sources: Mapping[str, bytes]) -> str:
    """Return the name of the core that is built from these sources for this Python: a hash of both."""
    key = sha256(f"{BUILT_AS} {EXTENSION_SUFFIXES[0]}".encode())
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
