"""Small planning tasks, and prices without a simulator: the makespan of Atlas's plan, then the all-reduce."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from wanbed.ground.strict_model import parse_model
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.planner.goal import FASTEST, Goal
from wanbed.runner.planner.planning import PlanningTask, planning_task
from wanbed.runner.planner.search_space import Candidate, IterationCost, Price, Pricing
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.testbed.network.price_list import PriceList
from wanbed.testbed.network.topology import Topology, resolve_topology

AS_PUBLISHED = {"split": "never"}
"""Options of Atlas as published, whose plans are made soonest."""

ATLAS = {
    "name": "atlas",
    "schedule": "atlas",
    "options": AS_PUBLISHED,
    "transport": {"connections": "auto", "sharing": "temporal"},
}


def document(gpus: dict[str, int], stages: int, **changes: Any) -> dict[str, Any]:
    """Return an experiment: hosts of one GPU, 10 ms of forward, and 1 MiB over 1 Gbit/s and 10 ms between DCs.

    ``prices`` has further fields of datacenters by name.
    """
    prices: Mapping[str, Any] = changes.pop("prices", {})
    return {
        "topology": {
            "datacenters": [{"name": name, "hosts": hosts, **prices.get(name, {})} for name, hosts in gpus.items()],
            "intra": {"latency": "50us", "rate": "100Gbit"},
            **({"wan": {"latency": "10ms", "rate": "100Gbit", "node_pair_rate": "1Gbit"}} if len(gpus) > 1 else {}),
            "links": changes.pop("links", []),
        },
        "model": "gpt-a",
        "compute": {"forward": "10ms", "activation": "1MiB", "gradient": "1MiB"},
        "training": {"stages": stages, "microbatches": 4},
        "variants": [ATLAS],
        **changes,
    }


def task_of(
    document: dict[str, Any], pipelines: int | None = None, position: int = 0, goal: Goal = FASTEST
) -> PlanningTask:
    spec = parse_model(ExperimentSpec, document, "exp.yaml")
    topology = resolve_topology(spec.topology)
    return planning_task(WrittenVariant(spec, position, topology, Path()), pipelines=pipelines, goal=goal)


def random_task(
    seed: int,
    schedule: str = "atlas",
    *,
    most_gpus: int = 8,
    options: Mapping[str, Any] | None = None,
    goal: Goal | None = None,
    **transport: Any,
) -> PlanningTask:
    """2 to 4 datacenters of so many GPUs at most, no two links alike, 2 to 6 stages that compute for unequally long.

    ``options`` are by default none, and those of ``AS_PUBLISHED`` for Atlas. With a ``goal`` datacenters have prices,
    and some links egress prices of their own.
    """
    if options is None:
        options = AS_PUBLISHED if schedule == "atlas" else {}
    random = Random(seed)
    names = ["north", "east", "south", "west"][: random.randint(2, 4)]
    hosts = {name: random.randint(1, most_gpus) for name in names}
    stages = random.randint(2, min(6, sum(hosts.values())))
    links = [
        {
            "between": [one, other],
            "latency": f"{random.choice([1, 5, 10, 20, 40, 80])}ms",
            "node_pair_rate": f"{random.choice([500, 1000, 2000, 5000])}Mbit",
            "rate": f"{random.choice([2, 10, 100])}Gbit",
        }
        for position, one in enumerate(names)
        for other in names[:position]
    ]
    prices = {}
    if goal is not None:
        of_prices = Random(f"prices {seed}")
        prices = {
            name: {
                "gpu_price": f"{of_prices.choice([0, 1, 1.5, 2, 4])}USD/h",
                "egress_price": f"{of_prices.choice([0, 0.01, 0.1, 1])}USD/GB",
            }
            for name in names
        }
        for link in of_prices.sample(links, k=len(links) // 2):
            link["egress_price"] = f"{of_prices.choice([0, 0.02, 0.5])}USD/GB"
    sharing: dict[str, Any] = random.choice(
        [{"sharing": "none"}, {"sharing": "temporal"}, {"sharing": "temporal", "pipelines_per_cell": 2}]
    )
    if sum(count // 2 for count in hosts.values()) < stages:
        sharing.pop("pipelines_per_cell", None)
    return task_of(
        document(
            hosts,
            stages,
            links=links,
            prices=prices,
            compute={
                "forward": [f"{random.randint(5, 30)}ms" for _ in range(stages)],
                "recompute": random.choice(["0ms", "5ms"]),
                "activation": f"{random.choice([1, 4, 16])}MiB",
                "gradient": f"{random.choice([1, 64])}MiB",
            },
            training={"stages": stages, "microbatches": random.choice([2, 4, 8])},
            variants=[
                {
                    **ATLAS,
                    "schedule": schedule,
                    "options": dict(options),
                    "transport": {"connections": "auto", **sharing, **transport},
                }
            ],
        ),
        goal=goal or FASTEST,
    )


def planned_pricing(
    topology: Topology, resolve: Callable[[Candidate], PipelineVariant], context: int, *_: object, **__: object
) -> Pricing:
    """Price without the simulator: the makespan of Atlas's plan, and the all-reduce over a ring of replicas."""

    def price(candidate: Candidate) -> Price:
        variant = resolve(candidate)
        assert variant.plan is not None
        ring_ns = max(variant.work.gradient_bytes) * 8e9 / (topology.intra_rate_bps or 1)
        pipelines, sequences = candidate.pipelines, variant.sequences_per_iteration
        iteration_time_s = (variant.plan.makespan_ns + 2 * (pipelines - 1) / pipelines * ring_ns) / 1e9
        busy_s = variant.microbatches * sum(variant.work.forward_ns + variant.work.backward_ns) / 1e9
        each_way_bytes = sequences * max(variant.work.activation_bytes, default=0)
        return Price(
            iteration_time_s,
            sequences * context / iteration_time_s,
            busy_s / (candidate.stages * iteration_time_s),
            2 * (len(candidate.runs) - 1) * each_way_bytes,
            cost=_cost(topology.prices, candidate, each_way_bytes),
        )

    return price


def _cost(prices: PriceList | None, candidate: Candidate, each_way_bytes: int) -> IterationCost | None:
    if prices is None:
        return None
    ways = [way for one, other in pairwise(candidate.datacenters) for way in ((one, other), (other, one))]
    gpus = {name: stages * candidate.pipelines for name, stages in candidate.runs}
    # More than the payload, as headers make it.
    return IterationCost(prices.gpus_usd_per_h(gpus), prices.egress_usd(dict.fromkeys(ways, 1.1 * each_way_bytes)))


def pricing_of(task: PlanningTask) -> Pricing:
    return planned_pricing(task.topology, task.resolve, task.counted_per_sequence)
