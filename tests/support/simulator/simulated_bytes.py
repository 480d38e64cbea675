"""Print the bytes of many simulations as hashes, and the errors of schedules that fail: once compiled, once not.

``python -m tests.support.simulator.simulated_bytes NUMBER`` draws that many experiments, the same ones each time.
"""

import hashlib
import random
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from tests.support.simulator.drawn_companions import drawn_beside
from wanbed.flow.number_rows import NumberRows
from wanbed.ground.compiled_core.core_cache import present_core
from wanbed.ground.errors import WanbedError
from wanbed.runner.experiments.shipped_experiments import shipped_experiments
from wanbed.runner.planner.experiment_file import load_experiment, parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.simulator import training
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.workloads.schedules.registry import schedule_names

OWN = "tests.support.runner.failing_schedules"
FAILING = ("Deadlocks", "Raises", "ChoosesText", "ChoosesAgain", "SendsFar", "TooLong", "ListsText", "ChoosesNothing")
PROBING = (2, 22, 46)
"""Drawn companions whose packets BBR paces until it probes for more rate."""
VIRTUAL = ("interleaved-1f1b", "zb-v")
REFUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("1f1b", {"warmup_depth": 1.5}),
    ("eager-1f1b", {"warmup_depth": "4"}),
    ("1f1b", {"depth": 4}),
    ("varuna", {"recompute": "never"}),
    ("varuna", {"recompute": "on-gradient"}),
    ("varuna", {"later": True}),
    ("atlas", {"turns": 3}),
    ("gpipe", {"any": 1}),
    ("dp", {}),
)
"""Options that a schedule refuses, but for one that it takes; a schedule that refuses two stages."""
OF_NUMPY = f"{OWN}:OfNumpy"


def drawn(number: int) -> dict[str, Any]:
    """An experiment of any schedule and transport, small enough to take a few hundredths of a second."""
    draw = random.Random(number)
    schedule = draw.choice([*schedule_names(), f"{OWN}:Swapped", f"{OWN}:Loose", OF_NUMPY])
    datacenters = draw.randint(1, 3)
    stages = 1 if schedule == "dp" else draw.randint(1, 5)
    mates = draw.choice((1, 2)) if schedule == "atlas" else 1
    pipelines = mates * draw.randint(1, 3)
    gpus = draw.choice((1, 2, 4))
    compute = {"forward": f"{draw.randint(1, 40)}ms", "backward": f"{draw.randint(1, 80)}ms"}
    compute |= {"gradient": draw.choice(("1B", "2B", "5MiB", "200MiB"))} if draw.random() < 0.8 else {}
    compute |= {"recompute": "7ms"} if draw.random() < 0.5 else {}
    wan = {"latency": f"{draw.randint(0, 60)}ms", "node_pair_rate": draw.choice(("1Gbit", "5Gbit"))}
    wan |= {"rate": draw.choice(("1Gbit", "7Gbit", "unlimited"))}
    transport: dict[str, Any] = {"connections": draw.choice((1, 3, "auto"))}
    transport |= {"model": "ideal"} if draw.random() < 0.2 else {}
    transport |= {"overlap": False} if draw.random() < 0.2 else {}
    transport |= {"all_reduce_overlap": True} if draw.random() < 0.3 else {}
    transport |= {"sharing": "temporal", "pipelines_per_cell": mates} if mates > 1 else {}
    training: dict[str, Any] = {"stages": stages, "pipelines": pipelines, "microbatches": draw.randint(1, 3) * stages}
    training |= {"iterations": draw.randint(1, 2), "warmup": 0}
    training |= {"optimizer_waits": "all stages"} if draw.random() < 0.3 else {}
    training |= {"virtual_stages": 2} if schedule in VIRTUAL else {}
    training |= {"memory_bound": draw.randint(1, stages + 2)} if draw.random() < 0.2 else {}
    hosts = -(-stages * pipelines // gpus)
    return {
        "name": "drawn",
        "engine": "simulate",
        "topology": {
            "datacenters": [
                {"name": f"dc{each}", "hosts": hosts, "gpus_per_host": gpus} for each in range(datacenters)
            ],
            "intra": {"latency": "50us", "rate": draw.choice(("10Gbit", "100Gbit"))},
            **({"wan": wan} if datacenters > 1 else {}),
        },
        "model": {
            "hidden": draw.choice((64, 1024, 4096)),
            "context": 1024,
            "layers": 8,
            "heads": 4,
            "vocabulary": 1000,
        },
        "compute": compute,
        "training": training,
        "variants": [{"name": "v", "schedule": schedule, "transport": transport}],
    }


def hashed(point: SweepPoint, iterations: int = 2, pulse: training.Pulse | None = None) -> str:
    """Hashes of the spans and of the traffic of every variant of a sweep point, or its error."""
    found = []
    for variant in point.variants:
        effects = effects_of(variant.transport)
        try:
            simulation = simulate_variant(
                point.topology, variant, iterations, effects=effects, symmetry=False, pulse=pulse
            )
        except WanbedError as fault:
            found.append(f"{type(fault).__name__}: {fault}")
            continue
        hashes = hashlib.sha256()
        for each in fields(simulation.spans):
            hashes.update(np.ascontiguousarray(getattr(simulation.spans, each.name)).tobytes())
        for flow in simulation.traffic:
            hashes.update(f"{flow.source} {flow.destination}".encode())
            hashes.update(np.ascontiguousarray(flow.times_ns).tobytes())
            hashes.update(np.ascontiguousarray(flow.wire_bytes).tobytes())
        found.append(f"{len(simulation.spans.rank)} spans {hashes.hexdigest()[:16]}")
    return "; ".join(found)


def of(document: dict[str, Any]) -> str:
    """Hashes of a document's first sweep point, or the error that refuses it."""
    try:
        point = parse_experiment(document, "drawn", Path()).points()[0]
    except WanbedError as refusal:
        return f"refused: {refusal}"
    return hashed(point)


def of_file(path: Path) -> str:
    """Hashes of the first sweep point of a shipped experiment."""
    try:
        return hashed(load_experiment(path, engine="simulate").points()[0], 1)
    except WanbedError as refusal:
        return f"refused: {refusal}"


def row_of(number: Any) -> str:
    """What becomes of a row with that number."""
    rows = NumberRows(8)
    try:
        rows.extend((number, *[0] * 7))
    except (OverflowError, TypeError) as fault:
        return f"{type(fault).__name__}: {fault}"
    return str(rows.numbers)


def failing(name: str, options: Mapping[str, Any] | None = None) -> str:
    """The error of a schedule of one's own that fails, or of options that it refuses."""
    document = drawn(1)
    document["topology"]["datacenters"] = [{"name": "dc", "hosts": 2, "gpus_per_host": 1}]
    document["topology"].pop("wan", None)
    document["training"] = {"stages": 2, "pipelines": 1, "microbatches": 4, "iterations": 1, "warmup": 0}
    document["variants"] = [{"name": "v", "schedule": name, **({"options": options} if options else {})}]
    document["compute"] = {"forward": "1ms", "backward": "1ms"}
    return of(document)


def interrupted() -> str:
    """What becomes of a long simulation that a signal ends, and of one that its pulse ends."""
    document = drawn(1)
    document["topology"] = {
        "datacenters": [{"name": "dc", "hosts": 32, "gpus_per_host": 1}],
        "intra": {"latency": "50us"},
    }
    document["training"] = {"stages": 32, "pipelines": 1, "microbatches": 3000, "iterations": 1, "warmup": 0}
    document["variants"] = [{"name": "v", "schedule": "1f1b", "transport": {"model": "ideal"}}]
    document["compute"] = {"forward": "1ms", "backward": "1ms"}
    point = parse_experiment(document, "long", Path()).points()[0]

    def give_up(_: int, __: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    def stop(share: float) -> NoReturn:
        raise TimeoutError(f"{share:.6f} done")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        ended = hashed(point)
    except KeyboardInterrupt:
        ended = "interrupted"
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        pulsed = hashed(point, pulse=stop)
    except TimeoutError as timeout:
        pulsed = str(timeout)
    return f"{ended}, {pulsed}"


def lines(number: int) -> Iterator[str]:
    """Yield a line for each experiment."""
    for each in range(number):
        yield f"drawn {each}: {of(drawn(each))}"
    for each in PROBING:
        yield f"probing {each}: {of(drawn_beside(each))}"
    for name in FAILING:
        yield f"{name}: {failing(f'{OWN}:{name}')}"
    for schedule, options in REFUSED:
        yield f"{schedule} with {options}: {failing(schedule, options=options)}"
    yield f"beyond 64 bits: {row_of(1 << 63)}, {row_of(-(1 << 63))}, {row_of(0.5)}"
    yield f"stopped: {interrupted()}"
    for shipped in shipped_experiments():
        if not shipped.of_a_program:
            yield f"{shipped.name}: {of_file(shipped.path)}"


if __name__ == "__main__":
    print(present_core().name)
    for line in lines(int(sys.argv[1])):
        print(line, flush=True)
