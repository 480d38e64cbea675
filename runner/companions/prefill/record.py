"""Record the prefill of a trial: a row per request, and the facts, which are the same for both engines."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import Any

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import PrefillRequest
from wanbed.results.records.span_log import RankPlace, SpanLogContents
from wanbed.results.records.trial_tables import PREFILL_TABLE
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.simulator.simulation import Simulation
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.bubbletea.request import RequestRecord, count_outcomes
from wanbed.workloads.bubbletea.service_config import ServiceConfig

NO_GROUP = -1

NO_PLACE = -1
"""The pipeline and the stage of a GPU that does not train."""


def simulated(_: Topology, variant: ResolvedVariant, simulation: Simulation) -> TrialPart:
    """Return the prefill of a simulated trial, and the pool's GPUs, whose logs have no spans of their own."""
    service, prefill = variant.service, simulation.prefill
    if service is None or prefill is None:
        return TrialPart()
    facts = prefill_facts(
        service,
        prefill.records,
        deadline_overruns=prefill.deadline_overruns,
        overrun_ns=prefill.overrun_ns,
        margins_ns=prefill.margins_ns,
    )
    pool = [
        SpanLogContents(RankPlace(gpu.number, gpu.host, datacenter.name, gpu.index, NO_PLACE, NO_PLACE), (), True)
        for datacenter in service.datacenters
        for gpu in datacenter.gpus
        if gpu.number >= len(variant.placement.places)
    ]
    rows = prefill_rows(service, prefill.records, prefill.output_tokens)
    return TrialPart({PREFILL_TABLE: rows}, {"prefill": facts}, pool)


def prefill_rows(
    service: ServiceConfig, records: Iterable[RequestRecord], output_tokens: Mapping[int, int]
) -> list[PrefillRequest]:
    """Return one row per request, in order of arrival. ``output_tokens`` is by the request's number."""
    return [
        PrefillRequest(
            record.number,
            record.datacenter,
            record.prompt_tokens,
            output_tokens[record.number],
            record.outcome.value,
            "" if record.reason is None else record.reason.value,
            record.was_held,
            NO_GROUP if record.group is None else record.group,
            record.chunks,
            record.arrival_ns,
            record.admitted_ns,
            record.promised_ns,
            record.started_ns,
            record.prefilled_ns,
            record.kv_moved_ns,
            service.kv_sent_bytes(service.model.layers, record.prompt_tokens),
        )
        for record in sorted(records, key=lambda record: record.number)
    ]


def prefill_facts(
    service: ServiceConfig,
    records: Iterable[RequestRecord],
    *,
    deadline_overruns: int,
    overrun_ns: int,
    margins_ns: Sequence[int],
) -> dict[str, Any]:
    """Return the facts of prefill for trial.json.

    ``weight_bytes`` is the size of the model's weights on the GPU that has most of them. ``margins_ns`` holds the
    margin of each training GPU at the end of the trial: how long before the expected training it is returned.
    """
    groups = [group for datacenter in service.datacenters for group in datacenter.groups]
    return {
        "policy": service.settings.policy.value,
        "slo_ns": service.settings.slo_ns,
        "depth": service.depth,
        "model": service.model.name,
        "weight_bytes": _weight_bytes(service),
        "groups": len(groups),
        "pool_gpus": sum(len(group.gpus) for group in groups if group.pooled),
        "counts": count_outcomes(records, service.settings.slo_ns),
        "deadline_overruns": deadline_overruns,
        "overrun_ns": overrun_ns,
        "margin_ns": {
            "median": median_low(margins_ns) if margins_ns else None,
            "max": max(margins_ns, default=None),
        },
        "guard_ns": service.settings.guard_ns,
        "offered_rate_per_s": service.source.rate_per_s,
        "trace": service.source.name,
        "skipped_lines": service.source.skipped_lines,
    }


def _weight_bytes(service: ServiceConfig) -> int:
    model, last = service.model, service.depth - 1
    layers = enumerate(model.stage_layers(service.depth))
    return max(model.weight_bytes(count, embedding=stage == 0, head=stage == last) for stage, count in layers)
