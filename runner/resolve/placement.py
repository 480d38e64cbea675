"""Place each stage of each pipeline on a GPU: evenly and contiguously, unless a variant says otherwise."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from wanbed.ground.errors import InputError, did_you_mean
from wanbed.results.text import count_text
from wanbed.testbed.network.topology import Datacenter, Host, Topology
from wanbed.workloads.schedules.pipeline_shape import VirtualStages

ConfiguredPlacement = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class StagePlace:
    """The GPU of one stage of one pipeline; ``gpu`` counts from 0 inside its host."""

    pipeline: int
    stage: int
    host: Host
    gpu: int

    @property
    def datacenter(self) -> str:
        """The datacenter of the host."""
        return self.host.datacenter


Pair = tuple[StagePlace, StagePlace]


@dataclass(frozen=True)
class Placement:
    """The places of every pipeline's stages, in order, each on its own GPU."""

    pipelines: tuple[tuple[StagePlace, ...], ...]

    def __post_init__(self) -> None:
        for pipeline, places in enumerate(self.pipelines):
            if [(place.pipeline, place.stage) for place in places] != [
                (pipeline, stage) for stage in range(self.stages)
            ]:
                raise ValueError("stages are placed in order, each of them once in every pipeline")
        gpus = {(place.host.name, place.gpu) for place in self.places}
        if len(gpus) < len(self.places) or any(not 0 <= place.gpu < place.host.gpus for place in self.places):
            raise ValueError("each stage needs a GPU of its own")

    @property
    def stages(self) -> int:
        """The number of stages in each pipeline."""
        return len(self.pipelines[0])

    @cached_property
    def places(self) -> tuple[StagePlace, ...]:
        """Every place, pipeline by pipeline. The position of a place is its rank."""
        return tuple(place for pipeline in self.pipelines for place in pipeline)

    @property
    def gpus_by_datacenter(self) -> dict[str, int]:
        """The number of GPUs that train in each datacenter."""
        return Counter(place.datacenter for place in self.places)

    def rank(self, place: StagePlace) -> int:
        """Return the rank that computes there: ``pipeline x stages + stage``."""
        return place.pipeline * self.stages + place.stage

    def replicas(self, stage: int) -> tuple[StagePlace, ...]:
        """Return the places of one stage, one for each pipeline, in order of the pipelines."""
        return tuple(pipeline[stage] for pipeline in self.pipelines)

    @property
    def boundaries(self) -> tuple[Pair, ...]:
        """Each stage with the next stage of its pipeline. These neighbours exchange activations and gradients."""
        return tuple(pair for pipeline in self.pipelines for pair in pairwise(pipeline))

    def chain(self, pipeline: int, virtual: VirtualStages) -> tuple[StagePlace, ...]:
        """Return the place of each virtual stage of a pipeline, in the order of the model."""
        places = self.pipelines[pipeline]
        return tuple(places[virtual.stage_of(number)] for number in range(virtual.count))

    def crosses_wan(self, boundary: int) -> bool:
        """Return whether stages ``boundary`` and ``boundary + 1`` lie in different datacenters, in any pipeline."""
        return boundary in self._wan_boundaries

    @cached_property
    def _wan_boundaries(self) -> frozenset[int]:
        """The boundaries that cross the WAN in any pipeline."""
        ways = {tuple(place.host.datacenter for place in pipeline) for pipeline in self.pipelines}
        return frozenset(at for way in ways for at, (one, other) in enumerate(pairwise(way)) if one != other)


def ring_order(places: Sequence[StagePlace]) -> tuple[StagePlace, ...]:
    """Return the places in an order that enters each datacenter once, the one of the first place first."""
    first_seen = {place.datacenter: position for position, place in reversed(list(enumerate(places)))}
    return tuple(sorted(places, key=lambda place: first_seen[place.datacenter]))


def place_ranks(topology: Topology, ranks: int, field: str) -> Placement:
    """Place rank r on the r-th GPU of the topology, each as one stage of a single pipeline.

    Raise InputError, which begins with ``field``, for more ranks than GPUs.
    """
    gpus = [(host, gpu) for datacenter in topology.datacenters for host in datacenter.hosts for gpu in range(host.gpus)]
    if ranks > len(gpus):
        raise InputError(f"{field}: it has {ranks} ranks, and the hosts have {len(gpus)} GPUs: add hosts or GPUs")
    return Placement((tuple(StagePlace(0, rank, *gpus[rank]) for rank in range(ranks)),))


def place_stages(
    topology: Topology,
    stages: int,
    pipelines: int = 1,
    configured: ConfiguredPlacement | None = None,
    *,
    whole_replicas: bool = False,
) -> Placement:
    """Place each of ``stages`` stages of each of ``pipelines`` pipelines on a GPU.

    Datacenters take consecutive stages, in the topology's order, as evenly as their GPUs allow. A remainder goes to
    the first datacenters; stages that do not fit into one go to those with free GPUs. All replicas of a stage are in
    one datacenter, so that their all-reduce does not cross the WAN. With ``whole_replicas`` the same rule spreads the
    pipelines, each inside one datacenter. ``configured`` replaces the rule: it names the datacenter of each stage, in
    one list for all pipelines or one list for each. Inside a datacenter the same rule spreads a pipeline's stages over
    the hosts, one pipeline after the other.

    Raise InputError, which names ``training.stages`` for more stages than GPUs, and ``placement`` for a configured list
    with a wrong length, an unknown datacenter, or more stages in a datacenter than it has GPUs.
    """
    gpus = [_gpus(datacenter) for datacenter in topology.datacenters]
    if configured is not None:
        homes = _configured_homes(topology, stages, pipelines, configured)
    elif whole_replicas:
        room = [count // stages for count in gpus]
        rule = "each pipeline inside one datacenter"
        _check_room(topology, stages, pipelines, fits=sum(room) >= pipelines, rule=rule)
        homes = [[name] * stages for name in _named_shares(topology, pipelines, room)]
    else:
        room = [count // pipelines for count in gpus]
        rule = "replicas of a stage in one datacenter"
        _check_room(topology, stages, pipelines, fits=sum(room) >= stages, rule=rule)
        homes = [_named_shares(topology, stages, room)] * pipelines
    seats = {
        datacenter.name: iter(_seats(datacenter, sum(names.count(datacenter.name) for names in homes)))
        for datacenter in topology.datacenters
    }
    return Placement(
        tuple(
            tuple(StagePlace(pipeline, stage, *next(seats[name])) for stage, name in enumerate(names))
            for pipeline, names in enumerate(homes)
        )
    )


def _check_room(topology: Topology, stages: int, pipelines: int, *, fits: bool, rule: str) -> None:
    gpus = {datacenter.name: _gpus(datacenter) for datacenter in topology.datacenters}
    available = ", ".join(f"{name} {count}" for name, count in gpus.items())
    of_one = count_text(stages, "stage")
    wanted = of_one if pipelines == 1 else f"{pipelines} pipelines of {of_one}"
    if stages * pipelines > sum(gpus.values()):
        raise InputError(
            f"training.stages: {wanted} need {stages * pipelines} GPUs, one each, and the hosts have "
            f"{sum(gpus.values())} ({available}): add hosts or use fewer stages"
        )
    if not fits:
        raise InputError(
            f"training.stages: {wanted}, {rule}, do not fit the GPUs of the datacenters ({available}): add hosts, use "
            "fewer stages, or give a placement"
        )


def _configured_homes(
    topology: Topology, stages: int, pipelines: int, configured: ConfiguredPlacement
) -> list[Sequence[str]]:
    """Return the configured datacenter of each stage of each pipeline."""
    homes: list[Sequence[str]] = []
    for names in configured:
        if not isinstance(names, str):
            homes.append(names)
    if not homes:
        homes = [[name for name in configured if isinstance(name, str)]] * pipelines
        where = ["placement"] * pipelines
    else:
        where = [f"placement.{pipeline}" for pipeline in range(len(homes))]
    if len(homes) != pipelines:
        raise InputError(f"placement: {len(homes)} lists for {pipelines} pipelines, give one for each, or a single one")
    known = [datacenter.name for datacenter in topology.datacenters]
    for names, place in zip(homes, where, strict=True):
        if len(names) != stages:
            raise InputError(f"{place}: a list of {len(names)} for {stages} stages, name one datacenter for each stage")
        for stage, name in enumerate(names):
            if name not in known:
                remedy = did_you_mean(name, known, f"there are {', '.join(known)}")
                raise InputError(f"{place}.{stage}: no datacenter {name!r}, {remedy}")
    for datacenter in topology.datacenters:
        wanted, available = sum(list(names).count(datacenter.name) for names in homes), _gpus(datacenter)
        if wanted > available:
            raise InputError(
                f"placement: {wanted} stages in {datacenter.name}, whose hosts have {available} GPUs: add hosts there "
                "or place stages elsewhere"
            )
    return homes


def _named_shares(topology: Topology, count: int, room: Sequence[int]) -> list[str]:
    shares = _even_split(count, room)
    return [dc.name for dc, share in zip(topology.datacenters, shares, strict=True) for _ in range(share)]


def _gpus(datacenter: Datacenter) -> int:
    return sum(host.gpus for host in datacenter.hosts)


def _seats(datacenter: Datacenter, stages: int) -> list[tuple[Host, int]]:
    shares = _even_split(stages, [host.gpus for host in datacenter.hosts])
    return [(host, gpu) for host, share in zip(datacenter.hosts, shares, strict=True) for gpu in range(share)]


def _even_split(count: int, room: Sequence[int]) -> list[int]:
    """Split ``count``, at most the sum of ``room``, into one part per entry of ``room``, none larger than its entry.

    Parts differ by more than 1 only where ``room`` limits one.
    """
    level, left = 0, count
    while True:
        free = [index for index, most in enumerate(room) if most > level]
        if left < len(free):
            break
        rise = min(left // len(free), min(room[index] for index in free) - level) if free else 0
        if rise == 0:
            break
        level, left = level + rise, left - rise * len(free)
    shares = [min(most, level) for most in room]
    for index in free[:left]:
        shares[index] += 1
    return shares
