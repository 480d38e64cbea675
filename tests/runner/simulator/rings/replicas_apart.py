"""Experiments in which replicas of one pipeline, each in a datacenter of its own, sum over the WAN."""

from typing import Any

from tests.support.simulator.simulation_of import simulation_of
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.simulation import Simulation


def replicas_apart(all_reduce: str, gradient: str, replicas: int, **changes: Any) -> dict[str, Any]:
    """Return an experiment with 80 Mbit/s and 10 ms between each two replicas, unless ``changes`` say otherwise."""
    placed = {"placement": changes["placement"]} if "placement" in changes else {}
    return {
        "topology": {
            "datacenters": [{"name": f"dc{number}", "hosts": 1} for number in range(replicas)],
            "wan": changes.get("wan", {"node_pair_rate": "80Mbit", "latency": "10ms"}),
            "links": changes.get("links", []),
        },
        "compute": {"forward": "1ms", "backward": "2ms", "activation": "1B", "gradient": gradient}
        | changes.get("compute", {}),
        "training": {
            "stages": 1,
            "pipelines": replicas,
            "microbatches": 1,
            "iterations": 2,
            "warmup": 0,
            **changes.get("training", {}),
        },
        "engine": "simulate",
        "variants": [
            {
                "name": "any",
                "schedule": changes.get("schedule", "dp"),
                "transport": {"all_reduce": all_reduce, **changes.get("transport", {})},
                **placed,
            }
        ],
    }


def simulated(written: dict[str, Any], effects: TcpEffects = IDEAL) -> Simulation:
    return simulation_of(written, 2, effects=effects)
