"""Run a program of the user's as one trial: start its processes, follow its iterations, gather what it leaves."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import file_digest
from pathlib import Path
from typing import Any

from wanbed.ground.errors import InputError, shown
from wanbed.results.records.span_log import (
    ITERATION,
    PROFILED_KINDS,
    RankPlace,
    Span,
    SpanLogContents,
    message_ranks,
    read_span_log,
)
from wanbed.results.text import count_text
from wanbed.runner.emulation.rank_configs import FIRST_PORT
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.placement import Placement, StagePlace
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.trainings.program.resolution import ProgramVariant, ResolvedProgram
from wanbed.runner.trainings.program.spec import filled, placeholders_in
from wanbed.testbed.gpus.gpu_assignment import VISIBLE_DEVICES
from wanbed.testbed.hosts.host_environment import HostHome, search_path
from wanbed.testbed.hosts.process_group import ProcessGroup
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.addressing import HOST_INTERFACE
from wanbed.testbed.network.topology import Host
from wanbed.testbed.rack.driver.machine_files import Written
from wanbed.testbed.rack.machine_handle import MachineLostError
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.workloads.collective.collective_config import gloo_environment, nccl_environment, ucx_environment
from wanbed.workloads.user_programs.program_config import RANK, MarkedOutput, OutputConfig, ProgramConfig
from wanbed.workloads.user_programs.program_output import telling_line_of


@dataclass(frozen=True)
class ProgramPlaces:
    """The ranks of a program and their hosts. The host of rank 0 serves the rendezvous, at ``rendezvous_port``.

    ``homes`` has what programs find on each host, by its name.
    """

    program: ResolvedProgram
    placement: Placement
    addresses: AddressBook
    rendezvous_port: int
    homes: Mapping[str, HostHome]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts in the order of their ranks, each once."""
        return tuple({place.host.name: place.host for place in self.placement.places}.values())

    @property
    def rendezvous_host(self) -> Host:
        """The host at which all ranks meet."""
        return self.placement.places[0].host

    @property
    def rendezvous_address(self) -> str:
        """The address at which all ranks meet."""
        return self.addresses.address(self.rendezvous_host)

    def places_on(self, host: Host) -> tuple[StagePlace, ...]:
        """Return the places of one host's processes."""
        return tuple(place for place in self.placement.places if place.host.name == host.name)

    def rank(self, place: StagePlace) -> int:
        """Return the rank of a place."""
        return self.placement.rank(place)

    def values(self, host: Host, place: StagePlace | None = None) -> dict[str, str]:
        """Return the value of every placeholder on a host; those of a rank only for the place of one."""
        home = self.homes[host.name]
        known = {
            "python": home.python,
            "folder": home.place(str(self.program.folder)),
            "host": host.name,
            "datacenter": host.datacenter,
            "hosts": str(len(self.hosts)),
            "host_index": str(self.hosts.index(host)),
            "world_size": str(len(self.placement.places)),
            "local_world_size": str(len(self.places_on(host))),
            "rendezvous_host": self.rendezvous_host.name,
            "rendezvous_address": self.rendezvous_address,
            "rendezvous_port": str(self.rendezvous_port),
        }
        if place is None:
            return known
        return {**known, "rank": str(self.rank(place)), "local_rank": str(place.gpu)}

    def words(self, words: Sequence[str], host: Host, place: StagePlace | None = None) -> tuple[str, ...]:
        """Return a command with its placeholders filled in. A word that is a path of this machine's is the host's."""
        values, home = self.values(host, place), self.homes[host.name]
        return tuple(home.place(filled(word, values)) for word in words)

    def environment(self, host: Host, place: StagePlace | None = None) -> dict[str, str]:
        """Return the variables that a process on a host has beside those of ``wanbed run``.

        On a rack it has them beside those of Ray on its machine.
        Those that the user gives replace wanbed's own; one that needs a rank is left out where there is none.
        Libraries are kept on the emulated network, and Python writes what it prints at once, so that a line of output
        has the time at which it was printed.
        """
        values = self.values(host, place)
        ours = {
            **gloo_environment(HOST_INTERFACE),
            **nccl_environment(host.name, HOST_INTERFACE, apart=len(self.hosts) > 1),
            **ucx_environment(HOST_INTERFACE, apart=len(self.hosts) > 1),
            "PYTHONUNBUFFERED": "1",
            "PATH": self.homes[host.name].search_path,
        }
        if place is not None:
            ours |= {
                "RANK": values["rank"],
                "LOCAL_RANK": values["local_rank"],
                "WORLD_SIZE": values["world_size"],
                "LOCAL_WORLD_SIZE": values["local_world_size"],
                "MASTER_ADDR": values["rendezvous_address"],
                "MASTER_PORT": values["rendezvous_port"],
            }
        written = self.program.spec.env.items()
        known = ((name, value) for name, value in written if placeholders_in(value) <= values.keys())
        return {**ours, **{name: filled(value, values) for name, value in known}}


@dataclass(frozen=True)
class _ProgramSetting:
    """The setting that the processes of one trial share: their places, folders, and the 0 of their clock.

    ``folder`` receives logs and output. ``environment`` is what hides GPUs that are not assigned to hosts.
    """

    places: ProgramPlaces
    folder: Path
    epoch_ns: int
    run_token: str
    parent_pid: int
    environment: dict[str, str]

    def span_log(self, rank: int | str) -> Path:
        """Return the file in which a rank's spans are logged."""
        return self.folder / f"rank-{rank}.spans"


@dataclass(frozen=True)
class _ProcessLaunch:
    """A process to start: where, under which name of files, and its configuration. It sees all GPUs of its host."""

    host: str
    name: str
    config: ProgramConfig


_STREAMS = ("stdout", "stderr")

_WRITTEN = "written"
"""The folder, in a trial's output, of what processes wrote on the machines of a rack."""


def train(trial: RunningTrial, begin: Callable[[], None], look: Callable[[], None]) -> Ended:
    """Run a variant's program until its iterations are done. What it printed is in the trial's folder.

    ``begin`` is called just before its ranks are started, ``look`` several times a second. What it printed, and what
    processes on a rack wrote, are the outputs; loading the program is no part of what is measured. If it fails, what
    it printed is copied to the folder of failed trials. Raise TrialError, one line with the process that failed and
    what it printed last.
    """
    testbed, variant, setting = trial.testbed, trial.variant, trial.setting
    assert isinstance(variant, ProgramVariant)
    program = variant.program
    hidden = {VISIBLE_DEVICES: ""} if testbed.gpus is None and setting.device == "cpu" else {}
    homes = {host.name: testbed.home(host.name) for host in testbed.topology.hosts}
    places = ProgramPlaces(program, variant.placement, setting.addresses, FIRST_PORT, homes)
    shared = _ProgramSetting(
        places,
        setting.folder,
        setting.epoch_ns,
        setting.run_token,
        setting.parent_pid,
        hidden,
    )
    written = None
    run = _ProgramRun(testbed, shared, begin, look)
    try:
        run.run()
        logs = read_ranks(run.span_logs, program, variant.name)
    except TrialError as fault:
        with suppress(MachineLostError):
            written = _written(testbed, setting.folder, program)
        kept = _kept(_outputs(setting.folder, written), trial.spec.failed)
        raise TrialError(f"{fault}{f' (what it printed: {kept})' if kept else ''}") from None
    written = _written(testbed, setting.folder, program)
    profiled = profiled_iterations(logs, program)
    facts = _facts(shared, logs, profiled)
    if written is not None:
        facts["program"]["written"] = written.document()
    outputs = _outputs(setting.folder, written)
    measured = measured_ns(logs, program, profiled)
    return Ended(logs, setting, arrivals=False, measured_ns=measured, outputs=outputs, facts=lambda _: facts)


def _written(testbed: RunningTestbed, folder: Path, program: ResolvedProgram) -> Written | None:
    return testbed.take_written(folder, _WRITTEN, program.spec.output_limit)


def _outputs(folder: Path, written: Written | None) -> dict[str, Path]:
    """Return the files of what processes printed, by name, without the empty ones, and those that they wrote."""
    found = sorted(path for stream in _STREAMS for path in folder.glob(f"*.{stream}"))
    printed = {path.name: path for path in found if path.stat().st_size}
    return printed if written is None else {**printed, **written.files}


def _kept(outputs: Mapping[str, Path], failed: Path | None) -> Path | None:
    if failed is None or not outputs:
        return None
    shutil.rmtree(failed, ignore_errors=True)
    failed.mkdir(parents=True)
    for name, path in outputs.items():
        (failed / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, failed / name)
    return failed


def _facts(setting: _ProgramSetting, logs: list[SpanLogContents], profiled: int) -> dict[str, Any]:
    program, places = setting.places.program, setting.places.placement.places
    return {
        "warmup_iterations": program.warmup,
        "profiled_iterations": profiled,
        "tokens_per_iteration": program.spec.tokens,
        "program": {
            "command": list(program.spec.command),
            "launcher": program.spec.launcher,
            "marked_by": program.marked_by,
            "world_size": len(places),
            "working_folder": str(Path.cwd()),
            "files": _file_hashes(setting),
            "ranks": [
                {"rank": log.header.rank, "host": log.header.host, "process": log.header.gpu, **_software(setting, log)}
                for log in logs
            ],
            "unmarked_ranks": unmarked(logs, len(places)),
        },
    }


def _software(setting: _ProgramSetting, log: SpanLogContents) -> dict[str, Any]:
    """Return the versions that a rank runs on, as its hook has written them; {} without a hook."""
    path = Path(f"{setting.span_log(log.header.rank)}.software.json")
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _file_hashes(setting: _ProgramSetting) -> dict[str, str]:
    """Return the SHA-256 of each file that the command names, by its word: what ran is more than its command line."""
    program, hashes = setting.places.program, {}
    values = program.values_everywhere
    for word in program.spec.command[1:]:
        # What a rank or its host is told differs from rank to rank, and is no file of the program.
        if placeholders_in(word) <= values.keys():
            path = os.path.join(Path.cwd(), filled(word, values))
            # A word may be a whole program, too long for the name of a file.
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    hashes[word] = file_digest(file, "sha256").hexdigest()
    return hashes


_PROGRAM_PROCESS = "wanbed.workloads.user_programs.program_process"

_GRACE_S = 5.0
"""The time for which a program may still run after SIGTERM."""

_LOOK_S = 0.1

_STRAGGLER_S = 10.0
"""The time in which ranks that have marked no iteration may do so after all others have ended their last one."""

_LAST_WORDS_S = 12.0
"""Time for other processes to end after one has failed: theirs may be the cause."""

_ENDING_S = _GRACE_S + 15.0

_LEFT = ("*.spans", "*.software.json", "*.stdout", "*.stderr", "*.fault")
"""Names of the files that processes leave for this one."""


class _ProgramRun:
    """The processes of one trial on a testbed.

    ``begin`` is called just before the ranks are started, ``meanwhile`` several times a second.
    """

    def __init__(
        self,
        testbed: RunningTestbed,
        setting: _ProgramSetting,
        begin: Callable[[], None],
        meanwhile: Callable[[], None],
    ) -> None:
        self._testbed = testbed
        self._setting = setting
        self._program = setting.places.program
        self._begin = begin
        self._meanwhile = meanwhile
        ranks = range(len(setting.places.placement.places))
        self.span_logs = {rank: setting.span_log(rank) for rank in ranks}
        self._copies = testbed.mirror(setting.folder)
        self._watch = IterationWatch(self.span_logs)

    def run(self) -> None:
        """Run setup, the programs beside the ranks, and the ranks, and end what still runs after their iterations.

        Raise TrialError, one line that names the process that failed first and what it printed last.
        """
        self._set_up()
        with ProcessGroup() as beside, ProcessGroup() as ranks:
            try:
                others = self._start(beside, _also_launches(self._setting))
                self._begin()
                trained = self._start(ranks, _rank_launches(self._setting))
                self._follow(ranks, trained, beside, others)
            finally:
                _end(ranks)
                _end(beside)
                self._copies.take(_LEFT)

    def _fetch(self, *patterns: str) -> None:
        """Copy what processes elsewhere have written to files of these names since the last time.

        Raise MachineLostError if a machine has gone: what its processes seem to have done then is no fault of theirs.
        """
        self._testbed.check()
        self._copies.look(patterns)

    def _start(self, group: ProcessGroup, launches: Sequence[_ProcessLaunch]) -> Sequence[_ProcessLaunch]:
        for launch in launches:
            path = self._setting.folder / f"{launch.name}.json"
            launch.config.write(path)
            start = partial(self._testbed.start_module, launch.host, _PROGRAM_PROCESS, [str(path)])
            group.start(start, self._setting.folder / f"{launch.name}.words")
        return launches

    def _pause(self, group: ProcessGroup) -> None:
        self._testbed.check()
        self._meanwhile()
        group.wait_for_any(_LOOK_S)

    def _set_up(self) -> None:
        with ProcessGroup() as hosts:
            try:
                launches = self._start(hosts, _setup_launches(self._setting))
                deadline_s = time.monotonic() + self._timeout_s

                def pause() -> None:
                    if time.monotonic() > deadline_s:
                        late = launches[hosts.statuses().index(None)]
                        raise TrialError(f"{late.config.label} has not ended within {self._timeout_s:g} s")
                    self._pause(hosts)

                if hosts.first_failure(pause) is not None:
                    self._raise_fault(hosts, launches)
            finally:
                _end(hosts)

    @property
    def _timeout_s(self) -> float:
        return self._program.spec.timeout / 1e9

    def _follow(
        self,
        ranks: ProcessGroup,
        trained: Sequence[_ProcessLaunch],
        beside: ProcessGroup,
        others: Sequence[_ProcessLaunch],
    ) -> None:
        progress_s, seen, complete_s = time.monotonic(), -1, None
        while True:
            self._fetch("*.spans")
            self._watch.look()
            now_s = time.monotonic()
            if self._watch.total > seen:
                progress_s, seen = now_s, self._watch.total
            if self._watch.all_complete:
                complete_s = complete_s or now_s
                everybody = len(self._watch.complete) == len(self.span_logs)
                if everybody or now_s - complete_s > _STRAGGLER_S:
                    return
            statuses = ranks.statuses()
            if any(statuses):
                ranks.wait_for_all(_LAST_WORDS_S)
                self._raise_fault(ranks, trained)
            if None not in statuses:
                return
            if any(beside.statuses()):
                self._raise_fault(beside, others)
            if now_s - progress_s > self._timeout_s:
                self._fetch("rank-*.std*")
                raise TrialError(self._hang_text())
            self._pause(ranks)

    def _raise_fault(self, group: ProcessGroup, launches: Sequence[_ProcessLaunch]) -> None:
        """Raise TrialError for the process of a group that reported a fault first, if any has failed."""
        failed = [number for number, status in enumerate(group.statuses()) if status]
        if not failed:
            return
        self._fetch("*.fault", "rank-*.stdout")
        reports = sorted(self._setting.folder.glob("*.fault"), key=lambda path: path.stat().st_mtime_ns)
        faults = [text for path in reports if (text := path.read_text(errors="replace").strip())]
        said = [*faults, *filter(None, map(group.stderr_tail, failed))]
        cause = first_cause(said) or f"{launches[failed[0]].config.label} failed without a word"
        raise TrialError(cause + self._unmatched_text())

    def _hang_text(self) -> str:
        slowest = self._watch.slowest
        rank = 0 if slowest is None else slowest
        host = self._setting.places.placement.places[rank].host.name
        ended = count_text(self._watch.ended.get(rank, 0), "iteration")
        like = ", like every other rank" if slowest is None and len(self.span_logs) > 1 else ""
        streams = (self._setting.folder / f"rank-{rank}.{stream}" for stream in ("stderr", "stdout"))
        tail = next(filter(None, map(telling_line_of, streams)), "")
        said = f"it printed last: {tail}" if tail else "it printed nothing"
        late = f"rank {rank} on {host} has ended no iteration for {self._timeout_s:g} s after {ended}{like}"
        return f"{late}: {said}{self._unmatched_text()}"

    def _unmatched_text(self) -> str:
        """Return what to know of a pattern that no line had while lines were printed; "" if one had, or none was."""
        pattern = self._program.spec.pattern
        printed = any(path.stat().st_size for path in self._setting.folder.glob("rank-*.stdout"))
        return f"; no line had the pattern {pattern!r}" if pattern and printed and not self._watch.total else ""


def _end(group: ProcessGroup) -> None:
    group.terminate()
    group.wait_for_all(_ENDING_S)


def _rank_launches(setting: _ProgramSetting) -> list[_ProcessLaunch]:
    """Return the processes that train: one for each rank, or torchrun on each host."""
    places = setting.places
    if not places.program.uses_torchrun:
        return [_rank_launch(setting, place) for place in places.placement.places]
    return [_torchrun_launch(setting, host) for host in places.hosts]


def _setup_launches(setting: _ProgramSetting) -> list[_ProcessLaunch]:
    """Return the command that has to end on every host before the ranks start; [] without one."""
    words = setting.places.program.spec.setup
    if words is None:
        return []
    return [
        _beside(setting, host, f"setup-{host.name}", f"setup on {host.name}", setting.places.words(words, host))
        for host in setting.places.hosts
    ]


def _also_launches(setting: _ProgramSetting) -> list[_ProcessLaunch]:
    """Return the programs beside the ranks."""
    hosts = {host.name: host for host in setting.places.addresses.topology.hosts}
    launches = []
    for number, each in enumerate(setting.places.program.spec.also):
        command = setting.places.words(each.command, hosts[each.host])
        label = f"{command[0]} beside the ranks, on {each.host}"
        launches.append(_beside(setting, hosts[each.host], f"also-{number}-{each.host}", label, command))
    return launches


def _beside(setting: _ProgramSetting, host: Host, name: str, label: str, command: tuple[str, ...]) -> _ProcessLaunch:
    config = _config(setting, host, name, label, command, environment=setting.places.environment(host))
    return _ProcessLaunch(host.name, name, config)


def _config(
    setting: _ProgramSetting,
    host: Host,
    name: str,
    label: str,
    command: tuple[str, ...],
    *,
    environment: Mapping[str, str],
) -> ProgramConfig:
    spec = setting.places.program.spec
    return ProgramConfig(
        label=label,
        command=command,
        folder=setting.places.homes[host.name].place(str(Path.cwd())),
        output=OutputConfig(
            str(setting.folder / f"{name}.stdout"),
            str(setting.folder / f"{name}.stderr"),
            spec.output_limit,
            str(setting.folder / f"{name}.fault"),
        ),
        grace_s=_GRACE_S,
        environment={**setting.environment, **environment},
        read_only=spec.read_only,
        parent_pid=setting.parent_pid,
    )


def _rank_launch(setting: _ProgramSetting, place: StagePlace) -> _ProcessLaunch:
    places, rank = setting.places, setting.places.rank(place)
    command = places.words(places.program.spec.command, place.host, place)
    label = f"rank {rank} on {place.host.name}"
    config = _config(
        setting, place.host, f"rank-{rank}", label, command, environment=places.environment(place.host, place)
    )
    header = RankPlace(rank, place.host.name, place.datacenter, place.gpu, pipeline=rank, stage=0)
    return _ProcessLaunch(place.host.name, f"rank-{rank}", _marking(setting, config, header, str(rank)))


def _torchrun_launch(setting: _ProgramSetting, host: Host) -> _ProcessLaunch:
    """Return torchrun on a host. Each process that it starts is one of ours, which knows its rank only then."""
    places, name = setting.places, f"torchrun-{host.name}"
    label = f"rank {RANK} on {host.name}"
    command = places.words(places.program.spec.command, host)
    inner = _config(setting, host, f"rank-{RANK}", label, command, environment={})
    # Its rank, GPU and pipeline are filled in by the process.
    header = RankPlace(0, host.name, host.datacenter, 0, pipeline=0, stage=0)
    marking = _marking(setting, inner, header, RANK)
    path = setting.folder / f"{name}-each.json"
    replace(marking, parent_pid=None, rank_from_environment=True).write(path)
    each = (*places.homes[host.name].run_module, _PROGRAM_PROCESS, str(path))
    outer = torchrun_command(places, host, setting.run_token, each, setting.folder / f"{name}-logs")
    config = _config(setting, host, name, f"torchrun on {host.name}", outer, environment=places.environment(host))
    return _ProcessLaunch(host.name, name, config)


def _marking(setting: _ProgramSetting, config: ProgramConfig, header: RankPlace, rank: str) -> ProgramConfig:
    """Return the configuration of a rank with what marks its iterations: a pattern, or the hook in its Python."""
    program = setting.places.program
    log = str(setting.span_log(rank))
    if program.spec.pattern is not None:
        marks = MarkedOutput(program.spec.pattern, log, header, program.iterations, setting.epoch_ns)
        return replace(config, marks=marks)
    hook = {
        "log": log,
        "header": asdict(header),
        "epoch_ns": setting.epoch_ns,
        "iterations": program.iterations,
        "profile": program.profiled,
        "marked_by": program.marked_by,
    }
    return replace(config, hook=hook)


_MODULE = "torch.distributed.run"


def torchrun_command(
    places: ProgramPlaces, host: Host, run_token: str, each: Sequence[str], log_folder: Path
) -> tuple[str, ...]:
    """Return the command line that runs torchrun on ``host``, which starts the command ``each`` for every process.

    torchrun belongs to the Python that the user's command names, because that one has the torch that the program uses;
    otherwise it is searched on PATH. A process that fails is not started again: the trial has failed.
    """
    python = places.program.torchrun_python
    launcher = ["torchrun"] if python is None else [*places.words([python], host), "-m", _MODULE]
    index = places.hosts.index(host)
    if places.program.spec.rendezvous == "static":
        meeting = [
            "--rdzv-backend=static",
            f"--node-rank={index}",
            f"--master-addr={places.rendezvous_address}",
            f"--master-port={places.rendezvous_port}",
        ]
    else:
        meeting = [
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={places.rendezvous_host.name}:{places.rendezvous_port}",
        ]
    return (
        *launcher,
        f"--nnodes={len(places.hosts)}",
        f"--nproc-per-node={len(places.places_on(host))}",
        *meeting,
        f"--rdzv-id={run_token}",
        "--max-restarts=0",
        # Without one it makes folders in TMPDIR, and leaves them there.
        f"--log-dir={log_folder}",
        "--no-python",
        *each,
    )


_CONSEQUENCES = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection (was |is )?(closed|lost|refused)|socket closed|"
    r"remote process exited|peer (was |is )?lost|heartbeat|timed out|timeout|ended by SIG(TERM|ABRT)|"
    r"ChildFailedError|DistNetworkError|SignalException",
    re.IGNORECASE,
)
"""The messages that ranks print when another rank has gone, and that a launcher prints about any rank."""


def first_cause(lines: Sequence[str]) -> str | None:
    """Return the first line that is not the consequence of another rank's end, else the first; None without any.

    ``lines`` are in the order in which the processes ended. The rank that fails first often ends last: its traceback
    is being printed while the others already miss its connection.
    """
    return next((line for line in lines if not _CONSEQUENCES.search(line)), lines[0] if lines else None)


_PIECE_BYTES = 2**20


class IterationWatch:
    """Counts the iterations that each rank has ended, from the span logs that appear in a folder.

    ``logs`` are the files that ranks may write, by rank.
    """

    def __init__(self, logs: Mapping[int, Path]) -> None:
        self._logs = dict(logs)
        self._read_bytes = dict.fromkeys(logs, 0)
        self._partial = dict.fromkeys(logs, b"")
        self.ended: dict[int, int] = {}
        self.complete: set[int] = set()

    @property
    def total(self) -> int:
        """The number of iterations that all ranks together have ended."""
        return sum(self.ended.values())

    @property
    def all_complete(self) -> bool:
        """Tell whether every rank that has marked an iteration has ended its last one; False while none has."""
        return bool(self.ended) and self.complete == set(self.ended)

    @property
    def slowest(self) -> int | None:
        """The rank that has ended the fewest iterations, the first of several; None if all have ended as many."""
        counts = {rank: self.ended.get(rank, 0) for rank in self._logs}
        fewest = min(counts.values())
        return None if fewest == max(counts.values()) else min(rank for rank in counts if counts[rank] == fewest)

    def look(self) -> None:
        """Read what has been logged since the last look."""
        for rank, path in self._logs.items():
            try:
                with path.open("rb") as log:
                    log.seek(self._read_bytes[rank])
                    while piece := log.read(_PIECE_BYTES):
                        self._read_bytes[rank] += len(piece)
                        *lines, self._partial[rank] = (self._partial[rank] + piece).split(b"\n")
                        for line in lines:
                            self._take(rank, line)
            except FileNotFoundError:
                continue

    def _take(self, rank: int, line: bytes) -> None:
        self.ended.setdefault(rank, 0)
        entry = json.loads(line)
        if entry == {"complete": True}:
            self.complete.add(rank)
        elif isinstance(entry, list) and entry[0] == ITERATION:
            self.ended[rank] += 1


def read_ranks(logs: Mapping[int, Path], program: ResolvedProgram, variant: str) -> list[SpanLogContents]:
    """Return the logs of the ranks that marked iterations, without what lies beyond the program's iterations.

    A program may go on after them until it is ended. Raise TrialError, one line with its remedy, if no rank has marked
    any, or one has marked fewer than the program has to do.
    """
    found = [read_span_log(path) for path in logs.values() if path.exists()]
    if not any(_ended(log) for log in found):
        raise TrialError(f"{variant}: its program ended well and no iteration was marked: {_HOW_TO_MARK}")
    for log in found:
        if (ended := _ended(log)) < program.iterations:
            raise TrialError(
                f"{variant}: its program ended well after {count_text(ended, 'iteration')} at rank {log.header.rank} "
                f"on {log.header.host}, where {program.iterations} were to be done: let it do more, or give fewer "
                "iterations"
            )
    host_of = {log.header.rank: log.header.host for log in found}
    return [_with_peers(_within(log, program.iterations), host_of) for log in found]


_HOW_TO_MARK = (
    "it stepped no optimizer of torch's, called no wanbed.mark_iteration(), or printed no line with the pattern: see "
    "marked_by"
)


def _ended(log: SpanLogContents) -> int:
    return sum(span.kind == ITERATION for span in log.spans)


def _within(log: SpanLogContents, iterations: int) -> SpanLogContents:
    """Return the log as that of a rank that ended normally: its program is ended by wanbed once it has done enough."""
    return replace(log, spans=tuple(span for span in log.spans if span.iteration < iterations), complete=True)


def _with_peers(log: SpanLogContents, host_of: Mapping[int, str]) -> SpanLogContents:
    """Return the log with the host at the other end of each message. A rank knows only the number of its peer."""

    def named(span: Span) -> Span:
        ends = message_ranks(span.kind, span.tensor)
        return span if ends is None else span._replace(peer=host_of.get(ends[span.kind == "send"], ""))

    return replace(log, spans=tuple(map(named, log.spans)))


def profiled_iterations(logs: Sequence[SpanLogContents], program: ResolvedProgram) -> int:
    """Return how many of the last iterations a profiler has recorded: none where no rank left what it saw.

    A program without torch has no profiler, and that of a torch may fail.
    """
    seen = any(span.kind in PROFILED_KINDS for log in logs for span in log.spans)
    return program.profiled if seen else 0


def measured_ns(logs: Sequence[SpanLogContents], program: ResolvedProgram, profiled_iterations: int) -> tuple[int, int]:
    """Return when the measured iterations began and ended, since the trial's start, by the last rank in each case."""
    first, last = program.warmup, program.iterations - profiled_iterations - 1
    edges = [span for log in logs for span in log.spans if span.kind == ITERATION]
    return (
        max(span.start_ns for span in edges if span.iteration == first),
        max(span.end_ns for span in edges if span.iteration == last),
    )


def unmarked(logs: Sequence[SpanLogContents], ranks: int) -> list[int]:
    """Return the ranks that marked no iteration, of so many."""
    return sorted(set(range(ranks)) - {log.header.rank for log in logs})


def check_programs(point: SweepPoint) -> None:
    """Raise InputError, naming the field, for a program that is not found or cannot be executed."""
    for position, variant in enumerate(point.variants):
        if isinstance(variant, ProgramVariant):
            for field, name in wanted_programs(variant.program):
                fault = _fault(name, variant.program)
                if fault is not None:
                    raise InputError(f"variants.{position}.program.{field}: {shown(name)}: {fault}")


def wanted_programs(program: ResolvedProgram) -> Iterator[tuple[str, str]]:
    """Yield the field and name, with its placeholders, of each program that has to be there before the trial."""
    spec = program.spec
    if spec.setup is not None:
        # It may make the others.
        yield "setup", spec.setup[0]
        return
    yield "command", spec.command[0]
    if program.uses_torchrun and program.torchrun_python is None:
        yield "launcher", "torchrun"
    yield from ((f"also.{number}.command", each.command[0]) for number, each in enumerate(spec.also))


def program_fault(name: str, path: str) -> str | None:
    """Return why a program cannot be started, with the remedy; None if it can. ``path`` is the PATH to search."""
    if "/" not in name:
        found = shutil.which(name, path=path) is not None
        return None if found else "there is no such program on PATH: install it, or give its path"
    if not os.path.isfile(name):
        return f"there is no such program here, in {Path.cwd()}: give the path of one"
    return None if os.access(name, os.X_OK) else "it is not executable: chmod +x it, or start it by its interpreter"


def _fault(name: str, program: ResolvedProgram) -> str | None:
    values = program.values_everywhere
    path = program.spec.env.get("PATH", search_path())
    if not placeholders_in(name) | placeholders_in(path) <= values.keys():
        # It is known only on a host.
        return None
    return program_fault(filled(name, values), filled(path, values))
