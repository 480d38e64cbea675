"""The kind of training that docs/extending.md adds runs in a simulation and on hosts."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, blocks, extended_python, extended_sources, extended_wanbed
from wanbed import results
from wanbed.results.reading.run import Run

ITERATIONS, SIZE_BYTES, LATENCY_NS = 4, 65_536, 20_000_000
FORWARD_NS = [10_000_000, 30_000_000]

SECTION = "A kind of training"
(SHOWN,) = blocks(DOCS / "extending.md", "yaml", SECTION)
EXPERIMENT: dict[str, Any] = {**yaml.safe_load(SHOWN), "dilation": 1}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the page's folder and its line in the registry."""
    folder = tmp_path_factory.mktemp("extended")
    return extended_sources(folder, SECTION, "runner/trainings/counter")


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
    computed = spans[spans["kind"] == "forward"]
    taken_ns = (computed["end_ns"] - computed["start_ns"]).groupby(computed["rank"]).min()
    assert [*taken_ns] == pytest.approx(FORWARD_NS, rel=0.2)
    ends_ns = spans.groupby("iteration")["end_ns"].max()
    assert all(ends_ns.diff().dropna() > 2 * LATENCY_NS + sum(FORWARD_NS))


def test_its_name_comes_to_the_page_of_fields_and_to_the_schema_of_editors(extended: Path, tmp_path: Path) -> None:
    page, schema = extended / "docs/experiment-file.md", extended / "runner/experiments/experiment.schema.json"
    page.parent.mkdir()
    page.write_bytes((DOCS / page.name).read_bytes())
    extended_python(extended, tmp_path, "-m", "wanbed.runner.experiment_reference", "--write")
    assert "`atom`, `counter` or name" in page.read_text(encoding="utf-8")
    assert '"counter"' in schema.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (
            {"variants": [{"name": "a", "schedule": "counter", "options": {"size": "0B"}}]},
            "experiment.yaml: variants.0.options.size: 0B is below 1B: give 1B at least",
        ),
        ({"background": [{"name": "b", "from": "east", "to": "west"}]}, "background runs beside trainings"),
        ({"training": {"optimizer_waits": "all stages"}}, "optimizer_waits: all stages, but counter has no stages"),
        ({"variants": [{"name": "a", "schedule": "countr"}]}, "counter"),
        (
            {"variants": [{"name": "a", "schedule": "counter", "placement": ["west", "east"]}]},
            "experiment.yaml: variants.0.placement: not used by counter: leave placement out",
        ),
        (
            {"prefill": {"trace": "poisson", "rate": "1/s", "depth": 1}},
            "variants.0.prefill: the bubbles of counter are not known: give prefill: none",
        ),
        (
            {"fail": [{"rank": 0, "at": "1s"}]},
            "fail: only ranks of pipelines are let fail, and 'counter' is no pipeline",
        ),
        ({"compute": {"backward": "1ms"}}, "compute.backward: not used by counter: leave backward out"),
        ({"training": {"microbatches": 4}}, "training.microbatches: not used by counter: leave microbatches out"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    extended: Path, tmp_path: Path, changes: dict[str, Any], refusal: str
) -> None:
    done = extended_wanbed(extended, tmp_path, {**EXPERIMENT, **changes}, "simulate", "experiment.yaml")
    assert done.returncode == 2
    assert refusal in done.stderr
