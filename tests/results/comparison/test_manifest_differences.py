import json
from collections.abc import Callable
from pathlib import Path

from wanbed import results
from wanbed.results.comparison.manifest_differences import (
    ABSENT,
    ManifestDifference,
    incomparable,
    manifest_differences,
)

BuildRun = Callable[..., Path]


def test_only_fields_that_differ_are_reported_and_what_follows_from_others_is_marked() -> None:
    first = {"seed": 0, "clock": "real", "created": "today", "qdiscs": {"0": 1}}
    second = {"seed": 1, "clock": "real", "created": "tomorrow", "dilation": 2.0, "qdiscs": {"0": 2}}
    assert manifest_differences([first, second]) == [
        ManifestDifference("seed", ("0", "1"), derived=False),
        ManifestDifference("created", ('"today"', '"tomorrow"'), derived=True),
        ManifestDifference("qdiscs.0", ("1", "2"), derived=True),
        ManifestDifference("dilation", (ABSENT, "2.0"), derived=False),
    ]


def test_the_same_manifests_differ_in_nothing() -> None:
    assert manifest_differences([{"seed": 0}, {"seed": 0}, {"seed": 0}]) == []


def test_another_topology_is_not_comparable(build_run: BuildRun) -> None:
    path, other = build_run(name="one"), build_run(name="two")
    manifest = json.loads((other / "manifest.json").read_text())

    def differing(**wan: int) -> list[str]:
        for point in manifest["sweep_points"]:
            for link in point["wan"]:
                link.update(wan)
        (other / "manifest.json").write_text(json.dumps(manifest))
        return incomparable([results.load(path), results.load(other)])

    assert differing() == []
    assert differing(node_pair_rate_bps=10**9) == ["topology"]
