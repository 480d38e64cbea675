"""Resolve a variant that runs a program of the user's: its processes, in order of the hosts, are the ranks."""

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.resolve.placement import Placement, StagePlace
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.program.resolution.program_variant import ProgramVariant
from wanbed.runner.trainings.program.resolution.resolved_program import ResolvedProgram
from wanbed.runner.trainings.program.spec.program_spec import ProgramSpec

_OF_SCHEDULES = ("options", "placement", "training", "prefill", "pool")
_OF_OUR_TRANSPORT = (
    "model",
    "connections",
    "overlap",
    "sharing",
    "pipelines_per_cell",
    "all_reduce",
    "all_reduce_overlap",
    "bucket",
)


def resolve_program(written: WrittenVariant, program: ProgramSpec) -> ProgramVariant:
    """Return the variant with one rank for each of the program's processes; each is a whole replica.

    Raise InputError for fields that only a schedule has, for more processes than a host has GPUs, and where no
    iteration is left to measure.
    """
    here = written.field
    _check_fields(written.variant, here)
    _check_hosts(written, program)
    training = written.spec.training
    iterations = program.iterations or training.iterations
    warmup = training.warmup if program.warmup is None else program.warmup
    profiled = program.profile or 0
    if warmup < 1:
        raise InputError(
            f"{here}.program.warmup: {warmup}: the first iteration begins with the program and is not measured: give "
            "at least 1"
        )
    if iterations <= warmup + profiled:
        raise InputError(
            f"{here}.program.iterations: {iterations}, of which {warmup} warm up and {profiled} are profiled, leaves "
            "none to measure: give more iterations"
        )
    resolved = ResolvedProgram(program, iterations, warmup, profiled, written.directory.resolve())
    return ProgramVariant(spec=written.variant, placement=_placement(written, program), program=resolved)


def _placement(written: WrittenVariant, program: ProgramSpec) -> Placement:
    seats = []
    for host in written.topology.hosts:
        processes = program.processes_per_host or host.gpus
        if processes > host.gpus:
            raise InputError(
                f"{written.field}.program.processes_per_host: {processes}, where {host.name} has {host.gpus}: give its "
                "datacenter gpus_per_host, or fewer processes"
            )
        seats += [(host, local) for local in range(processes)]
    return Placement(tuple((StagePlace(rank, 0, host, local),) for rank, (host, local) in enumerate(seats)))


def _check_fields(variant: VariantSpec, here: str) -> None:
    default = VariantSpec.model_validate({"name": "default", "schedule": "gpipe"})
    for name in _OF_SCHEDULES:
        # Without a section prefill a variant may only say that it has none.
        if getattr(variant, name) not in (getattr(default, name), "none"):
            raise InputError(f"{here}.{name}: a program decides that itself: leave {name} out")
    for name in _OF_OUR_TRANSPORT:
        if getattr(variant.transport, name) != getattr(default.transport, name):
            raise InputError(f"{here}.transport.{name}: a program makes its own connections: leave {name} out")


def _check_hosts(written: WrittenVariant, program: ProgramSpec) -> None:
    if written.spec.prefill is not None and written.variant.prefill != "none":
        raise InputError(f"{written.field}.prefill: the bubbles of a program are not known: give prefill: none")
    names = {host.name for host in written.topology.hosts}
    for position, each in enumerate(program.also):
        if each.host not in names:
            raise InputError(
                f"{written.field}.program.also.{position}.host: no host {each.host!r} here: {', '.join(sorted(names))}"
            )
