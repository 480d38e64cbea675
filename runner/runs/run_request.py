"""A request to run an experiment, the same from the command line and from Python."""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.results.records.written_spans import WrittenSpans
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.run_folder import Log


@dataclass(frozen=True)
class RackRequest:
    """The machines of the Ray cluster whose head listens at ``address``, HOST:PORT.

    With ``queue`` machines that another run uses are waited for. If ``shaped`` is false, no link has a delay, a loss or
    a rate.
    """

    address: str
    hosts_per_machine: int = 1
    overlay: str = "vxlan"
    queue: bool = False
    shaped: bool = True


@dataclass(frozen=True)
class RunRequest:
    """An experiment and how to run it. With ``resume`` its last unfinished run is continued.

    ``source`` names the experiment in messages and in the testbed's record; ``directory`` is where its relative paths
    begin. With ``keep_gradients`` the last iteration's gradients that torch computed are kept, with ``keep_going`` a
    trial that fails is kept, marked, and does not end the run. ``jobs`` trials are simulated at a time, None for as
    many as there are cores, or CPUs of ``rack``. ``log`` gets lines on what happens, ``stream`` (default: standard
    error) the progress, and ``standard_error`` (default: this process's) what a run in virtual time prints. ``written``
    gets the spans of a single trial that this process simulates.
    """

    experiment: Experiment
    source: str
    directory: Path
    runs: Path
    log: Log
    substrate: str = "auto"
    rack: RackRequest | None = None
    jobs: int | None = None
    resume: bool = False
    keep_gradients: bool = False
    keep_going: bool = False
    stream: TextIO | None = None
    standard_error: BinaryIO | None = None
    written: WrittenSpans | None = None

    @property
    def simulates(self) -> bool:
        """True if the experiment is simulated."""
        return self.experiment.spec.engine == "simulate"

    def check(self) -> None:
        """Raise InputError for an option that the experiment's engine does not have."""
        rack = self.experiment.spec.engine == "rack"
        at_a_time, own_kernels = "an emulation runs one trial at a time", "the machines of a rack use their own kernels"
        emulated_only = {
            "--keep-gradients": self.keep_gradients,
            "--substrate": self.substrate != "auto",
            "--keep-going": self.keep_going,
        }
        given = tuple(option for option, is_given in emulated_only.items() if is_given)
        emulated, chosen = not self.simulates, self.substrate != "auto"
        check_exclusions(
            Exclusion("--jobs", at_a_time, "give engine: simulate", when=emulated and self.jobs is not None),
            Exclusion("--substrate", own_kernels, when=rack and chosen),
            Exclusion(given, "a simulation has none", "give engine: emulate", when=self.simulates),
        )
