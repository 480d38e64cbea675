"""The chart that docs/extending.md adds is drawn into the report of a run."""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import DOCS, blocks
from tests.results import conftest
from wanbed.results.report import report, report_figures
from wanbed.results.report.charts.figure_options import FigureOptions
from wanbed.results.report.report import write_report
from wanbed.results.report.report_figures import write_report_figures

SECTION = "A chart"
PATH = "results/report/charts/training_throughput.py"
MODULE = f"wanbed.{PATH.removesuffix('.py').replace('/', '.')}"
REGISTRY = "results/report/contents.py"
TITLE = "Training throughput"

build_run = conftest.build_run


def loaded(file: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def chart_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are written with the page's module and its change to the list of charts."""
    (code,), (change,) = (blocks(DOCS / "extending.md", language, SECTION) for language in ("python", "diff"))
    assert code.startswith(f"# {PATH}\n")
    sources = tmp_path / "sources"
    for path, text in ((PATH, code), (REGISTRY, (DOCS.parent / REGISTRY).read_text(encoding="utf-8"))):
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        (sources / path).write_text(text, encoding="utf-8")
    subprocess.run(["git", "apply", "--recount"], cwd=sources, input=change, text=True, check=True)
    loaded(sources / PATH, MODULE, monkeypatch)
    changed = loaded(sources / REGISTRY, "changed_contents", monkeypatch)
    monkeypatch.setattr(report, "CHARTS", changed.CHARTS)
    monkeypatch.setattr(report_figures, "every_chart", changed.every_chart)


def test_a_report_has_the_chart_with_a_bar_for_each_variant_and_sweep_point(
    build_run: Callable[..., Path], tmp_path: Path
) -> None:
    write_report([build_run(variants=("gpipe", "atlas"), latencies=("40ms", "80ms"))], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    (section,) = re.findall(rf"<h2>{TITLE}</h2>\n<figure>.*?</figure>", page, re.DOTALL)
    assert section.count('<div class="drawing">') == 1
    # On a page there is one picture for wide screens and one for narrow ones.
    assert section.count(">tokens a second<") == 2
    assert [section.count(f">WAN latency {latency}<") for latency in ("40ms", "80ms")] == [4, 4]
    (reading,) = re.findall("<figcaption>(.*)</figcaption>", section)
    assert re.fullmatch(r"atlas with WAN latency 40ms trains on the most tokens, [\d,.]+ a second\.", reading)


def test_a_run_without_a_finished_trial_has_no_such_chart(build_run: Callable[..., Path], tmp_path: Path) -> None:
    write_report([build_run(finished_trials=0)], tmp_path / "report.html")
    assert TITLE not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_chart_is_among_the_figures_for_paper(build_run: Callable[..., Path], tmp_path: Path) -> None:
    alone = FigureOptions(charts=("training-throughput",))
    figures = write_report_figures([build_run()], tmp_path / "figures", alone)
    assert {"training-throughput-column.pdf", "training-throughput-page.png"} <= {figure.name for figure in figures}
