"""The kind of training that docs/extending.md adds runs in a simulation and on hosts."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import extended_sources, extended_wanbed
from wanbed import results
from wanbed.results.reading.run import Run

ITERATIONS, SIZE_BYTES, LATENCY_NS = 4, 65_536, 20_000_000

EXPERIMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "20ms", "rate": "100Mbit"},
    },
    "training": {"iterations": ITERATIONS, "warmup": 1},
    "dilation": 1,
    "variants": [{"name": "counter", "schedule": "counter", "options": {"size_bytes": SIZE_BYTES}}],
}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the page's folder and its line in the registry."""
    folder = tmp_path_factory.mktemp("extended")
    return extended_sources(folder, "A kind of training", "runner/trainings/counter")


def run_of(done: "subprocess.CompletedProcess[str]", home: Path) -> Run:
    # A run on a machine that does something else meanwhile is marked, and the command says so by its status.
    assert done.stdout, done.stderr
    return results.load(home / json.loads(done.stdout)["run"])


@pytest.mark.parametrize("engine", [("simulate",), ("run", "--substrate", "relay")], ids=["simulated", "relayed"])
def test_a_counter_crosses_the_wan_and_comes_back(extended: Path, tmp_path: Path, engine: tuple[str, ...]) -> None:
    command, *options = engine
    done = extended_wanbed(extended, tmp_path, EXPERIMENT, command, "experiment.yaml", "--json", *options)
    spans = run_of(done, tmp_path).spans
    for kind in ("send", "receive"):
        found = spans[spans["kind"] == kind]
        assert [*found["size_bytes"]] == [SIZE_BYTES] * 2 * ITERATIONS
    ends_ns = spans.groupby("iteration")["end_ns"].max()
    assert all(ends_ns.diff().dropna() > 2 * LATENCY_NS)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (
            {"variants": [{"name": "a", "schedule": "counter", "options": {"size_bytes": "x"}}]},
            "options: give a counter",
        ),
        ({"background": [{"name": "b", "from": "east", "to": "west"}]}, "background runs beside trainings"),
        ({"training": {"optimizer_waits": "all stages"}}, "optimizer_waits: all stages, but counter has no stages"),
        ({"variants": [{"name": "a", "schedule": "countr"}]}, "counter"),
        (
            {"variants": [{"name": "a", "schedule": "counter", "placement": ["west", "east"]}]},
            "experiment.yaml: variants.0.placement: not used by counter: leave placement out",
        ),
        ({"training": {"microbatches": 4}}, "training.microbatches: not used by counter: leave microbatches out"),
        ({"prefill": {"trace": "poisson", "rate": "1/s"}}, "prefill"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    extended: Path, tmp_path: Path, changes: dict[str, Any], refusal: str
) -> None:
    done = extended_wanbed(extended, tmp_path, {**EXPERIMENT, **changes}, "simulate", "experiment.yaml")
    assert done.returncode == 2
    assert refusal in done.stderr
