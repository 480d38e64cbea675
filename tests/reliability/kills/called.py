"""Call the command of a scene in its folder, in a process group of its own, and see how it ends."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.kills.outcomes import Outcome
from tests.reliability.kills.room import Room
from tests.reliability.kills.scenes import Scene

_PATIENCE_S = 600.0


class Called:
    """A command that was called. ``before`` are words before it; ``name`` is that of the files of what it prints."""

    def __init__(self, scene: Scene, folder: Path, name: str, *options: str, before: Sequence[str | int] = ()) -> None:
        self.scene, self._folder = scene, folder
        self._printed, self._said = folder / f"{name}.out", folder / f"{name}.err"
        with self._printed.open("w") as printed, self._said.open("w") as said:
            self.process = subprocess.Popen(
                [*map(str, before), sys.executable, "-m", "wanbed", *scene.arguments, *options],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=said,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The number of its process, and of its group."""
        return self.process.pid

    @property
    def said(self) -> str:
        """The text that it has printed on standard error."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def status(self) -> int | None:
        """Wait for its end and return the status as a shell has it, None if it does not end."""
        try:
            status = self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 else 128 - status

    def outcome(self) -> Outcome | None:
        """Read what it has produced, None if nothing is the same each time."""
        reading = self.scene.reading
        return None if reading is None else reading(self._folder, self._printed.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Undisturbed:
    """A scene's command as it ends by itself: after how long, and with what."""

    lasted_s: float
    outcome: Outcome | None


def undisturbed(scene: Scene, room: Room, given: Path) -> Undisturbed:
    """Call a scene's command, unless nothing is the same each time: then its usual duration has to do."""
    if scene.reading is None:
        return Undisturbed(scene.usual_s, None)
    with room.scratch("undisturbed") as folder:
        scene.prepare(folder, given)
        began_s = time.monotonic()
        called = Called(scene, folder, "undisturbed")
        status = called.status()
        assert status == 0, f"{scene.name}, undisturbed: status {status}: {called.said}"
        return Undisturbed(time.monotonic() - began_s, called.outcome())
