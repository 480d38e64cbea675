"""Simulate prefill beside training: controllers, bubble fillers, and their transfers inside each datacenter.

Controllers and fillers are the same objects that run on a testbed. A command takes one network latency from the
controller to a GPU, and a report takes one back. Activations go from stage to stage, and each piece's part of the KV
cache goes to the decode host, at the rate of a port. A host sends its transfers one after the other, and receives them
one after the other. Training's own transfers inside a datacenter last microseconds: they and prefill's do not slow each
other down.

Prefill has an event queue of its own, so that a deadlock of training is detected although requests still arrive.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.runner.simulator.simulation import KIND_CODES, NO_PEER, SimulatedPrefill
from wanbed.workloads.bubbletea.bubble_filler import BubbleFiller, LayerRun
from wanbed.workloads.bubbletea.bubble_forecast import BubbleForecast, IterationPlan
from wanbed.workloads.bubbletea.controller import Commands, PrefillController
from wanbed.workloads.bubbletea.messages import BubbleReport, Piece, PieceDone
from wanbed.workloads.bubbletea.prefill_group import GroupGpus
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy
from wanbed.workloads.bubbletea.request import Request
from wanbed.workloads.bubbletea.service_config import DatacenterService, ServiceConfig

_NO_MICROBATCH = -1
_PREFILL = KIND_CODES["prefill"]


@dataclass(slots=True)
class _Port:
    """One direction of a host's port, which is busy until ``free_ns``."""

    free_ns: int = 0


@dataclass(slots=True)
class _Datacenter:
    """One datacenter's controller. ``kv_missing`` has each request's number of pieces not yet at the decode host."""

    service: DatacenterService
    controller: PrefillController
    kv_missing: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Gpu:
    """One GPU that prefills. ``following`` is the GPU of the next stage in its group."""

    number: int
    host: str
    datacenter: _Datacenter
    filler: BubbleFiller
    trains: bool
    following: "_Gpu | None" = None
    busy: bool = False
    iteration: int = -1
    run: LayerRun | None = None


class PrefillSimulation:
    """The prefill service of one trial. It implements ``GpuSharing`` for the training beside it.

    ``line`` is the path between two hosts of a datacenter. ``plans`` has the planned iteration of each rank, and is
    empty if training has no plan. ``end`` ends the service and returns its result.
    """

    def __init__(self, service: ServiceConfig, line: Line, plans: Mapping[int, IterationPlan]) -> None:
        self._service, self._line, self._plans = service, line, plans
        self._latency_ns = line.latency_ns
        self._events = EventQueue()
        self._gpus: dict[int, _Gpu] = {}
        self._sending: dict[str, _Port] = {}
        self._receiving: dict[str, _Port] = {}
        self._datacenters: dict[str, _Datacenter] = {}
        self._output_tokens: dict[int, int] = {}
        self._rows = array("q")
        for each in service.datacenters:
            self._add(each)
        self._arrivals = service.arrivals()
        self._await_next_arrival()

    def _add(self, service: DatacenterService) -> None:
        config = self._service
        controller = PrefillController(service.name, service.groups, config.model, config.profile, config.settings)
        datacenter = self._datacenters[service.name] = _Datacenter(service, controller)
        hosts = {gpu.number: gpu.host for gpu in service.gpus}
        for group in service.groups:
            self._add_group(datacenter, group, hosts)

    def _add_group(self, datacenter: _Datacenter, group: GroupGpus, hosts: dict[int, str]) -> None:
        config = self._service
        gpus = []
        for number in group.gpus:
            policy = FillPolicy.GREEDY if group.pooled else config.settings.policy
            filler = BubbleFiller(BubbleForecast(config.settings, self._plans.get(number)), config.profile, policy)
            if group.pooled:
                filler.training_over()
            gpus.append(_Gpu(number, hosts[number], datacenter, filler, trains=not group.pooled))
        for gpu, following in pairwise(gpus):
            gpu.following = following
        self._gpus |= {gpu.number: gpu for gpu in gpus}

    # The methods of GpuSharing

    @property
    def next_ns(self) -> int | None:
        """The time of the next event of prefill, None if there is none."""
        return self._events.next_ns

    def handle_next_instant(self) -> None:
        """Handle all events at ``next_ns``."""
        self._events.handle_next_instant()

    def wants(self, now_ns: int, rank: int) -> int:
        """Return when training may use the GPU: after the layer under way."""
        gpu = self._gpus.get(rank)
        if gpu is None:
            return now_ns
        gpu.busy = True
        release_ns = gpu.filler.training_wants(now_ns)
        if gpu.run is not None:
            gpu.run = None
            if release_ns == now_ns:
                self._end_run(now_ns, gpu)
            else:
                self._events.at(release_ns, self._end_run, gpu)
        return release_ns

    def started(self, now_ns: int, rank: int, iteration: int, kind: str, microbatch: int) -> None:
        """Handle the start of a training action. At an iteration's first one, report the bubbles to the controller."""
        gpu = self._gpus.get(rank)
        if gpu is None:
            return
        gpu.filler.training_started(now_ns, iteration, (kind, microbatch))
        if iteration != gpu.iteration:
            gpu.iteration = iteration
            report = gpu.filler.forecast.report(rank)
            if report is not None:
                self._events.at(now_ns + self._latency_ns, self._reported, (gpu.datacenter, report))

    def ended(self, now_ns: int, rank: int, iteration: int, kind: str, microbatch: int) -> None:
        """Handle the end of a training action."""
        gpu = self._gpus.get(rank)
        if gpu is not None:
            gpu.busy = False
            gpu.filler.training_ended(now_ns, iteration, (kind, microbatch))

    def idle(self, now_ns: int, rank: int) -> None:
        """Use the GPU for prefill while training leaves it idle."""
        gpu = self._gpus.get(rank)
        if gpu is not None:
            self._fill(now_ns, gpu)

    def end(self, now_ns: int) -> SimulatedPrefill:
        """End the trial and return its result. Layers under way do not count, unfinished requests stay unfinished."""
        for gpu in self._gpus.values():
            run = gpu.run
            if run is not None and now_ns > run.start_ns:
                layers = min(run.layers, (now_ns - run.start_ns) // run.layer_ns)
                self._log(gpu, run, run.start_ns + layers * run.layer_ns)
        fillers = [gpu.filler for gpu in self._gpus.values()]
        return SimulatedPrefill(
            self._rows,
            tuple(record for each in self._datacenters.values() for record in each.controller.records.values()),
            self._output_tokens,
            sum(filler.deadline_overruns for filler in fillers),
            sum(filler.overrun_ns for filler in fillers),
            tuple(gpu.filler.forecast.margin_ns for gpu in self._gpus.values() if gpu.trains),
        )

    # Requests and their controllers

    def _await_next_arrival(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is not None:
            self._events.at(arrival[1].arrival_ns, self._arrive, arrival)

    def _arrive(self, now_ns: int, arrival: tuple[DatacenterService, Request]) -> None:
        service, request = arrival
        self._output_tokens[request.number] = request.output_tokens
        datacenter = self._datacenters[service.name]
        self._command(now_ns, datacenter, datacenter.controller.arrived(now_ns, request))
        self._await_next_arrival()

    def _reported(self, now_ns: int, what: tuple[_Datacenter, BubbleReport]) -> None:
        datacenter, report = what
        self._command(now_ns, datacenter, datacenter.controller.bubbles_reported(now_ns, report))

    def _done(self, now_ns: int, what: tuple[_Datacenter, PieceDone]) -> None:
        datacenter, done = what
        self._command(now_ns, datacenter, datacenter.controller.piece_done(now_ns, done))

    def _activation_arrived(self, now_ns: int, what: tuple[_Datacenter, Piece]) -> None:
        datacenter, piece = what
        commands = datacenter.controller.activation_arrived(now_ns, piece.request, piece.stage + 1, piece.chunk)
        self._command(now_ns, datacenter, commands)

    def _kv_arrived(self, now_ns: int, what: tuple[_Datacenter, int]) -> None:
        datacenter, request = what
        self._command(now_ns, datacenter, datacenter.controller.kv_moved(now_ns, request))

    def _command(self, now_ns: int, datacenter: _Datacenter, commands: Commands) -> None:
        if not commands:
            return
        for command in commands:
            missing = datacenter.kv_missing
            missing[command.piece.request] = missing.get(command.piece.request, 0) + 1
        self._events.at(now_ns + self._latency_ns, self._enqueue, commands)

    # GPUs

    def _enqueue(self, now_ns: int, commands: Commands) -> None:
        commanded: dict[int, _Gpu] = {}
        for command in commands:
            gpu = commanded[command.gpu] = self._gpus[command.gpu]
            gpu.filler.enqueue(command.piece)
        for gpu in commanded.values():
            self._fill(now_ns, gpu)

    def _fill(self, now_ns: int, gpu: _Gpu) -> None:
        run = gpu.filler.next_run(now_ns, idle=not gpu.busy)
        if run is not None:
            gpu.run = run
            self._events.at(run.end_ns, self._run_passed, (gpu, run))

    def _run_passed(self, now_ns: int, what: tuple[_Gpu, LayerRun]) -> None:
        gpu, run = what
        if gpu.run is run:
            gpu.run = None
            self._end_run(now_ns, gpu)

    def _end_run(self, now_ns: int, gpu: _Gpu) -> None:
        run = gpu.filler.run_under_way
        assert run is not None
        self._log(gpu, run, now_ns)
        done = gpu.filler.run_ended(now_ns)
        if done is not None:
            self._piece_done(now_ns, gpu, run.piece, done)
        self._fill(now_ns, gpu)

    def _piece_done(self, now_ns: int, gpu: _Gpu, piece: Piece, done: PieceDone) -> None:
        service, datacenter = self._service, gpu.datacenter
        self._events.at(now_ns + self._latency_ns, self._done, (datacenter, done))
        if gpu.following is not None:
            size_bytes = service.activation_sent_bytes(piece.tokens)
            arrival_ns = self._send(now_ns, gpu.host, gpu.following.host, size_bytes)
            self._events.at(arrival_ns, self._activation, (gpu.following, piece))
        host = service.decode_host(datacenter.service, piece.request)
        arrival_ns = self._send(now_ns, gpu.host, host, service.kv_sent_bytes(piece.layers, piece.tokens))
        self._events.at(arrival_ns, self._kv_part_arrived, (datacenter, piece.request))

    def _activation(self, now_ns: int, what: tuple[_Gpu, Piece]) -> None:
        gpu, piece = what
        gpu.filler.input_arrived(piece.request, piece.chunk)
        self._events.at(now_ns + self._latency_ns, self._activation_arrived, (gpu.datacenter, piece))
        self._fill(now_ns, gpu)

    def _kv_part_arrived(self, now_ns: int, what: tuple[_Datacenter, int]) -> None:
        datacenter, request = what
        datacenter.kv_missing[request] -= 1
        if not datacenter.kv_missing[request]:
            del datacenter.kv_missing[request]
            self._events.at(now_ns + self._latency_ns, self._kv_arrived, (datacenter, request))

    def _send(self, now_ns: int, source: str, destination: str, size_bytes: int) -> int:
        """Send ``size_bytes`` from now on. Return when the last byte arrives."""
        if source == destination:
            return now_ns
        sending = self._sending.setdefault(source, _Port())
        receiving = self._receiving.setdefault(destination, _Port())
        duration_ns = self._line.duration_ns(size_bytes)
        leaves_ns = max(now_ns, sending.free_ns)
        sending.free_ns = leaves_ns + duration_ns
        receiving.free_ns = max(leaves_ns + self._latency_ns, receiving.free_ns) + duration_ns
        return receiving.free_ns

    def _log(self, gpu: _Gpu, run: LayerRun, end_ns: int) -> None:
        if end_ns > run.start_ns:
            row = (gpu.number, _PREFILL, max(gpu.iteration, 0), _NO_MICROBATCH, run.start_ns, end_ns, 0, NO_PEER)
            self._rows.extend((*row, run.piece.request))
