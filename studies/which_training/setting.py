"""State what all methods share, and list the settings that are tried at every WAN for each method.

The fastest of a method's settings is what the method is worth at a WAN.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from wanbed.testbed.network.tcp_settings import DEFAULT_WINDOW_BYTES

DATACENTERS = ("east", "central", "west")

GPUS_EACH = 4
"""GPUs of a datacenter, one a host."""

CONTEXT = 4096

SEQUENCES = 240

TOKENS = CONTEXT * SEQUENCES
"""Tokens of an iteration, with every method."""

MODEL: dict[str, Any] = {"layers": 31, "hidden": 2560, "context": CONTEXT, "heads": 32, "vocabulary": 32000}
"""2.6 billion weights. The head takes about as long as a layer: 31 layers and a head are shared out evenly."""

LATENCIES_MS = (10, 25, 50, 100)

RATES_BPS = (100_000_000, 300_000_000, 1_000_000_000, 3_000_000_000, 10_000_000_000)

NODE_PAIR_BPS = 5_000_000_000
"""The most that a pair of hosts sends over the WAN, as clouds limit it (the cap of Atlas's paper)."""

SYNC_EVERY = 30
"""Iterations from one synchronisation of replicas that train alone to the next, here and where losses are measured."""


class Method(StrEnum):
    """A way to train across datacenters, and, to compare, one datacenter alone."""

    ONE = "one datacenter"
    ATLAS = "Atlas"
    VARUNA = "Varuna"
    HIERARCHICAL = "hierarchical DP"
    DILOCO = "DiLoCo"
    STREAMING = "Streaming DiLoCo"
    ATOM = "ATOM"

    @property
    def synchronous(self) -> bool:
        """Tell whether every iteration sums the gradients of all sequences, as data parallelism does."""
        return self not in {Method.DILOCO, Method.STREAMING, Method.ATOM}


@dataclass(frozen=True, order=True)
class Wan:
    """A WAN of the map: the one-way latency and the trunk's rate between every two datacenters."""

    latency_ms: int
    rate_bps: int

    def __post_init__(self) -> None:
        if min(self.latency_ms, self.rate_bps) < 1:
            raise ValueError(f"{self}: latency and rate are to be above 0")

    @property
    def node_pair_bps(self) -> int:
        """The rate between two hosts."""
        return min(self.rate_bps, NODE_PAIR_BPS)

    @property
    def in_flight_bytes(self) -> int:
        """The bytes that a node pair holds: rate x round trip."""
        return self.node_pair_bps * 2 * self.latency_ms // 8000

    @property
    def rate_gbps_text(self) -> str:
        """The trunk's rate in Gbit/s, as tables have it."""
        return f"{self.rate_bps / 1e9:g}"


WANS = tuple(Wan(latency_ms, rate_bps) for latency_ms in LATENCIES_MS for rate_bps in RATES_BPS)


def topology(wan: Wan) -> dict[str, Any]:
    """Return the experiment's section ``topology`` for a WAN."""
    return {
        "datacenters": [{"name": name, "hosts": GPUS_EACH} for name in DATACENTERS],
        "intra": {"rate": "100Gbit"},
        "wan": {
            "latency": f"{wan.latency_ms}ms",
            "rate": f"{wan.rate_bps}bit",
            "node_pair_rate": f"{wan.node_pair_bps}bit",
        },
    }


THREE_DATACENTERS = ((3, 4), (6, 2))
"""Stages and pipelines over three datacenters."""

TWO_DATACENTERS = ((2, 4), (4, 2))
"""Stages and pipelines over two of them; the third stands idle."""

SHARED_BY_FOUR_BPS = 1_000_000_000
"""From this rate on Atlas also tries four pipelines that share; below, two at most."""

ROOMY = 4
"""The window of a single connection, in multiples of the bytes that a node pair holds."""

DILOCO_OPTIONS: dict[str, Any] = {"sync_every": SYNC_EVERY}

STREAMING_OPTIONS: dict[str, Any] = {
    "sync_every": SYNC_EVERY,
    "fragments": 5,
    "delay": 5,
    "alpha": 0.5,
    "wire": "fp4",
}

ATOM_OPTIONS: dict[str, Any] = {"swap": "12GB/s", "sync_every": SYNC_EVERY, "delay": 5}


@dataclass(frozen=True)
class TriedSetting:
    """A method with one choice of layout and transport at one WAN. ``variant`` is the experiment file's."""

    method: Method
    label: str
    wan: Wan
    variant: dict[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        """The experiment's document: what ``wanbed simulate`` takes."""
        # One period of replicas that train alone repeats, and so does every iteration of the others.
        iterations = 3 if self.method.synchronous else 1 + SYNC_EVERY
        return {
            "name": "which-training",
            "clock": "virtual",
            "topology": topology(self.wan),
            "model": MODEL,
            "compute": {"profile": "a100"},
            "training": {"iterations": iterations, "warmup": 1},
            "variants": [{"name": f"{self.method}, {self.label}", **self.variant}],
        }


def candidates(method: Method, wan: Wan) -> tuple[TriedSetting, ...]:
    """Return everything that is tried for a method at a WAN."""
    return tuple(TriedSetting(method, label, wan, variant) for label, variant in _VARIANTS[method](wan))


def transports(wan: Wan) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return the two ways to use TCP: enough connections, or one with a roomy window; neither starts slowly anew."""
    window = max(round(ROOMY * wan.in_flight_bytes), DEFAULT_WINDOW_BYTES)
    return (
        ("many connections", {"connections": "auto", "window": "1.96MiB", "slow_start_after_idle": False}),
        ("one connection", {"connections": 1, "window": f"{window}B", "slow_start_after_idle": False}),
    )


Variants = Iterator[tuple[str, dict[str, Any]]]


def _training(stages: int, pipelines: int) -> dict[str, int]:
    return {"stages": stages, "pipelines": pipelines, "microbatches": SEQUENCES // pipelines}


def _one_datacenter(_wan: Wan) -> Variants:
    transport = {"all_reduce_overlap": True}
    placement = [[DATACENTERS[0]]] * GPUS_EACH
    yield "data parallel", {
        "schedule": "dp", "placement": placement, "training": _training(1, GPUS_EACH), "transport": transport,
    }  # fmt: skip


def _pipelines(
    schedule: dict[str, Any], transports_tried: Mapping[str, dict[str, Any]], *, most_sharing: int
) -> Variants:
    for count, layouts in ((3, THREE_DATACENTERS), (2, TWO_DATACENTERS)):
        for stages, pipelines in layouts:
            placement = [DATACENTERS[stage * count // stages] for stage in range(stages)]
            for name, transport in transports_tried.items():
                if "sharing" in transport and pipelines > most_sharing:
                    continue
                yield (
                    f"{pipelines} x {stages} stages, {name}",
                    {
                        **schedule,
                        "placement": placement,
                        "training": _training(stages, pipelines),
                        "transport": transport,
                    },
                )


def _atlas(wan: Wan) -> Variants:
    (name, many), one = transports(wan)
    shared = {**many, "sharing": "temporal"}
    # Over slow links a plan for four that share takes long to make, and was no faster than one for two.
    most_sharing = 4 if wan.rate_bps >= SHARED_BY_FOUR_BPS else 2
    published = {"schedule": "atlas", "options": {"split": "never"}}
    yield from _pipelines(published, {f"{name}, shared": shared, one[0]: one[1]}, most_sharing=most_sharing)


def _varuna(wan: Wan) -> Variants:
    yield from _pipelines({"schedule": "varuna"}, dict(transports(wan)), most_sharing=0)


def _hierarchical(wan: Wan) -> Variants:
    for name, transport in transports(wan):
        for bucket in (None, "100MiB", "400MiB"):
            overlap = {} if bucket is None else {"all_reduce_overlap": True, "bucket": bucket}
            yield (
                f"{'at the end' if bucket is None else f'in buckets of {bucket}'}, {name}",
                {
                    "schedule": "dp",
                    "training": _training(1, len(DATACENTERS) * GPUS_EACH),
                    "transport": {**transport, "all_reduce": "hierarchical", **overlap},
                },
            )


def _alone(wan: Wan, options: dict[str, Any]) -> Variants:
    # Few large messages: many connections change the time by less than 1 %, and simulate five times as long.
    name, transport = transports(wan)[1]
    for inner in ("1f1b", "zb-h1"):
        yield (
            f"{inner} inside, {name}",
            {
                "schedule": "diloco",
                "options": {**options, "inner": inner},
                "training": _training(GPUS_EACH, len(DATACENTERS)),
                "transport": transport,
            },
        )


def _diloco(wan: Wan) -> Variants:
    yield from _alone(wan, DILOCO_OPTIONS)


def _streaming(wan: Wan) -> Variants:
    yield from _alone(wan, STREAMING_OPTIONS)


def _atom(wan: Wan) -> Variants:
    for shape in ("ring", "star"):
        for name, transport in transports(wan):
            yield (
                f"{shape}, {name}",
                {
                    "schedule": "atom",
                    "options": {**ATOM_OPTIONS, "topology": shape},
                    "training": _training(1, len(DATACENTERS) * GPUS_EACH),
                    "transport": transport,
                },
            )


_VARIANTS = {
    Method.ONE: _one_datacenter,
    Method.ATLAS: _atlas,
    Method.VARUNA: _varuna,
    Method.HIERARCHICAL: _hierarchical,
    Method.DILOCO: _diloco,
    Method.STREAMING: _streaming,
    Method.ATOM: _atom,
}
