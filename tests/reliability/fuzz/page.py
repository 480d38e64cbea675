"""Count what became of inputs, and write the counts as the table of a page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.reliability.fuzz.attempts import Attempt
from tests.reliability.fuzz.judgement import Outcome
from tests.reliability.fuzz.kinds import KINDS
from wanbed.ground.files import with_marked_text

COMMAND = "python -m tests.reliability.fuzz --count 500 --write docs/reliability.md"
BEGIN = f"<!-- bad inputs: {COMMAND} -->\n"
END = "<!-- end of bad inputs -->\n"
_HEAD = (
    "| kind | inputs | accepted | refused | faults | seed | most memory |",
    "| --- |" + " ---: |" * 6,
)


@dataclass(frozen=True)
class KindCounts:
    """The inputs of one kind: how many there were, were accepted, were refused or met a fault, and what they took."""

    name: str
    inputs: int
    accepted: int
    refused: int
    faults: int
    longest_s: float
    most_bytes: int

    @classmethod
    def of(cls, name: str, done: Iterable[Attempt]) -> "KindCounts":
        """Count the attempts of one kind."""
        done = list(done)
        ends = Counter(each.outcome for each in done)
        return cls(
            name,
            len(done),
            ends[Outcome.ACCEPTED],
            ends[Outcome.REFUSED],
            ends[Outcome.FAULT],
            max((each.seconds for each in done), default=0.0),
            max((each.most_bytes for each in done), default=0),
        )

    def row(self, seed: int) -> str:
        """Return the counts as a row of a page's table."""
        counted = (self.inputs, self.accepted, self.refused, self.faults, seed)
        cells = (self.name, *map(str, counted), f"{self.most_bytes >> 20} MiB")
        return f"| {' | '.join(cells)} |"

    @property
    def line(self) -> str:
        """The counts as a line of a terminal."""
        return (
            f"{self.name:32} {self.inputs:>5} inputs {self.accepted:>5} accepted {self.refused:>5} refused "
            f"{self.faults:>3} faults  {self.longest_s:>5.1f} s {self.most_bytes >> 20:>5} MiB"
        )


def with_counts(page: str, counts: Sequence[KindCounts], seed: int) -> str:
    """Return the page with a row for each of ``counts`` between its marks; rows of other kinds stay as they are there.

    Raise ValueError if a mark is missing.
    """
    _, _, rest = page.partition(BEGIN)
    there = [line for line in rest.partition(END)[0].splitlines() if line.startswith("| ") and line not in _HEAD]
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in there} | {
        each.name: each.row(seed) for each in counts
    }
    known = [rows[kind.name] for kind in KINDS if kind.name in rows]
    return with_marked_text(page, BEGIN, END, "\n".join([*_HEAD, *known]))
