"""Resolve the section ``prefill`` and a variant's placement into the prefill service beside its training."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from wanbed.ground.errors import InputError, did_you_mean, prefixed
from wanbed.ground.exclusions import Declared, Exclusion, Refusal
from wanbed.runner.companions.prefill.spec import DRAWN, MEASURED, PrefillSpec, TokensSpec
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.cell_costs import cell_costs
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import StagePlace
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.topology import Datacenter, Topology
from wanbed.workloads.bubbletea.bubble_forecast import IterationPlan, PlannedAction, planned_iterations
from wanbed.workloads.bubbletea.group_timeline import ChunkTimes
from wanbed.workloads.bubbletea.prefill_group import GroupGpus, PrefillGroup, SharedGpuMemory
from wanbed.workloads.bubbletea.prefill_profile import UNMEASURED, PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings
from wanbed.workloads.bubbletea.profile_files import load_prefill_profile
from wanbed.workloads.bubbletea.request_source import RequestSource, SourceKind, TokenCount
from wanbed.workloads.bubbletea.request_traces import RequestTrace, scaled
from wanbed.workloads.bubbletea.service_config import DatacenterService, ServiceConfig, ServingGpu
from wanbed.workloads.bubbletea.trace_formats import ArrivalUnit, TraceColumns
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceModel, InferenceWork

_UNLIMITED_BPS = 10**15
"""Replaces an unlimited rate where a duration must be computed."""


def with_service(variant: ResolvedVariant, written: WrittenVariant) -> ResolvedVariant:
    """Return the variant, resolved from ``written``, with its prefill service, if it has one.

    Raise InputError, one line with field and remedy.
    """
    spec, topology, directory = written.spec, written.topology, written.directory
    prefill = spec.prefill
    if prefill is None:
        return variant
    policy = FillPolicy(variant.spec.prefill or FillPolicy.PLANNED)
    if policy is FillPolicy.NONE and not variant.spec.pool:
        return variant
    model = INFERENCE_MODELS[prefill.model]
    inference = inference_work(spec, model)
    profile = _profile(prefill.profile, model, directory, computed=inference is not None)
    settings = _settings(prefill, policy, model, topology, variant.transport)
    datacenters = _Seating(variant, written, prefill, policy).datacenters()
    _check_memory(datacenters, model, ChunkTimes(model, profile, settings), settings)
    service = ServiceConfig(
        datacenters,
        model,
        profile,
        settings,
        _request_source(prefill, spec.seed, directory),
        prefill.depth,
        prefill.kv or model.kv_bytes(model.layers, 1),
        prefill.activation or model.activation_bytes(1),
        inference,
    )
    return replace(variant, service=service)


def _profile(name_or_path: str, model: InferenceModel, directory: Path, *, computed: bool) -> PrefillProfile:
    if name_or_path == MEASURED:
        if not computed:
            raise InputError(
                f"prefill.profile: {MEASURED}: there are times to measure where torch computes on a testbed: "
                "give compute: {kind: torch} and engine: emulate, or the name of a profile"
            )
        return UNMEASURED
    try:
        return load_prefill_profile(name_or_path, model, relative_to=directory)
    except InputError as refusal:
        text = str(refusal).removeprefix("prefill.profile: ")
        also = f", or give {MEASURED}" if computed else ""
        raise InputError(f"prefill.profile: {text}{also}") from None


def _settings(
    prefill: PrefillSpec, policy: FillPolicy, model: InferenceModel, topology: Topology, transport: TransportSpec
) -> PrefillSettings:
    rate_bps: float = _UNLIMITED_BPS if topology.intra_rate_bps is None else topology.intra_rate_bps
    if transport.model != "ideal":
        rate_bps = tcp_goodput_bps(rate_bps, topology.mtu_bytes)
    # The controller counts the model's full bytes. If fewer are sent, the path is faster in these bytes.
    scale = min(
        model.kv_bytes(model.layers, 1) / (prefill.kv or model.kv_bytes(model.layers, 1)),
        model.activation_bytes(1) / (prefill.activation or model.activation_bytes(1)),
    )
    return PrefillSettings(
        slo_ns=prefill.slo,
        policy=policy,
        chunk_tokens=prefill.chunk,
        guard_ns=prefill.guard,
        warmup_iterations=prefill.warmup,
        dispatch_ns=topology.intra_latency_ns,
        transfer_latency_ns=topology.intra_latency_ns,
        transfer_rate_bps=max(1, round(rate_bps * scale)),
    )


def _check_memory(
    datacenters: Sequence[DatacenterService], model: InferenceModel, times: ChunkTimes, settings: PrefillSettings
) -> None:
    """Raise InputError if the weights do not fit beside training. One group of each kind stands for all."""
    checked = set()
    for group in (group for datacenter in datacenters for group in datacenter.groups):
        if group.pooled in checked:
            continue
        checked.add(group.pooled)
        try:
            PrefillGroup(0, group, model, times, settings)
        except ValueError as fault:
            reason = str(fault).partition("memory: ")[2] or str(fault)
            raise InputError(f"prefill.memory: {reason}, or more memory") from None


def _request_source(prefill: PrefillSpec, seed: int, directory: Path) -> RequestSource:
    if prefill.drawn:
        assert prefill.rate is not None
        return RequestSource(
            prefill.trace,
            SourceKind(prefill.trace),
            prefill.rate,
            seed,
            1.0 if prefill.variation is None else prefill.variation,
            _token_count(prefill.prompt, _PROMPT),
            _token_count(prefill.output, _OUTPUT),
        )
    path = directory / prefill.trace
    if not path.is_file():
        remedy = did_you_mean(prefill.trace, DRAWN, "give poisson, gamma, or the path of a trace")
        raise InputError(f"prefill.trace: {path} is no file: {remedy}")
    path = path.resolve()
    written = prefill.columns
    columns = (
        None
        if written is None
        else TraceColumns(written.arrival, written.prompt, written.output, ArrivalUnit(written.unit))
    )
    trace, digest = _read(path, path.stat().st_mtime_ns, prefill.skip_bad_lines, columns)
    if prefill.rate is not None:
        with prefixed("prefill.rate: "):
            trace = scaled(trace, prefill.rate)
    rate_per_s = prefill.rate or trace.mean_rate_per_s
    return RequestSource(
        trace.name,
        SourceKind.FILE,
        min(rate_per_s, 1e9),
        seed,
        path=str(path),
        digest=digest,
        columns=columns,
        stretched=prefill.rate is not None,
        skipped_lines=trace.skipped,
    )


@lru_cache(maxsize=8)
def _read(
    path: Path, _modified_ns: int, skip_bad_lines: bool, columns: TraceColumns | None
) -> tuple[RequestTrace, str]:
    """Return a trace and the SHA-256 of its file. A trace that several sweep points and variants use is read once."""
    # numpy comes with it, and few experiments read a trace of requests.
    from wanbed.workloads.bubbletea.trace_reading import read_trace  # noqa: PLC0415

    trace = read_trace(path, columns=columns, skip_bad_lines=skip_bad_lines)
    return trace, sha256(path.read_bytes()).hexdigest()


def _token_count(written: int | TokensSpec | None, default: TokenCount) -> TokenCount:
    if written is None:
        return default
    return TokenCount(written) if isinstance(written, int) else TokenCount(written.median, written.spread)


def inference_work(spec: ExperimentSpec, model: InferenceModel) -> InferenceWork | None:
    """Return the inference work that torch computes, None if prefill is replayed or simulated."""
    if spec.engine == "simulate" or not spec.compute.backend.computes_prefill:
        return None
    compute = spec.compute
    device = DeviceSettings(compute.device or "auto", compute.threads or 1, bool(compute.deterministic))
    return InferenceWork(model, spec.seed, device)


def prefill_refusals(spec: ExperimentSpec, variants: Iterable[ResolvedVariant]) -> Iterator[Declared]:
    """Yield prefill that torch cannot compute in bubbles.

    The tensors that torch makes have a fixed size, so ``kv`` and ``activation`` cannot be configured. The ranks of
    torch's baseline schedules are not this project's, so their bubbles cannot be filled.
    """
    for position, variant in enumerate(variants):
        service = variant.service
        if service is None or service.inference is None:
            continue
        yield Exclusion(
            ("prefill.kv", "prefill.activation"),
            "where torch computes, what it has made is sent",
            "give compute: {kind: replay}",
            given_in=spec,
        )
        if isinstance(variant, BaselineVariant) and service.settings.policy is not FillPolicy.NONE:
            yield Refusal(
                f"variants.{position}.prefill: {variant.schedule} is run by torch itself, whose bubbles are "
                "not filled: give the variant prefill: none, or another schedule"
            )


def check_memory_for_weights(services: Iterable[ServiceConfig], machine_bytes: int | None = None) -> None:
    """Raise InputError if the weights that torch makes on the CPU do not fit into the memory of this machine.

    Each group of GPUs and each decode host holds one copy of the model, all in processes of this machine.
    ``machine_bytes`` defaults to this machine's memory.
    """
    if machine_bytes is None:
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for service in services:
        work = service.inference
        if work is None:
            continue
        model, copies = service.model, 0
        for datacenter in service.datacenters:
            trained = service.settings.policy is not FillPolicy.NONE
            copies += sum(group.pooled or trained for group in datacenter.groups) + len(datacenter.decode_hosts)
        weight_bytes = copies * model.weight_bytes(model.layers, embedding=True, head=True)
        if weight_bytes > machine_bytes:
            raise InputError(
                f"prefill.model: {model.name} {copies} times, in each group of GPUs and at each host that decodes, "
                f"takes {weight_bytes / 2**30:.1f} of this machine's {machine_bytes / 2**30:.1f} GiB: give a smaller "
                "model, or compute: {kind: replay}"
            )


OPTIMIZER = ("optimizer", -1)
"""The key of the optimizer in a forecast. The other keys are those of the microbatches' actions."""


def planned_bubbles(topology: Topology, variant: PipelineVariant) -> dict[int, IterationPlan]:
    """Return the planned actions of every rank; {} if the schedule is not planned or its plan deadlocks.

    {} too where an iteration has several flushes, of which the plan is one.

    The optimizer follows a rank's last action directly, as if the all-reduce in between took no time. No bubble is
    filled there until an iteration has shown how long the all-reduce takes.
    """
    if variant.plan is None or variant.flushes > 1:
        return {}
    work, costs = variant.work, cell_costs(topology, variant)
    try:
        planned = planned_iterations(variant.plan, costs, max(work.optimizer_ns))
    except ValueError:
        # Training deadlocks with such a plan, and its error message has more detail.
        return {}
    return {
        variant.placement.rank(place): _with_optimizer(
            planned[place.pipeline % variant.pipelines_per_cell, place.stage], work.optimizer_ns[place.stage]
        )
        for place in variant.placement.places
    }


def _with_optimizer(plan: IterationPlan, duration_ns: int) -> IterationPlan:
    if not duration_ns:
        return plan
    end_ns = plan.actions[-1].end_ns
    return replace(plan, actions=(*plan.actions, PlannedAction(OPTIMIZER, end_ns, end_ns + duration_ns)))


_PROMPT, _OUTPUT = TokenCount(1024), TokenCount(128)


class _Seating:
    """Assign GPUs to prefill groups.

    The training GPUs of a datacenter are taken stage by stage, so that replicas of a stage, which have similar bubbles,
    are in the same group. GPUs that do not fill a whole group are not used. Groups of the pool go to the datacenters in
    turn, as far as the GPUs of their serving hosts allow.
    """

    def __init__(
        self, variant: ResolvedVariant, written: WrittenVariant, prefill: PrefillSpec, policy: FillPolicy
    ) -> None:
        self._prefill = prefill
        self._variant, self._policy, self._topology = variant, policy, written.topology
        self._pool_field = f"{written.field}.pool"
        self._memory = SharedGpuMemory(prefill.memory, prefill.training_memory)
        self._pool_memory = SharedGpuMemory(prefill.memory, 0)

    def datacenters(self) -> tuple[DatacenterService, ...]:
        """Return the service of each datacenter that has at least one group."""
        pools = self._pool_groups()
        number = len(self._variant.placement.places)
        services = []
        for position, datacenter in enumerate(self._topology.datacenters):
            gpus, groups = self._trained(position, datacenter) if self._policy is not FillPolicy.NONE else ([], [])
            count = pools[position] * self._prefill.depth
            seats = [(host.name, index) for host in datacenter.serving_hosts for index in range(host.serving_gpus)]
            pool = [ServingGpu(number + place, *seat) for place, seat in enumerate(seats[:count])]
            number += count
            groups = groups + self._grouped(pool, self._pool_memory, pooled=True)
            if not groups:
                continue
            serving = tuple(host.name for host in datacenter.serving_hosts)
            if not serving:
                raise InputError(
                    f"topology.datacenters.{position}.serving_hosts: prefill in {datacenter.name} "
                    "needs a host that decodes what it prefills: give serving_hosts: 1"
                )
            services.append(
                DatacenterService(
                    datacenter.name, tuple(groups), (*gpus, *pool), serving[0], serving, weight=len(groups)
                )
            )
        return tuple(services)

    def _trained(self, position: int, datacenter: Datacenter) -> tuple[list[ServingGpu], list[GroupGpus]]:
        placement, depth = self._variant.placement, self._prefill.depth
        places: list[StagePlace] = sorted(
            (place for place in placement.places if place.datacenter == datacenter.name),
            key=lambda place: (place.stage, place.pipeline),
        )
        if 0 < len(places) < depth:
            raise InputError(
                f"prefill.depth: {depth} GPUs a request, where {datacenter.name} trains on "
                f"{len(places)}: give a smaller depth, or more hosts in topology.datacenters.{position}"
            )
        used = places[: len(places) // depth * depth]
        gpus = [ServingGpu(placement.rank(place), place.host.name, place.gpu) for place in used]
        return gpus, self._grouped(gpus, self._memory, pooled=False)

    def _grouped(self, gpus: Sequence[ServingGpu], memory: SharedGpuMemory, *, pooled: bool) -> list[GroupGpus]:
        depth = self._prefill.depth
        return [
            GroupGpus(tuple(gpu.number for gpu in gpus[first : first + depth]), (memory,) * depth, pooled)
            for first in range(0, len(gpus), depth)
        ]

    def _pool_groups(self) -> list[int]:
        """Return the number of pool groups of each datacenter."""
        pool_gpus, depth = self._variant.spec.pool, self._prefill.depth
        if pool_gpus % depth:
            raise InputError(
                f"{self._pool_field}: {pool_gpus} GPUs make no whole groups of {depth}: give a multiple of "
                "prefill.depth"
            )
        room = [
            sum(host.serving_gpus for host in datacenter.serving_hosts) // depth
            for datacenter in self._topology.datacenters
        ]
        if pool_gpus // depth > sum(room):
            raise InputError(
                f"{self._pool_field}: {pool_gpus} GPUs in groups of {depth}, where the hosts that serve have room for "
                f"{sum(room)} such groups: give topology.datacenters more serving_hosts"
            )
        had = [0] * len(room)
        for _ in range(pool_gpus // depth):
            chosen = min((count, place) for place, count in enumerate(had) if count < room[place])[1]
            had[chosen] += 1
        return had
