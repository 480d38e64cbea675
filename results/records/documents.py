"""Define a run's JSON documents, manifest.json and trial.json: they are checked when written and when read.

Only fields that something reads are listed here, and of these only a few are required: older and newer runs have
others.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator, model_validator

from wanbed.ground.impairments import IMPAIRMENTS

SIMULATE = "simulate"
"""The engine whose links are as configured by construction, but for what it does not model: nothing is calibrated."""

TIMES_DRAWN = "compute_times_drawn"
"""The fact of a trial whose compute times were drawn: then even simulated repeats differ."""

Int32 = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(gt=0, lt=2**63)]
Number = Annotated[float, Field(ge=0, lt=2**63, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, lt=2**63, allow_inf_nan=False)]
Document = dict[str, Any]

_Model = TypeVar("_Model", bound=BaseModel)


class _Facts(BaseModel):
    """A part of a document. Types are exact, null means unknown where allowed, and unlisted fields may be anything."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, defer_build=True)


def _with_impairments(model: type[_Model]) -> type[_Model]:
    """Add what a link does to packets to its facts."""
    fields: dict[str, Any] = {each.field: (Number | None, None) for each in IMPAIRMENTS}
    return create_model(model.__name__, __base__=model, **fields)


@_with_impairments
class _Link(_Facts):
    """A link in both directions, with ``between``, or one direction of it, with ``from`` and ``to``."""

    between: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    source: str | None = Field(default=None, alias="from")
    destination: str | None = Field(default=None, alias="to")
    latency_ns: Number | None = None
    rate_bps: Number | None = None
    node_pair_rate_bps: Number | None = None

    @model_validator(mode="after")
    def _has_ends(self) -> "_Link":
        if self.between is None and (self.source is None or self.destination is None):
            raise ValueError("it has neither between nor from and to")
        return self


class _ResolvedVariant(_Facts):
    work: Document | None = None


class _NotModelled(_Facts):
    field: str
    asked: str
    links: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(default_factory=list)
    directions: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(default_factory=list)
    variants: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _concerns_links_or_variants(self) -> "_NotModelled":
        if bool(self.links or self.directions) == bool(self.variants):
            raise ValueError("it concerns either links or variants")
        return self


class _SweepPoint(_Facts):
    index: Int32
    sweep_point: dict[str, str]
    tokens_per_iteration: Count | None = None
    wan: list[_Link] | None = None
    not_modelled: list[_NotModelled] | None = None
    planned_without: list[_NotModelled] | None = None
    variants: dict[str, _ResolvedVariant | None] | None = None


class _Variant(_Facts):
    name: str
    training: Document | None = None


class _Datacenter(_Facts):
    name: str
    hosts: Count = 1


class _Topology(_Facts):
    datacenters: list[_Datacenter] | None = None


class _Experiment(_Facts):
    topology: _Topology | None = None
    variants: list[_Variant] | None = None
    repeats: Positive | None = None

    @field_validator("topology", mode="before")
    @classmethod
    def _left_to_the_parser_of_experiments(cls, topology: object) -> object:
        return topology if isinstance(topology, dict) else None


class _Substrate(_Facts):
    name: str | None = None
    reason: str | None = None
    kernel: str | None = None
    tcp: str | None = None


class _VirtualTime(_Facts):
    kernel: str | None = None
    configuration_hash: str | None = None


class _Git(_Facts):
    revision: str | None = None
    dirty: bool | None = None


class _Host(_Facts):
    memory_bytes: Count | None = None


class _Settings(_Facts):
    """The settings that a trial may record itself in place of the manifest."""

    engine: str | None = None
    clock: str | None = None
    dilation: Factor | None = None
    warmup_iterations: Int32 | None = None
    tokens_per_iteration: Count | None = None


class Manifest(_Settings):
    """manifest.json: what was run, on what."""

    name: str
    created: str
    config_hash: str
    complete: bool
    ended: str | None = None
    repeats: Positive | None = None
    seed: int | None = None
    experiment: _Experiment | None = None
    variants: list[_Variant] = Field(default_factory=list)
    sweep_points: list[_SweepPoint] = Field(default_factory=list)
    training: Document | None = None
    substrate: _Substrate | None = None
    virtual_time: _VirtualTime | None = None
    git: _Git | None = None
    host: _Host | None = None
    versions: Document | None = None
    sysctls: Document | None = None
    offloads: Document | None = None


class _MachineLoad(_Facts):
    saturated: Number | None = None
    network: Number | None = None


class _Carried(_Facts):
    sent_bytes: Count
    carried_bytes: Count
    short: list[Annotated[tuple[str, str, Count, Count], Field(strict=False)]]


class _Prefill(_Facts):
    policy: str | None = None
    pool_gpus: Int32 | None = None
    slo_ns: Count | None = None
    deadline_overruns: Count | None = None
    overrun_ns: Count | None = None


class _Bound(_Facts):
    time_ns: Count
    part: str


class _Beside(_Facts):
    job: str
    variant: str
    others: list[str]
    until_ns: Count


class _Synchronization(_Facts):
    sync_every: Positive
    fragments: Positive
    delay: Count


class _Activation(_Facts):
    wire: str
    kept_of_1024: Positive | None = None
    error_feedback: bool
    boundaries: list[Count]


class _Averages(_Facts):
    sums: Positive
    fewest_parts: Positive
    most_parts: Positive
    late_parts: Count
    dropped_parts: Count


class _Prices(_Facts):
    gpus_usd_per_h: Number
    egress_usd_per_gb: list[Annotated[tuple[str, str, Number], Field(strict=False)]]
    iterations: Positive


class _Disturbance(_Facts):
    faults: list[str]
    at_ns: int | None = None
    iterations_lost: Count | None = None
    lost_work_ns: Count | None = None
    time_to_detect_ns: int | None = None
    time_to_recover_ns: int | None = None


class _Injected(_Facts):
    fault: str
    ranks: list[Any]


class _Faults(_Facts):
    outcome: Literal["undisturbed", "survived", "recovered", "failed"]
    reason: str | None = None
    iterations_planned: Count | None = None
    iterations_completed: Count | None = None
    iterations_lost: Count | None = None
    training_goodput: Number | None = None
    disturbances: list[_Disturbance] = Field(default_factory=list)
    injected: list[_Injected] = Field(default_factory=list)


class _Plan(_Facts):
    by_rates_s: Number | None = None
    computing_s: list[Number] | None = None
    transfer_s: list[Number] | None = None


class _KnownMiss(_Facts):
    name: str
    what: str
    low: Annotated[float, Field(ge=-1, le=0)]
    high: Annotated[float, Field(ge=0, lt=2**63, allow_inf_nan=False)]
    cells: Positive
    figure: str


class TrialFacts(_Settings):
    """trial.json: what holds for one trial alone."""

    sweep_point: Int32
    variant: str
    repeat: Int32
    machine_load: _MachineLoad | None = None
    carried: _Carried | None = None
    rdma_sent_bytes: dict[str, Count] | None = None
    prices: _Prices | None = None
    period_bound: _Bound | None = None
    makespan_bound: _Bound | None = None
    planned_makespan_s: Factor | None = None
    plan: _Plan | None = None
    all_reduce_wan_ratio: list[Number] | None = None
    equal_parts: Positive | None = None
    beside: _Beside | None = None
    synchronization: _Synchronization | None = None
    activation: _Activation | None = None
    averages: _Averages | None = None
    profiled_iterations: Count | None = None
    program: Document | None = None
    torch_times_of_profile: str | None = None
    compute_times_drawn: bool | None = None
    prefill: _Prefill | None = None
    faults: _Faults | None = None
    known_misses: list[_KnownMiss] | None = None
    connections_cut: list[Annotated[tuple[str, str, Count, Number], Field(strict=False)]] | None = None
    connections: list[Annotated[list[str | int], Field(min_length=3, max_length=3)]] | None = None
