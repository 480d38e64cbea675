"""Draw what happens to which command: the same number of the same seed is always the same disturbance."""

import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from tests.reliability.kills.scenes import RACK, SCENES, Scene
from tests.support.ray.kills import VICTIMS

SIGNALS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "INT": signal.SIGINT, "STOP": signal.SIGSTOP}
"""A process that is stopped is continued a second later."""
WHOM = ("command", "child", "group")
FULL_DISK, READ_ONLY, REMOVED = "full disk", "read-only folder", "folder removed"
FEW_DESCRIPTORS, LITTLE_MEMORY, TWO_AT_ONCE = "few descriptors", "little memory", "two at once"
STARVATIONS = (FULL_DISK, READ_ONLY, REMOVED, FEW_DESCRIPTORS, LITTLE_MEMORY, TWO_AT_ONCE)
_OF_FILES = {FULL_DISK, READ_ONLY, REMOVED, TWO_AT_ONCE}
_SIGNALS_PART = 0.75
_RACK_WEIGHT = 1
_BY_NAME: Mapping[str, Scene] = {scene.name: scene for scene in SCENES}


@dataclass(frozen=True)
class Disturbance:
    """One disturbance of a scene: a signal to ``whom``, or a starvation.

    ``share`` is the moment, as a part of the undisturbed duration; of a starvation it is how much there is. ``pick``
    chooses among the children that there are at that moment.
    """

    number: int
    scene: str
    kind: str
    whom: str
    share: float
    pick: float

    def __str__(self) -> str:
        return f"{self.kind} {self.whom}".rstrip() + f" at {self.share:.3f}"


def scene_of(disturbance: Disturbance) -> Scene:
    """Return the scene of a disturbance on this machine."""
    return _BY_NAME[disturbance.scene]


def drawn(seed: int, number: int) -> Disturbance:
    """Return the disturbance of that number."""
    draw = random.Random(f"{seed} {number}")
    names = [*_BY_NAME, RACK]
    (name,) = draw.choices(names, [*(scene.weight for scene in SCENES), _RACK_WEIGHT])
    share, pick = draw.uniform(0.02, 1), draw.random()
    if name == RACK:
        return Disturbance(number, name, "KILL", draw.choice(VICTIMS), share, pick)
    scene = _BY_NAME[name]
    if draw.random() < _SIGNALS_PART:
        whom = draw.choice([each for each in WHOM if each != "child" or scene.starts_processes])
        return Disturbance(number, name, draw.choice([*SIGNALS]), whom, share, pick)
    kind = draw.choice([each for each in STARVATIONS if each not in _OF_FILES or scene.writes])
    return Disturbance(number, name, kind, "", share, pick)
