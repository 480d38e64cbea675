"""Define a companion: something that happens on hosts beside a training, such as traffic in the background."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from wanbed.results.records.run_store import TrialPart
from wanbed.runner.companions.registry import companion_layers
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.running_trial import RunningTrial, Trained


class Companion(ABC):
    """Something that happens beside a training for the length of a trial.

    A trial calls the methods in the order in which they stand here. All but the first and the last may be left as they
    are: then nothing happens. Each may raise what ``run_trial`` raises, which ends the trial.
    """

    @classmethod
    @abstractmethod
    def of(cls, trial: RunningTrial) -> Self | None:
        """Return the companion of a trial, None if its experiment asks for none."""

    def joined(self, setting: SharedConfig) -> SharedConfig:
        """Return the ranks' setting with what they do for this companion."""
        return setting

    def during(self) -> AbstractContextManager[Any]:
        """Return what is entered before the training's processes start, and left when all have ended."""
        return nullcontext()

    def begin(self) -> None:
        """Begin: training does so at this moment, for the first time if faults let it begin again."""
        return

    def look(self) -> None:
        """Look whether all is well. Called several times a second while the training's processes run."""
        return

    @abstractmethod
    def left(self, trained: Trained) -> TrialPart:
        """Return what is kept of it in the trial's record. The training has left ``trained``; hosts are still up."""


def companions_of(trial: RunningTrial) -> list[Companion]:
    """Return the companions of a trial. The first one starts first and ends last."""
    kinds = [layer.COMPANION for layer in companion_layers("on_hosts") if hasattr(layer, "COMPANION")]
    return [companion for kind in kinds if (companion := kind.of(trial)) is not None]
