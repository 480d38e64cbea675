"""Draw datacenters and the placement of stages in them, including placements whose rings cross the WAN."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wanbed.runner.validation.random.dice import Dice

MOST_HOSTS, MOST_STAGES, MOST_PIPELINES = 12, 6, 4
MOST_REPLICAS = 6
"""The most replicas of a whole model."""
NAMES = ("east", "west", "central", "south")

Datacenters = tuple[tuple[str, int, int], ...]
"""Datacenters, each as its name, its number of hosts and the GPUs of each host."""
Places = tuple[tuple[str, ...], ...]
"""The datacenter of each stage of each pipeline."""


@dataclass(frozen=True)
class RandomLayout:
    """Datacenters, and the placement of the stages of each pipeline.

    ``placement`` is one list for all pipelines, one list for each, or None for the default. ``cell`` is the number of
    pipelines of a DP-cell, 1 without sharing.
    """

    datacenters: Datacenters
    stages: int
    pipelines: int
    placement: Places | tuple[str, ...] | None
    cell: int = 1

    @property
    def boundaries(self) -> int:
        """The number of stage boundaries of a pipeline."""
        return self.stages - 1

    @property
    def cells_placed_apart(self) -> bool:
        """Whether only DP-cells of exactly this size have the replicas of each stage in one datacenter."""
        return self.placement is not None and not isinstance(self.placement[0], str)

    def written(self) -> list[Any] | None:
        """Return the placement as in an experiment file, None for the default."""
        if self.placement is None:
            return None
        return [each if isinstance(each, str) else list(each) for each in self.placement]


def draw_layout(dice: Dice, schedule: str, *, heavy: bool) -> RandomLayout:
    """Draw a layout with room for at least two stages. A ``heavy`` one has few stages and few pipelines."""
    count = dice.weighted(((2, 3), (3, 2), (4, 1)))
    datacenters = tuple(
        (name, dice.whole(1, min(4, MOST_HOSTS // count)), dice.weighted(((1, 5), (2, 3), (3, 1), (4, 2))))
        for name in NAMES[:count]
    )
    rooms = {name: hosts * gpus for name, hosts, gpus in datacenters}
    if schedule == "dp":
        return _replicas(dice, datacenters, rooms, heavy=heavy)
    if sum(rooms.values()) >= 4 and dice.chance(0.45):
        return _apart(dice, schedule, datacenters, rooms, heavy=heavy)
    return _together(dice, schedule, datacenters, rooms, heavy=heavy)


def _replicas(dice: Dice, datacenters: Datacenters, rooms: Mapping[str, int], *, heavy: bool) -> RandomLayout:
    """Draw replicas of the whole model, each on one GPU, in any datacenters."""
    pipelines = dice.whole(2, min(3 if heavy else MOST_REPLICAS, sum(rooms.values())))
    placement: Places | None = None
    if dice.chance(0.4):
        seats = dice.shuffled([name for name, room in rooms.items() for _ in range(room)])
        placement = tuple((name,) for name in seats[:pipelines])
    return RandomLayout(datacenters, 1, pipelines, placement)


def _together(
    dice: Dice, schedule: str, datacenters: Datacenters, rooms: Mapping[str, int], *, heavy: bool
) -> RandomLayout:
    """Draw a layout with all replicas of a stage in one datacenter: the default placement, or one list."""
    fitting = [
        pipelines
        for pipelines in range(1, (2 if heavy else MOST_PIPELINES) + 1)
        if sum(room // pipelines for room in rooms.values()) >= 2
    ]
    pipelines = dice.one(fitting)
    room = {name: gpus // pipelines for name, gpus in rooms.items()}
    stages = dice.whole(2, 2 if heavy else min(MOST_STAGES, sum(room.values())))
    placement = _blocks(dice, room, stages) if dice.chance(0.3) else None
    return RandomLayout(datacenters, stages, pipelines, placement, _cell(dice, schedule, pipelines))


def _cell(dice: Dice, schedule: str, pipelines: int) -> int:
    """Draw the pipelines of a DP-cell: several more often for atlas, made for sharing, never with virtual stages."""
    often = {"atlas": 0.6, "interleaved-1f1b": 0.0, "zb-v": 0.0}.get(schedule, 0.1)
    if pipelines == 1 or not dice.chance(often):
        return 1
    return dice.one([count for count in range(2, pipelines + 1) if pipelines % count == 0])


def _apart(
    dice: Dice, schedule: str, datacenters: Datacenters, rooms: Mapping[str, int], *, heavy: bool
) -> RandomLayout:
    """Draw a layout in which each pipeline, or each DP-cell of two, has its own placement: rings cross the WAN."""
    left = {name: room // 2 for name, room in rooms.items()}
    cell, parts = 2, 2
    if schedule != "atlas" or heavy or sum(left.values()) < 4 or not dice.chance(0.4):
        left, cell = dict(rooms), 1
        parts = 2 if heavy else dice.whole(2, min(MOST_PIPELINES, sum(left.values()) // 2))
    stages = dice.whole(2, 2 if heavy else min(MOST_STAGES, sum(left.values()) // parts))
    placement: list[tuple[str, ...]] = []
    for _ in range(parts):
        whole = [name for name, room in left.items() if room >= stages]
        places = (dice.one(whole),) * stages if whole and dice.chance(0.5) else _blocks(dice, left, stages)
        for name in places:
            left[name] -= 1
        placement += [places] * cell
    return RandomLayout(datacenters, stages, cell * parts, tuple(placement), cell)


def _blocks(dice: Dice, room: Mapping[str, int], stages: int) -> tuple[str, ...]:
    """Draw consecutive stages in each of some datacenters that have room for all stages."""
    places: list[str] = []
    order = dice.shuffled([name for name in room if room[name]])
    while len(places) < stages:
        name = order.pop(0)
        # Leave no more stages than the remaining datacenters have room for.
        left = stages - len(places)
        least = max(1, left - sum(room[later] for later in order))
        places += [name] * dice.whole(least, min(room[name], left))
    return tuple(places)
