"""Emulate an experiment over the machines of a Ray cluster, into a run's folder."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from wanbed.ground.errors import InputError, prefixed
from wanbed.results.text import count_text, list_text
from wanbed.runner.emulation.emulation import NetworkOf, run_trials
from wanbed.runner.rack_runs.agents import RayHandle, agents_on, holder_text, shared_object
from wanbed.runner.rack_runs.placement import (
    PointPlacement,
    carrying_machines,
    check_memory,
    gpus_of,
    place_point,
    used_nodes,
)
from wanbed.runner.rack_runs.rack import rack_at
from wanbed.runner.rack_runs.rack_dilation import UpOverRack, decide_rack_dilation
from wanbed.runner.rack_runs.sent_programs import ProgramNeeds, packed_programs, program_needs, programs_of
from wanbed.runner.rack_runs.user_modules import user_modules
from wanbed.runner.resolve.all_reduce_check import check_collective_gpus
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.caveats import log_caveats
from wanbed.runner.runs.run_folder import (
    Log,
    begin_run,
    check_runs_folder,
    check_same_substrate,
    exclusively,
    kept_trials,
    resumed,
)
from wanbed.runner.runs.run_request import RackRequest, RunRequest
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.rack.driver.leasing import check_lacks_nothing, read_facts
from wanbed.testbed.rack.machine_handle import RunOrder
from wanbed.testbed.rack.machine_plan import HEADER_BYTES, unknown_overlay
from wanbed.testbed.rack.rack_testbed import RACK, RackPlacement, RackTestbed, rack_testbed
from wanbed.testbed.rack.sent_files import SentFiles


def rack_run(request: RunRequest, over: RackRequest) -> Path:
    """Run the missing trials of the requested run over a cluster, and return its folder.

    A machine that leaves ends the run, with ``keep_going`` too.

    Raise InputError for hosts that do not fit on the machines, MissingError for what the
    cluster or a machine lacks, MachineLostError for a machine that leaves, and what ``emulate`` raises.
    """
    if over.overlay not in HEADER_BYTES:
        raise InputError(f"--overlay: {unknown_overlay(over.overlay)}")
    experiment, source, runs, log = request.experiment, request.source, request.runs, request.log
    points = experiment.points()
    log_caveats(points, keep_gradients=request.keep_gradients, log=log)
    store = resumed(experiment, runs, log) if request.resume else None
    if store is not None:
        if store.manifest["complete"]:
            return store.path
        check_same_substrate(store, RACK)
    check_runs_folder(runs)
    modules, programs = user_modules(points), programs_of(points)
    with prefixed(f"{source}: "):
        sent = packed_programs((program for _, program in programs), runs) if programs else None
        needs = ProgramNeeds() if sent is None else program_needs(programs, sent)
    with rack_at(over.address, log) as rack:
        with prefixed(f"{source}: "):
            placements = {point.index: place_point(point, rack.nodes, over.hosts_per_machine) for point in points}
        nodes, gpus = used_nodes(rack.nodes, placements.values())
        with agents_on(nodes, holder_text(source), sent=rack.sent, gpus=gpus, queue=over.queue, log=log) as handles:
            for handle in handles.values():
                handle.load_modules(modules)
            _check_machines(placements.values(), handles, shaped=over.shaped)
            if sent is not None:
                _send(sent, needs, [handles[name] for name in carrying_machines(placements.values())], log)
            run = RunOrder(source, over.overlay, over.shaped, modules.archive)
            up = _up_over(handles, run, sent, log)
            if store is None:
                dilation = decide_rack_dilation(placements.values(), handles, up, log, shaped=over.shaped)
                facts = {**dilation.facts(), "cluster": rack.document()}
                store = begin_run(experiment, runs, facts)
            with exclusively(store.path), kept_trials(experiment, store):
                run_trials(
                    experiment,
                    store,
                    network_of=_networks(placements, handles, up),
                    log=log,
                    keep_gradients=request.keep_gradients,
                    keep_going=request.keep_going,
                    stream=request.stream,
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
    for pending in [machine.start_call("receive_archive", shared) for machine in machines]:
        pending.result()
    log(
        f"sent what is in {list_text([str(root) for root in sent.roots])} ({len(sent.archive) / 1e6:.1f} MB) to "
        f"{count_text(len(machines), 'machine')}: programs start in copies of it"
    )


@dataclass(frozen=True)
class _RackNetwork:
    """A network over the rack's machines, and where on them it is.

    ``placed`` is the placement of a sweep point that has it, and ``bring_up`` brings it up.
    """

    topology: Topology
    placement: RackPlacement
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
        return _RackNetwork(point.topology, _placement(placed, handles), placed, bring_up)

    return network_of


def _placement(placed: PointPlacement, handles: Mapping[str, RayHandle]) -> RackPlacement:
    """Return where the network of a sweep point is. Raise InputError for GPUs that cannot be shared as it is wanted."""
    gpus = gpus_of(placed, handles)
    check_collective_gpus(placed.point.variants, gpus)
    return RackPlacement(placed.machine_of, placed.gateways, gpus)


def _up_over(handles: Mapping[str, RayHandle], run: RunOrder, sent: SentFiles | None, log: Log) -> UpOverRack:
    """Return what brings a network up over the machines of a placement."""

    def up(placed: PointPlacement, topology: Topology) -> AbstractContextManager[RackTestbed]:
        return rack_testbed(topology, list(handles.values()), _placement(placed, handles), run, sent=sent, log=log)

    return up
