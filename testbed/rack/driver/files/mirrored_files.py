"""Keep copies, on the driver's machine, of files that processes write on machines."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath

from wanbed.testbed.rack.driver.inventory import naming
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.orders import FilePiece

_PIECE_BYTES = 8 * 2**20
"""The most that one answer of a machine has: a program may print much more."""


class MirroredFiles:
    """Copies below the driver's ``folder`` of files below each machine's lease folder, with the same relative paths.

    ``apart_from`` has the sizes of files that stay as they are here, by these paths. Patterns are relative to the
    folder ``below`` of both.
    """

    def __init__(
        self,
        machines: Collection[RackMachine],
        folder: Path,
        below: str = "",
        *,
        apart_from: Mapping[str, int] | None = None,
    ) -> None:
        self._machines = list(machines)
        self._folder = folder
        self._below = PurePosixPath(below)
        self._known_bytes = {machine.name: dict(apart_from or {}) for machine in self._machines}

    def look(self, patterns: Sequence[str]) -> None:
        """Add what files that match have got since the last look. Raise MachineLostError if a machine has gone."""
        asked, matching = self._machines, self._matching(patterns)
        while asked:
            pending = [
                (machine, machine.start_call("read_files", matching, self._known_bytes[machine.name], _PIECE_BYTES))
                for machine in asked
            ]
            asked = []
            for machine, each in pending:
                with naming(machine.name):
                    pieces = each.result()
                for name, piece in pieces.items():
                    self._add(machine, name, piece)
                if sum(len(piece.content) for piece in pieces.values()) >= _PIECE_BYTES:
                    asked.append(machine)

    def take(self, patterns: Sequence[str]) -> None:
        """Add what files that match have got since the last look, and remove them on the machines."""
        self.look(patterns)
        for machine in self._machines:
            machine.call("remove_files", self._matching(patterns))

    def _matching(self, patterns: Sequence[str]) -> list[str]:
        return [str(self._below / pattern) for pattern in patterns]

    def _add(self, machine: RackMachine, name: str, piece: FilePiece) -> None:
        known, path = self._known_bytes[machine.name], self._folder / name
        offset = max(known.get(name, 0), 0)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with closing(os.fdopen(descriptor, "wb", buffering=0)) as file:
            file.seek(offset)
            file.write(piece.content)
        known[name] = offset + len(piece.content)
        # By this machine's clocks: what is compared was written on several.
        modified_ns = piece.modified_ns - machine.clock.ahead_ns + time.time_ns() - time.monotonic_ns()
        os.utime(path, ns=(modified_ns, modified_ns))
