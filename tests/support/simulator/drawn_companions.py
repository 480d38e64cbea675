"""Draw small trainings over a WAN with what happens beside them: losses, other traffic, changes, outages, prefill."""

import random
from typing import Any

_WAYS = ("loss", "jitter", "flow", "bursts", "stream", "step", "outage", "fault", "prefill", "job", "star", "swap")


def drawn_beside(number: int) -> dict[str, Any]:
    """Return an experiment of two datacenters with one or two companions, or a training of another kind."""
    draw = random.Random(f"beside {number}")
    ways = {_WAYS[number % len(_WAYS)], draw.choice(("loss", "jitter", "none", "none"))}
    stages, pipelines = draw.choice(((2, 1), (2, 2), (3, 2), (4, 1)))
    schedule = draw.choice(("1f1b", "gpipe", "varuna", "zb-2p", "zb-h1", "atlas"))
    wan: dict[str, Any] = {"latency": f"{draw.choice((1, 8, 20))}ms", "rate": draw.choice(("40Mbit", "200Mbit"))}
    document: dict[str, Any] = {
        "name": f"beside-{number}",
        "engine": "simulate",
        "topology": {
            "datacenters": [
                {"name": name, "hosts": max(stages * pipelines, 3), "serving_hosts": int("prefill" in ways)}
                for name in ("east", "west")
            ],
            "intra": {"latency": "50us", "rate": "10Gbit"},
            "wan": wan,
        },
        "compute": {
            "forward": "10ms",
            "backward": "20ms",
            "recompute": draw.choice(("0ms", "9ms")),
            "optimizer": "1ms",
            "activation": draw.choice(("30KiB", "500KiB")),
            "gradient": draw.choice(("1B", "600KiB")),
        },
        "training": {
            "stages": stages,
            "pipelines": pipelines,
            "microbatches": 2 * stages,
            "iterations": 5,
            "warmup": 1,
        },
        "variants": [
            {
                "name": "own",
                "schedule": schedule,
                "transport": {
                    "connections": draw.choice((1, 1, 3)),
                    "congestion": draw.choice(("cubic", "reno", "bbr")),
                    "window": draw.choice(("64KiB", "1MiB")),
                    "slow_start_after_idle": draw.random() < 0.5,
                },
            }
        ],
        "seed": number,
    }
    for way in sorted(ways):
        _add(way, document, wan, draw)
    return document


def _add(way: str, document: dict[str, Any], wan: dict[str, Any], draw: random.Random) -> None:
    variant, training = document["variants"][0], document["training"]
    match way:
        case "loss":
            wan["loss"] = draw.choice(("0.1%", "1%", "4%"))
        case "jitter":
            wan["jitter"] = "500us"
        case "flow" | "bursts" | "stream":
            of_kind: dict[str, dict[str, Any]] = {
                "flow": {"connections": 2},
                "bursts": {"rate": "20Mbit", "on_off": {"burst": "40ms", "pause": "60ms"}},
                "stream": {"protocol": "udp", "rate": "10Mbit"},
            }
            flow = {"name": way, "from": "east", "to": "west", **of_kind[way]}
            document["background"] = [flow]
        case "step":
            wan["events"] = [{"at": "100ms", "for": "150ms", "latency": "30ms"}]
        case "outage":
            wan["events"] = [{"at": "120ms", "for": "300ms", "down": True}]
        case "fault":
            training |= {"pipelines": 3, "stages": 1, "iterations": 8, "warmup": 2}
            variant |= {"schedule": "diloco", "options": {"sync_every": 2, "topology": "star", "quorum": 2}}
            document["fail"] = [{"rank": 1, "at": "150ms"}]
        case "prefill":
            service = {"trace": "poisson", "rate": "40/s", "prompt": 256, "model": "llama-8b", "depth": 1, "slo": "10s"}
            document["prefill"] = service
            variant["prefill"] = draw.choice(("planned", "greedy"))
        case "job":
            hosts = training["stages"] * training["pipelines"]
            for datacenter in document["topology"]["datacenters"]:
                datacenter["hosts"] = 2 * hosts
            document["variants"].append({**variant, "name": "other", "schedule": "1f1b"})
            document["jobs"] = [
                {"name": name, "hosts": {"east": hosts, "west": hosts}, "variants": [of_job]}
                for name, of_job in (("ours", "own"), ("theirs", "other"))
            ]
        case "star":
            training |= {"pipelines": 2, "iterations": 8, "warmup": 2}
            document["compute"]["gradient"] = "600KiB"
            variant |= {"schedule": "diloco", "options": {"sync_every": 2, "fragments": draw.choice((1, 2))}}
        case "swap":
            training |= {"pipelines": 2, "stages": 1, "iterations": 8, "warmup": 2}
            variant |= {"schedule": "atom", "options": {"sync_every": 2, "swap": "1GB/s"}}
            document["model"] = {"hidden": 64, "context": 64, "layers": 6, "heads": 4, "vocabulary": 1000}
