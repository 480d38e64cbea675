"""A prefill service admits and serves as it did: who changes that on purpose records it anew, with a reason.

``tests/support/recorded.py`` says how.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.recorded import check_recorded, digest
from tests.support.simulator.drawn_companions import drawn_beside
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.simulator.variant_simulation import simulate_variant

SERVICES: list[dict[str, Any]] = [
    {"trace": "poisson", "rate": rate, "prompt": prompt, "model": "llama-8b", "depth": 1, "slo": slo}
    for rate, prompt, slo in (("30/s", 32, "10s"), ("90/s", 128, "300ms"))
]


def test_services_beside_drawn_trainings_serve_as_they_did() -> None:
    found = {}
    for position, service in enumerate(SERVICES):
        for number in (0, 2):
            document = drawn_beside(8 + 12 * number) | {"prefill": service}
            for policy in ("planned", "greedy"):
                document["variants"][0]["prefill"] = policy
                for datacenter in document["topology"]["datacenters"]:
                    datacenter["serving_hosts"] = 1
                (point,) = parse_experiment(document, "drawn", Path()).points()
                served = simulate_variant(point.topology, point.variants[0], 14).prefill
                assert served is not None
                outcomes = Counter(record.outcome.name for record in served.records)
                hashed = digest(repr(served.records))
                counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
                found[f"service {position} beside {number}, {policy}"] = (
                    f"{counts}, {served.deadline_overruns} overruns, {hashed}"
                )
    check_recorded(Path(__file__).with_name("recorded_service.txt"), found)
