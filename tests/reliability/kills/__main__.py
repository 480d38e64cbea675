"""Disturb commands at random moments and see that nothing is left and all goes on: ``make reliability``.

Disturbances are numbered, and the same for the same seed. Each adds a line to the ledger, so that a later
call goes on with the next. Status 1 says that something was not as documented.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.proof.soak_parts import ROOT, head_revision
from tests.reliability.kills.attempts import Verdict, attempt
from tests.reliability.kills.called import Undisturbed, undisturbed
from tests.reliability.kills.disturbances import Disturbance, drawn, scene_of
from tests.reliability.kills.ledger import LEDGER, Entry, add_entry, numbers_to_try, read_entries
from tests.reliability.kills.page import write_tables
from tests.reliability.kills.rack import attempt_on_rack
from tests.reliability.kills.room import INSIDE, Room, call_inside
from tests.reliability.kills.scenes import RACK, given_run
from tests.support.ray.kills import killing_ground
from wanbed.testbed.kernel.tcp import allow_congestion_control
from wanbed.testbed.network.tcp_settings import TcpSettings

PAGE = ROOT / "docs" / "reliability.md"


def verdicts(disturbances: Sequence[Disturbance], inside: Path) -> Iterator[tuple[Disturbance, Verdict]]:
    """Try every disturbance in the room with that folder, those of a rack last, and yield what followed."""
    room, wholes = Room(inside), dict[str, Undisturbed]()
    # A process that is told to end runs no `finally` otherwise.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    here = [disturbance for disturbance in disturbances if disturbance.scene != RACK]
    with room.scratch("given") as folder:
        given = given_run(folder)
        for disturbance in here:
            if disturbance.scene not in wholes:
                wholes[disturbance.scene] = undisturbed(scene_of(disturbance), room, given)
            yield disturbance, attempt(disturbance, room, given, wholes[disturbance.scene])
    if on_rack := [disturbance for disturbance in disturbances if disturbance.scene == RACK]:
        with killing_ground() as ground:
            for disturbance in on_rack:
                with TemporaryDirectory() as runs:
                    yield disturbance, attempt_on_rack(disturbance, ground, Path(runs))


def try_all(seed: int, numbers: Sequence[int], ledger: Path, inside: Path) -> bool:
    """Try every disturbance, add it to the ledger, print a line for each, and return whether all was as documented."""
    revision, fine = head_revision(), True
    for disturbance, verdict in verdicts([drawn(seed, number) for number in numbers], inside):
        add_entry(Entry.of(seed, disturbance, verdict, revision), ledger)
        print(line_of(seed, disturbance, verdict), flush=True)
        fine &= not verdict.wrong
    return fine


def line_of(seed: int, disturbance: Disturbance, verdict: Verdict) -> str:
    """Return the line of an attempt, with everything that is wrong and how to repeat it below."""
    line = f"{disturbance.number:5}  {disturbance.scene:24}  {disturbance!s:32}  status {verdict.status:3}"
    line += "" if verdict.in_time else "  over before"
    again = f"    repeat: python -m tests.reliability.kills --seed {seed} {disturbance.number}"
    return "\n".join([line, *(f"    {text}" for text in verdict.wrong), *([again] if verdict.wrong else [])])


def main() -> int:
    """Try, write the page, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.kills", description=__doc__)
    parser.add_argument(
        "numbers", nargs="*", type=int, help="just these, by default the first ones that the ledger does not have"
    )
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", type=int, dest="first", metavar="NUMBER", default=0)
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page whose tables are made from the ledger")
    parser.add_argument(INSIDE, type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    # In the background of a script it is ignored, and would be by every command too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.geteuid() != 0:
        parser.error("it makes mounts and networks of its own: call it as root")
    if not asked.inside:
        # Only the initial network namespace may, and the room has another.
        allow_congestion_control(TcpSettings().congestion)
        # Who ends this group ends the process inside too, which clears the room first.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return call_inside(sys.argv[1:])
    entries = read_entries(asked.ledger)
    numbers = asked.numbers or numbers_to_try(entries, asked.seed, asked.first, asked.count)
    fine = try_all(asked.seed, numbers, asked.ledger, asked.inside)
    if asked.write:
        write_tables(asked.write, read_entries(asked.ledger))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
