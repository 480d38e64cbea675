"""Price the ways to train that were asked for, beside a plan, and say what their tokens are worth."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.families.family_layout import Family
from wanbed.runner.planner.families.family_pricing import FamilyPrice, planned_family, priced_family
from wanbed.runner.planner.planning import Plan, PlanningTask
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.local_updates.spec import parse_swap_rate

SYNC_EVERY: Final = 100
"""The iterations between synchronisations of replicas, where nothing else was asked for."""

_SYNCHRONIZED: Final = (Family.DILOCO, Family.ATOM)
_NOT_THE_SAME: Final = (
    "its tokens a second are not worth the same. Replicas that synchronise seldom learn otherwise: compare losses over "
    "time (docs/loss-against-time.md)"
)
_NOTES: Final = {
    Family.DILOCO: _NOT_THE_SAME,
    Family.ATOM: f"{_NOT_THE_SAME}. Memory of activations and gradients is not known here",
    Family.HIERARCHICAL: "each GPU holds the whole model; whether it fits is not known here",
}


@dataclass(frozen=True)
class FamiliesAsked:
    """The families to price, each once. ``swap`` is the rate at which ATOM loads layers, like 12GB/s.

    ``sync_every`` is the number of iterations between synchronisations of DiLoCo and ATOM, None for ``SYNC_EVERY``.
    Raises InputError, which names options of the command, for a value that no family takes, and for ATOM without a
    rate.
    """

    families: tuple[Family, ...] = ()
    sync_every: int | None = None
    swap: str | None = None

    def __post_init__(self) -> None:
        if self.sync_every is not None and not set(_SYNCHRONIZED) & set(self.families):
            raise InputError("--sync-every: only DiLoCo and ATOM synchronise: give --families diloco or atom too")
        if self.sync_every is not None and self.sync_every < 1:
            raise InputError(f"--sync-every: {self.sync_every} is below 1")
        if self.swap is not None and Family.ATOM not in self.families:
            raise InputError("--swap: only ATOM swaps layers: give --families atom too")
        if Family.ATOM not in self.families:
            return
        if self.swap is None:
            raise InputError("--families atom: say how fast layers are loaded into a GPU, like --swap 12GB/s")
        try:
            parse_swap_rate(self.swap)
        except ValueError as refusal:
            raise InputError(f"--swap: {refusal}") from None

    @staticmethod
    def named(names: Iterable[str], sync_every: int | None = None, swap: str | None = None) -> "FamiliesAsked":
        """Return the families of these names. Raise InputError for one that is not known."""
        found: list[Family] = []
        for name in names:
            try:
                found.append(Family(name.strip()))
            except ValueError:
                known = ", ".join(each.value for each in Family)
                raise InputError(f"--families: {name.strip()!r} is not known: give some of {known}") from None
        return FamiliesAsked(tuple(dict.fromkeys(found)), sync_every, swap)

    def prices(
        self, written: WrittenVariant, task: PlanningTask, plan: Plan, tell: Callable[[str], None]
    ) -> tuple[FamilyPrice, ...]:
        """Return the price of each family beside the plan of ``written``, about as many sequences an iteration.

        What does not fit is told in a line, and left out. Raise InputError for what cannot be simulated.
        """
        own = planned_family(task, plan)
        every = self.sync_every or SYNC_EVERY
        found: list[FamilyPrice] = []
        for family in self.families:
            if family is Family.PIPELINE:
                found.append(own)
            elif price := priced_family(family, written, task, own.sequences, every, swap=self.swap):
                found.append(price)
            else:
                tell(f"{family}: it needs whole replicas in two datacenters or more, and none fits")
        return tuple(found)


def family_notes(families: Sequence[FamilyPrice]) -> tuple[str, ...]:
    """Return what a reader has to know about the families that are among these prices, a line each."""
    present = {each.family for each in families}
    return tuple(f"{family}: {note}" for family, note in _NOTES.items() if family in present)


def same_worth(family: Family) -> bool:
    """Return whether a token teaches what one of a pipeline does."""
    return family not in _SYNCHRONIZED
