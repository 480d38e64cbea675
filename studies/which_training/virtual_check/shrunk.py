"""Shrink settings of the map: a 64th of every size and rate, and the same times, so that little is to be sent."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from studies.which_training.candidates import TriedSetting
from studies.which_training.setting import MODEL, Wan, topology
from wanbed.ground.units import parse_rate_bps, parse_size_bytes
from wanbed.runner.trainings.local_updates.spec.atom_options import parse_swap_rate
from wanbed.workloads.profiles.catalogue import load_profile

EIGHTH = 8
SHRINK = EIGHTH**2
"""By how much sizes and rates are divided. Weights go with the square of the hidden size, activations with context x
hidden: an eighth of each dimension of the model, the vocabulary included, makes a 64th of both."""
FLOPS_SHRINK = SHRINK * EIGHTH
"""By how much fewer operations a sequence takes, with an eighth of the tokens: the GPU is as much slower."""
SEQUENCES = 48
SYNC_EVERY, DELAY = 10, 1
PROFILE = "a100"


@dataclass(frozen=True)
class VirtualCheck:
    """The chosen settings of methods of one kind at one WAN, in one experiment: they train for as many iterations."""

    wan: Wan
    synchronous: bool
    chosen: tuple[TriedSetting, ...]

    @property
    def name(self) -> str:
        """A name for its file and its runs."""
        kind = "synchronous" if self.synchronous else "local"
        return f"which-training-check-{self.wan.latency_ms}ms-{self.wan.rate_gbps_text}gbit-{kind}"

    @property
    def iterations(self) -> int:
        """The number of iterations that are trained, the first of which is not counted."""
        return 3 if self.synchronous else 1 + SYNC_EVERY

    def document(self, profile: str) -> dict[str, Any]:
        """Return the experiment for both engines; ``profile`` is the path of the shrunk profile."""
        return {
            "name": self.name,
            "clock": "virtual",
            "topology": _shrunk_topology(self.wan),
            "model": {**MODEL, **{name: MODEL[name] // EIGHTH for name in ("hidden", "context", "vocabulary")}},
            "compute": {"profile": profile},
            "training": {"iterations": self.iterations, "warmup": 1},
            "variants": [{"name": each.method.value, **shrunk_variant(each.variant)} for each in self.chosen],
        }


def checks(chosen: Sequence[TriedSetting]) -> list[VirtualCheck]:
    """Return the experiments that check these settings."""
    groups: dict[tuple[Wan, bool], list[TriedSetting]] = {}
    for each in chosen:
        groups.setdefault((each.wan, each.method.synchronous), []).append(each)
    return [VirtualCheck(wan, synchronous, tuple(group)) for (wan, synchronous), group in groups.items()]


def shrunk_profile() -> str:
    """Return the map's compute profile as a file of one whose GPU is slower, as the model is smaller."""
    document = load_profile(PROFILE).model_dump(mode="json")
    document["title"] += f", slowed for a model of a {SHRINK}th"
    document["peak_flops_per_s"] /= FLOPS_SHRINK
    document["memory_bandwidth_bytes_per_s"] /= SHRINK
    return json.dumps(document, indent=1) + "\n"


def shrunk_variant(variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return a variant with fewer sequences, a shorter period, and a 64th of its windows, buckets and swap rate."""
    training, transport = variant["training"], dict(variant["transport"])
    for name in ("window", "bucket"):
        if name in transport:
            transport[name] = f"{parse_size_bytes(transport[name]) // SHRINK}B"
    options = dict(variant.get("options", {}))
    if "sync_every" in options:
        options["sync_every"] = SYNC_EVERY
    if "delay" in options:
        options["delay"] = DELAY
    if "swap" in options:
        options["swap"] = _shrunk_swap(options["swap"])
    return {
        **variant,
        "training": {**training, "microbatches": SEQUENCES // training["pipelines"]},
        "transport": transport,
        **({"options": options} if options else {}),
    }


def _shrunk_swap(written: str) -> str:
    return f"{parse_swap_rate(written) // SHRINK}B/s"


def _shrunk_topology(wan: Wan) -> dict[str, Any]:
    full = topology(wan)
    conditions = {name: _shrunk_rate(text) if "rate" in name else text for name, text in full["wan"].items()}
    return {**full, "intra": {"rate": _shrunk_rate(full["intra"]["rate"])}, "wan": conditions}


def _shrunk_rate(written: str) -> str:
    rate_bps = parse_rate_bps(written)
    assert rate_bps is not None
    return f"{rate_bps // SHRINK}bit"
