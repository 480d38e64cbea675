"""Make the configuration of each process of a program in one trial."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wanbed.results.records.span_log import SpanLogHeader
from wanbed.runner.resolve.placement import StagePlace
from wanbed.runner.trainings.program.on_hosts.placeholder_values import ProgramPlaces
from wanbed.runner.trainings.program.on_hosts.torchrun_command import torchrun_command
from wanbed.testbed.network.topology import Host
from wanbed.workloads.programs.program_config import RANK, MarkedOutput, ProgramConfig

PROGRAM_PROCESS = "wanbed.workloads.programs.program_process"
GRACE_S = 5.0
"""The time for which a program may still run after SIGTERM."""


@dataclass(frozen=True)
class ProgramSetting:
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
class ProcessLaunch:
    """A process to start: where, under which name of files, and its configuration. It sees all GPUs of its host."""

    host: str
    name: str
    config: ProgramConfig


def rank_launches(setting: ProgramSetting) -> list[ProcessLaunch]:
    """Return the processes that train: one for each rank, or torchrun on each host."""
    places = setting.places
    if not places.program.uses_torchrun:
        return [_rank_launch(setting, place) for place in places.placement.places]
    return [_torchrun_launch(setting, host) for host in places.hosts]


def setup_launches(setting: ProgramSetting) -> list[ProcessLaunch]:
    """Return the command that has to end on every host before the ranks start; [] without one."""
    words = setting.places.program.spec.setup
    if words is None:
        return []
    return [
        _beside(setting, host, f"setup-{host.name}", f"setup on {host.name}", setting.places.words(words, host))
        for host in setting.places.hosts
    ]


def also_launches(setting: ProgramSetting) -> list[ProcessLaunch]:
    """Return the programs beside the ranks."""
    hosts = {host.name: host for host in setting.places.addresses.topology.hosts}
    launches = []
    for number, each in enumerate(setting.places.program.spec.also):
        command = setting.places.words(each.command, hosts[each.host])
        label = f"{command[0]} beside the ranks, on {each.host}"
        launches.append(_beside(setting, hosts[each.host], f"also-{number}-{each.host}", label, command))
    return launches


def _beside(setting: ProgramSetting, host: Host, name: str, label: str, command: tuple[str, ...]) -> ProcessLaunch:
    config = _config(setting, host, name, label, command, environment=setting.places.environment(host))
    return ProcessLaunch(host.name, name, config)


def _config(
    setting: ProgramSetting,
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
        stdout=str(setting.folder / f"{name}.stdout"),
        stderr=str(setting.folder / f"{name}.stderr"),
        output_limit_bytes=spec.output_limit,
        grace_s=GRACE_S,
        environment={**setting.environment, **environment},
        read_only=spec.read_only,
        fault=str(setting.folder / f"{name}.fault"),
        parent_pid=setting.parent_pid,
    )


def _rank_launch(setting: ProgramSetting, place: StagePlace) -> ProcessLaunch:
    places, rank = setting.places, setting.places.rank(place)
    command = places.words(places.program.spec.command, place.host, place)
    label = f"rank {rank} on {place.host.name}"
    config = _config(
        setting, place.host, f"rank-{rank}", label, command, environment=places.environment(place.host, place)
    )
    header = SpanLogHeader(rank, place.host.name, place.datacenter, place.gpu, pipeline=rank, stage=0)
    return ProcessLaunch(place.host.name, f"rank-{rank}", _marking(setting, config, header, str(rank)))


def _torchrun_launch(setting: ProgramSetting, host: Host) -> ProcessLaunch:
    """Return torchrun on a host. Each process that it starts is one of ours, which knows its rank only then."""
    places, name = setting.places, f"torchrun-{host.name}"
    label = f"rank {RANK} on {host.name}"
    command = places.words(places.program.spec.command, host)
    inner = _config(setting, host, f"rank-{RANK}", label, command, environment={})
    # Its rank, GPU and pipeline are filled in by the process.
    header = SpanLogHeader(0, host.name, host.datacenter, 0, pipeline=0, stage=0)
    marking = _marking(setting, inner, header, RANK)
    path = setting.folder / f"{name}-each.json"
    replace(marking, parent_pid=None, rank_from_environment=True).write(path)
    each = (*places.homes[host.name].run_module, PROGRAM_PROCESS, str(path))
    outer = torchrun_command(places, host, setting.run_token, each, setting.folder / f"{name}-logs")
    config = _config(setting, host, name, f"torchrun on {host.name}", outer, environment=places.environment(host))
    return ProcessLaunch(host.name, name, config)


def _marking(setting: ProgramSetting, config: ProgramConfig, header: SpanLogHeader, rank: str) -> ProgramConfig:
    """Return the configuration of a rank with what marks its iterations: a pattern, or the hook in its Python."""
    program = setting.places.program
    log = str(setting.span_log(rank))
    if program.spec.pattern is not None:
        marks = MarkedOutput(program.spec.pattern, log, header, program.iterations)
        return replace(config, marks=marks, epoch_ns=setting.epoch_ns)
    hook = {
        "log": log,
        "header": asdict(header),
        "epoch_ns": setting.epoch_ns,
        "iterations": program.iterations,
        "profile": program.profiled,
        "marked_by": program.marked_by,
    }
    return replace(config, hook=hook)
