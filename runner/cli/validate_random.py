"""Run random experiments for ``wanbed validate``, or read the stored results of such a run."""

import os
from dataclasses import dataclass
from pathlib import Path

from wanbed.ground.errors import InputError, one_line
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.cli.exit_status import log
from wanbed.runner.runs.run_folder import DEFAULT_PARALLEL_RUNS, check_runs_folder
from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.agreement import VIRTUAL_POINT_LIMIT, read_random_agreement, write_random_agreement
from wanbed.runner.validation.page import RandomSection, read_explanations
from wanbed.runner.validation.random_execution import agreement_of, run_random
from wanbed.runner.validation.random_experiments import (
    MOST_EXPERIMENTS,
    DrawnExperiment,
    copy_experiments,
    write_experiments,
)
from wanbed.testbed.virtual_time.guest_boot import check_visible
from wanbed.testbed.virtual_time.kernel_cache import virtual_kernel

DEFAULT_SEED = 1

MOST_SEED = 2**31 - 1

EXPERIMENTS = "experiments"
"""The subfolder of the results folder for the files of experiments with large errors."""

_LISTED = 10


@dataclass(frozen=True)
class RandomOptions:
    """The command's options for random experiments, as given. Raise InputError if they contradict each other."""

    count: int | None
    seed: int | None
    resume: bool
    jobs: int | None
    drawn: Path | None
    runs: Path

    def __post_init__(self) -> None:
        if self.count is None:
            options = {"--seed": self.seed is not None, "--resume": self.resume, "--jobs": self.jobs is not None}
            given = tuple(option for option, is_given in options.items() if is_given)
            check_exclusions(Exclusion(given, "nothing is drawn", "give --random N too"))
            return
        if not 1 <= self.count <= MOST_EXPERIMENTS:
            raise InputError(f"--random: {self.count} is not from 1 to {MOST_EXPERIMENTS}: give so many experiments")
        if self.seed is not None and not 0 <= self.seed <= MOST_SEED:
            raise InputError(f"--seed: {self.seed} is not from 0 to {MOST_SEED}")

    @property
    def side_by_side(self) -> int:
        """The number of guests that run at a time."""
        return self.jobs or min(DEFAULT_PARALLEL_RUNS, len(os.sched_getaffinity(0)))


def random_section(options: RandomOptions, simulate: Simulate) -> RandomSection | None:
    """Return the results of random experiments: of a new run with ``--random``, otherwise those stored in ``--drawn``.

    Return None without both options. Raise InputError for options or files that cannot be used, and MissingError if
    there is no kernel for virtual time.
    """
    if options.count is None:
        return None if options.drawn is None else _kept(options.drawn)
    kernel, seed = virtual_kernel(), DEFAULT_SEED if options.seed is None else options.seed
    folder = options.drawn
    explanations = read_explanations(folder) if folder is not None else None
    check_runs_folder(options.runs)
    check_visible(options.runs, "--runs")
    drawn = write_experiments(seed, options.count, options.runs / "random")
    stores = run_random(seed, drawn, kernel, resume=options.resume, side_by_side=options.side_by_side, log=log)
    agreement = agreement_of(seed, drawn, stores, simulate)
    section = RandomSection(agreement, explanations or read_explanations(options.runs / "random"))
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_random_agreement(folder, agreement)
            beyond = [result.name for result in agreement.beyond(VIRTUAL_POINT_LIMIT)]
            copy_experiments(drawn, beyond, folder / EXPERIMENTS)
        except OSError as fault:
            raise InputError(f"--drawn: {folder}: cannot be written to ({fault.strerror}), give another") from None
    _log_worst(section, drawn)
    return section


def _kept(folder: Path) -> RandomSection:
    return RandomSection(read_random_agreement(folder), read_explanations(folder))


def _log_worst(section: RandomSection, drawn: list[DrawnExperiment]) -> None:
    files = {each.name: each.file for each in drawn}
    for result in section.agreement.beyond(VIRTUAL_POINT_LIMIT)[:_LISTED]:
        cause = section.explanations.experiments.get(result.name)
        log(
            f"{files[result.name]}: {result.error:+.1%}, virtual time {result.virtual_s:.3f} s, simulated "
            f"{result.simulated_s:.3f} s{f' ({one_line(cause)})' if cause else ''}"
        )
    for number, reason in section.agreement.failed.items():
        log(f"{drawn[number].file}: {reason}")
