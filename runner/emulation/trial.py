"""Run one trial: a variant and what happens beside it, on a testbed that is up, from their start to their record."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from wanbed.results.records.run_store import TrialRecord
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.companions import COMPANIONS
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.running_trial import TrialSpec, begun_trial
from wanbed.runner.emulation.time_line import on_time_line
from wanbed.runner.emulation.training import train
from wanbed.runner.emulation.trial_record import trial_record
from wanbed.testbed.running_testbed import RunningTestbed


def run_trial(testbed: RunningTestbed, spec: TrialSpec, meanwhile: Callable[[], None] = lambda: None) -> TrialRecord:
    """Enter the companions, train, leave the companions, and gather what all have left.

    ``meanwhile`` is called several times a second. The hosts' TCP is set as the variant says beforehand: connections
    are counted under the same settings.

    Raises TrialError, one line with the first rank that failed and its own words, SubstrateError, MachineLostError,
    and MissingError for a kernel that does not report the state of connections.
    """
    with _folder_of_trial(testbed) as folder:
        trial = begun_trial(testbed, spec, folder)
        companions = [companion for kind in COMPANIONS if (companion := kind.of(trial)) is not None]
        for companion in companions:
            trial = replace(trial, setting=companion.joined(trial.setting))
        with ExitStack() as during:
            for companion in companions:
                during.enter_context(companion.during())
            ended = train(trial, lambda: _begin(companions), lambda: _look(companions, meanwhile))
        trained = on_time_line(trial, ended)
        parts = [companion.left(trained) for companion in companions]
        outputs = _set_aside(ended.outputs, testbed.folder / "output")
        if spec.gradients is not None:
            _keep_gradients(ended.setting, len(trial.variant.placement.places), spec.gradients)
    return trial_record(trial, trained, parts, outputs)


@contextmanager
def _folder_of_trial(testbed: RunningTestbed) -> Iterator[Path]:
    """Yield a folder for the files of a trial, which is gone after the block."""
    folder = testbed.folder / "trial"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _begin(companions: Iterable[Companion]) -> None:
    for companion in companions:
        companion.begin()


def _look(companions: Iterable[Companion], meanwhile: Callable[[], None]) -> None:
    meanwhile()
    for companion in companions:
        companion.look()


def _keep_gradients(setting: SharedConfig, ranks: int, folder: Path) -> None:
    """Copy the gradients of the last iteration, of those ranks that came to it."""
    for rank in range(ranks):
        if (path := setting.gradients(rank)) is not None and path.exists():
            shutil.copy(path, folder / f"rank-{rank}.npz")


def _set_aside(files: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """Move files to ``folder``, which then has nothing else, and return their paths there by name."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return {name: path.rename(folder / name) for name, path in files.items()}
