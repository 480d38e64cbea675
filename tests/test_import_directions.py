"""Imports between the top-level packages point one way, wherever in a module they stand."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("netem_profiles", "results", "runner", "testbed", "workloads")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "testbed": (),
    "results": (),
    "netem_profiles": ("testbed",),
    "workloads": (
        "testbed.shown_text",
        "testbed.strict_model",
        "testbed.topology",
        "testbed.units",
        "results.span_log",
    ),
    "runner": ("testbed", "results", "netem_profiles", "workloads"),
}


def imported_modules(tree: ast.Module, module: str, is_package: bool) -> Iterator[str]:
    """Absolute names of everything a module imports; a name out of a package counts as one of its modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + is_package]
                base = ".".join([*kept, *([base] if base else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def wrong_imports(tree: ast.Module, module: str, is_package: bool) -> list[str]:
    package = module.split(".", maxsplit=1)[0]
    allowed = (package, *MAY_IMPORT[package])
    return [
        name
        for name in imported_modules(tree, module, is_package)
        if name.split(".")[0] in PACKAGES and not any(f"{name}.".startswith(f"{prefix}.") for prefix in allowed)
    ]


def module_files() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", module_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_package_may(path: Path) -> None:
    relative = path.relative_to(ROOT).with_suffix("")
    is_package = relative.name == "__init__"
    module = ".".join(relative.parts[:-1] if is_package else relative.parts)
    assert wrong_imports(ast.parse(path.read_text(encoding="utf-8")), module, is_package) == []


def test_every_package_is_looked_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in module_files()} == set(PACKAGES) == set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("testbed.qdisc", "import runner.engine"),
        ("testbed.qdisc", "from results import span_log"),
        ("testbed.qdisc", "def later():\n    from workloads.rank import main"),
        ("testbed.qdisc", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import runner"),
        ("results.report", "import testbed.units as u"),
        ("workloads.rank", "from results.report import write_report"),
        ("workloads.rank", "import results"),
        ("workloads.rank", "from testbed import mininet_hosts"),
        ("netem_profiles.profile", "from results.span_log import Span"),
    ],
)
def test_an_import_the_wrong_way_is_noticed(module: str, source: str) -> None:
    assert len(wrong_imports(ast.parse(source), module, is_package=False)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("runner.engine", "import testbed, results.metrics, workloads\nfrom netem_profiles import profile"),
        ("workloads.rank", "from results.span_log import Span\nfrom results import span_log\nimport testbed.units"),
        ("workloads.schedules.gpipe", "from .action import Action\nfrom ..rank_plan import RankPlan"),
        ("testbed.qdisc", "import json, resultset\nfrom testbed.units import parse_rate_bps"),
    ],
)
def test_an_import_the_right_way_is_let_pass(module: str, source: str) -> None:
    assert wrong_imports(ast.parse(source), module, is_package=False) == []


def test_relative_imports_are_followed() -> None:
    assert list(imported_modules(ast.parse("from ..a import b"), "runner.x.y", is_package=False)) == ["runner.a.b"]
    assert list(imported_modules(ast.parse("from . import b"), "runner.x", is_package=True)) == ["runner.x.b"]
