"""Price candidates by simulation, several at a time, and keep each price in a folder."""

import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import sha256
from pathlib import Path
from typing import Any

from studies.which_training.candidates import TriedSetting
from studies.which_training.grid import SettingPrice
from wanbed.ground.files.atomic_write import write_whole
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.planner.pricing import wan_bytes_per_iteration
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.tcp.effects import effects_of


def priced(tried: Sequence[TriedSetting], folder: Path, log: Callable[[str], None]) -> list[SettingPrice]:
    """Return the price of every candidate, in order. One that is in ``folder`` is not simulated again.

    Raises InputError or SimulationError for a candidate that does not run: none is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    left = [candidate for candidate in tried if not _file(candidate.document, folder).is_file()]
    log(f"simulated: {len(tried) - len(left)} of {len(tried)} settings are there")
    if left:
        with ProcessPoolExecutor(
            len(os.sched_getaffinity(0)), mp_context=multiprocessing.get_context("spawn")
        ) as processes:
            waited = [processes.submit(_keep_price, candidate, folder) for candidate in left]
            try:
                for done, each in enumerate(as_completed(waited), 1):
                    each.result()
                    if done % 100 == 0 or done == len(left):
                        log(f"simulated: {done} of {len(left)} settings")
            except BaseException:
                processes.shutdown(cancel_futures=True)
                raise
    return [_read(candidate, folder) for candidate in tried]


def simulated_iteration(document: dict[str, Any]) -> tuple[float, float]:
    """Simulate the only variant of a document: return seconds and WAN bytes of an iteration.

    Both are means from the end of the warm-up to the end of the last iteration.
    """
    point = parse_experiment(document, document["name"], Path()).points()[0]
    variant, training = point.variants[0], point.spec.training
    simulation = simulate_variant(
        point.topology, variant, training.iterations, effects=effects_of(variant.transport), one_part=True
    )
    time_s = simulation.iteration_time_ns(training.warmup) / 1e9
    return time_s, wan_bytes_per_iteration(simulation, training.warmup)


def _keep_price(candidate: TriedSetting, folder: Path) -> None:
    document = candidate.document
    iteration_s, wan_bytes = simulated_iteration(document)
    kept = {"document": document, "iteration_s": iteration_s, "wan_bytes": wan_bytes}
    write_whole(_file(document, folder), json.dumps(kept, indent=1) + "\n")


def _read(candidate: TriedSetting, folder: Path) -> SettingPrice:
    kept = json.loads(_file(candidate.document, folder).read_text(encoding="utf-8"))
    return SettingPrice(candidate.method, candidate.label, candidate.wan, kept["iteration_s"], kept["wan_bytes"])


def _file(document: dict[str, Any], folder: Path) -> Path:
    return folder / f"{sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]}.json"
