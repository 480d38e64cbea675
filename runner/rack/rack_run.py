"""Emulate an experiment over the machines of a Ray cluster, into a run's folder."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from ground.strict_model import InputError, prefixed
from results.text.number_text import count_text, list_text
from runner.emulation.networks.kept_testbed import NetworkOf
from runner.emulation.trials import run_trials
from runner.rack.agents import agents_on, holder_text
from runner.rack.dilation.rack_dilation import UpOverRack, decide_rack_dilation
from runner.rack.point_placement import (
    PointPlacement,
    carrying_machines,
    check_memory,
    gpus_of,
    place_point,
    used_nodes,
)
from runner.rack.ray_handle import RayHandle, shared_object
from runner.rack.same_sources import rack_at
from runner.rack.shipped.program_files import packed_programs, programs_of
from runner.rack.shipped.program_needs import ProgramNeeds, program_needs
from runner.rack.shipped.user_modules import user_modules
from runner.resolve.checks.all_reduce_check import check_collective_gpus
from runner.resolve.experiment import Experiment, SweepPoint
from runner.runs.continuable import check_same_substrate
from runner.runs.resuming import kept_trials, resumed
from runner.runs.run_folder import Log, begin_run, check_runs_folder, exclusively
from runner.runs.told_beforehand import tell_beforehand
from testbed.gpus.gpu_assignment import GpuAssignment
from testbed.network.topology import Topology
from testbed.rack.driver.inventory import check_lacks_nothing, read_facts
from testbed.rack.machine_plan import HEADER_BYTES, VXLAN, unknown_overlay
from testbed.rack.rack_testbed import RACK, RackTestbed, rack_testbed
from testbed.rack.sent_files import SentFiles


def rack_run(
    experiment: Experiment,
    source: str,
    runs: Path,
    *,
    address: str,
    hosts_per_machine: int = 1,
    overlay: str = VXLAN,
    queue: bool = False,
    resume: bool,
    keep_gradients: bool,
    keep_going: bool = False,
    log: Log,
    stream: TextIO | None = None,
    shaped: bool = True,
) -> Path:
    """Run the missing trials of an experiment's run over the cluster at ``address``, and return its folder.

    ``source`` names the experiment to people. With ``queue`` machines that another run uses are waited for. With
    ``keep_going`` a trial that fails is kept, marked, and the others run; a machine that leaves ends the run in any
    case. ``log`` gets lines on what happens, ``stream`` (default: standard error) the progress. If ``shaped`` is false,
    no link has a delay, a loss or a rate.

    Raise InputError for hosts that do not fit on the machines, MissingError for what the
    cluster or a machine lacks, MachineLostError for a machine that leaves, and what ``emulate`` raises.
    """
    if overlay not in HEADER_BYTES:
        raise InputError(f"--overlay: {unknown_overlay(overlay)}")
    points = experiment.points()
    tell_beforehand(points, keep_gradients=keep_gradients, log=log)
    store = resumed(experiment, runs, log) if resume else None
    if store is not None:
        if store.manifest["complete"]:
            return store.path
        check_same_substrate(store, RACK)
    check_runs_folder(runs)
    modules, programs = user_modules(points), programs_of(points)
    with prefixed(f"{source}: "):
        sent = packed_programs((program for _, program in programs), runs) if programs else None
        needs = ProgramNeeds() if sent is None else program_needs(programs, sent)
    with rack_at(address, log) as rack:
        with prefixed(f"{source}: "):
            placements = {point.index: place_point(point, rack.nodes, hosts_per_machine) for point in points}
        nodes, gpus = used_nodes(rack.nodes, placements.values())
        with agents_on(nodes, holder_text(source), sent=rack.sent, gpus=gpus, queue=queue, log=log) as handles:
            for handle in handles.values():
                handle.load_modules(modules)
            _check_machines(placements.values(), handles, shaped=shaped)
            if sent is not None:
                _send(sent, needs, [handles[name] for name in carrying_machines(placements.values())], log)
            up = _up_over(handles, source, overlay, log, modules=modules.archive, sent=sent, shaped=shaped)
            if store is None:
                dilation = decide_rack_dilation(placements.values(), handles, up, log, shaped=shaped)
                facts = {**dilation.facts(), "cluster": rack.document()}
                store = begin_run(experiment, runs, facts)
            with exclusively(store.path), kept_trials(experiment, store):
                run_trials(
                    experiment,
                    store,
                    network_of=_networks(placements, handles, up),
                    log=log,
                    keep_gradients=keep_gradients,
                    keep_going=keep_going,
                    stream=stream,
                )
    return store.path


def _check_machines(placements: Collection[PointPlacement], handles: Mapping[str, RayHandle], *, shaped: bool) -> None:
    """Raise MissingError for what a machine lacks, before the run's folder is there."""
    if shaped:
        check_lacks_nothing(read_facts([*handles.values()]))
    wanted = {
        (machine, compute.backend_path): compute.options
        for compute, machines in ((each.point.spec.compute, each.machine_of.values()) for each in placements)
        for machine in machines
    }
    for (machine, backend_path), options in wanted.items():
        handles[machine].check_computes(backend_path, options)
    for placed in placements:
        check_memory(placed, handles)


def _send(sent: SentFiles, needs: ProgramNeeds, machines: Sequence[RayHandle], log: Log) -> None:
    """Send the files of users' programs to machines. Raise MissingError for one that lacks what is not sent."""
    for machine in machines:
        machine.check_programs(needs)
    shared = shared_object(sent.archive)
    for pending in [machine.start_sending("receive_archive", shared) for machine in machines]:
        pending.result()
    log(
        f"sent what is in {list_text([str(root) for root in sent.roots])} ({len(sent.archive) / 1e6:.1f} MB) to "
        f"{count_text(len(machines), 'machine')}: programs start in copies of it"
    )


@dataclass(frozen=True)
class _RackNetwork:
    """A network over the rack's machines: where its hosts and gateways are, and which real GPUs its hosts have.

    ``placed`` is the placement of a sweep point that has it, and ``bring_up`` brings it up.
    """

    topology: Topology
    machine_of: Mapping[str, str]
    gateways: Mapping[str, str]
    gpus: GpuAssignment | None
    placed: PointPlacement = field(compare=False)
    bring_up: UpOverRack = field(compare=False)

    def up(self, dilation: float) -> AbstractContextManager[RackTestbed]:
        """Bring it up, dilated by a factor. Raise what ``rack_testbed`` raises."""
        return self.bring_up(self.placed, self.topology.dilated(dilation))


def _networks(
    placements: Mapping[int, PointPlacement], handles: Mapping[str, RayHandle], bring_up: UpOverRack
) -> NetworkOf:
    """Return what returns the network of a sweep point over the rack's machines."""

    def network_of(point: SweepPoint) -> _RackNetwork:
        placed = placements[point.index]
        gpus = gpus_of(placed, handles)
        check_collective_gpus(point.variants, gpus)
        return _RackNetwork(point.topology, placed.machine_of, placed.gateways, gpus, placed, bring_up)

    return network_of


def _up_over(
    handles: Mapping[str, RayHandle],
    source: str,
    overlay: str,
    log: Log,
    *,
    modules: bytes,
    sent: SentFiles | None,
    shaped: bool,
) -> UpOverRack:
    """Return what brings a network up over the machines of a placement."""

    def up(placed: PointPlacement, topology: Topology) -> AbstractContextManager[RackTestbed]:
        gpus = gpus_of(placed, handles)
        check_collective_gpus(placed.point.variants, gpus)
        return rack_testbed(
            topology,
            list(handles.values()),
            placed.machine_of,
            source=source,
            overlay=overlay,
            gateways=placed.gateways,
            modules=modules,
            sent=sent,
            gpus=gpus,
            shaped=shaped,
            log=log,
        )

    return up
