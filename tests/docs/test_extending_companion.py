"""The companion that docs/extending.md adds keeps processors of hosts busy while a training runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, blocks, extended_python, extended_sources, extended_wanbed

SECTION = "A companion of a training"
(SHOWN,) = blocks(DOCS / "extending.md", "yaml", SECTION)
EXPERIMENT: dict[str, Any] = {**yaml.safe_load(SHOWN), "dilation": 1}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the page's folder, its line in the registry, its field and its table."""
    folder = tmp_path_factory.mktemp("extended")
    return extended_sources(folder, SECTION, "runner/companions/cpu_hog")


def test_a_hog_computes_beside_a_training(extended: Path, tmp_path: Path) -> None:
    done = extended_wanbed(extended, tmp_path, EXPERIMENT, "run", "experiment.yaml", "--json", "--substrate", "relay")
    # A machine that does something else meanwhile is marked as saturated, and a hog is meant to be in the way.
    assert done.stdout, done.stderr
    run = json.loads(done.stdout)["run"]
    read = f"from wanbed import results; print(results.load({run!r}).further['cpu_hogs'].to_json())"
    rows = json.loads(extended_python(extended, tmp_path, "-c", read).stdout)
    assert (rows["variant"], rows["host"]) == ({"0": "gpipe"}, {"0": "west-0"})
    assert rows["taken_ns"]["0"] > 0
    report = json.loads(extended_python(extended, tmp_path, "-m", "wanbed", "report", run, "--format", "json").stdout)
    (shown,) = report["cpu_hogs"]
    assert (shown["host"], shown["taken_s"]) == ("west-0", rows["taken_ns"]["0"] / 1e9)


def test_a_report_without_hogs_has_no_table_of_them(extended: Path, tmp_path: Path) -> None:
    plain = {name: section for name, section in EXPERIMENT.items() if name != "cpu_hog"}
    done = extended_wanbed(extended, tmp_path, plain, "simulate", "experiment.yaml", "--json")
    report = extended_python(
        extended, tmp_path, "-m", "wanbed", "report", json.loads(done.stdout)["run"], "--format", "json"
    )
    assert report.returncode == 0, report.stderr
    assert not json.loads(report.stdout).get("cpu_hogs")


def test_its_table_comes_to_the_page_of_results(extended: Path, tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    page.write_bytes((DOCS / "results.md").read_bytes())
    extended_python(extended, tmp_path, "-m", "wanbed.results.records.schema_page", "--write", "results.md")
    assert "| `taken_ns` | int64 | ns |" in page.read_text(encoding="utf-8")


def test_a_simulation_says_that_it_has_none(extended: Path, tmp_path: Path) -> None:
    done = extended_wanbed(extended, tmp_path, EXPERIMENT, "simulate", "experiment.yaml", "--json")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / json.loads(done.stdout)["run"] / "manifest.json").read_text())
    (point,) = manifest["sweep_points"]
    assert [each["field"] for each in point["not_modelled"]] == ["cpu_hog"]
    assert "cpu_hog beside training" in done.stderr


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"cpu_hog": [{"host": "west-7"}]}, "cpu_hog.0.host: 'west-7' is none"),
        ({"clock": "virtual"}, "cpu_hog: in virtual time computation costs nothing"),
    ],
)
def test_what_it_does_not_go_with_is_refused(
    extended: Path, tmp_path: Path, changes: dict[str, Any], refusal: str
) -> None:
    done = extended_wanbed(extended, tmp_path, {**EXPERIMENT, **changes}, "simulate", "experiment.yaml")
    assert done.returncode == 2
    assert refusal in done.stderr
