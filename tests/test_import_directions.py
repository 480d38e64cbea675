"""Imports point one way, wherever in a module they stand: floor by floor, and on a floor without a circle.

Modules are named by their files here: ``ground.units`` for ``wanbed.ground.units``.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("flow", "ground", "netem_profiles", "results", "runner", "testbed", "workloads")
"""Folders that wanbed has links to."""

PACKAGES = (*LINKED, "studies", "wanbed")

FLOORS: tuple[tuple[str, ...], ...] = (
    ("ground", "wanbed.module_process"),
    ("testbed.network", "results"),
    ("flow",),
    ("testbed", "netem_profiles"),
    ("workloads",),
    ("runner.experiment", "runner.experiments", "runner.experiment_reference"),
    ("runner.resolve", "runner.bound"),
    ("runner.simulator",),
    ("runner",),
    ("wanbed.api",),
    ("runner.cli", "wanbed", "studies"),
)
"""Each imports only what stands above it, and on its own floor only so that imports do not come back to where they
began: of the modules of ``runner``, and elsewhere of folders."""

SLICES = ("runner.companions", "runner.trainings")
"""Folders of features, and what lists them. A feature is a folder whose modules, or folders, are named by the layer
that they join."""

LAYERS = {
    "spec": "runner.experiment",
    "resolution": "runner.resolve",
    "simulation": "runner.simulator",
    "record": "runner.simulator",
    "on_hosts": "runner",
    "process": "workloads",
}
"""The place on whose floor each layer of a feature stands."""

OUTSIDE: dict[str, tuple[str, ...]] = {
    "ground": (),
    "flow": ("ground", "testbed.network"),
    "testbed": ("flow", "ground", "wanbed.module_process"),
    "results": ("ground",),
    "netem_profiles": ("ground", "testbed.network"),
    "workloads": ("ground", "testbed.network.topology", "results.records.span_log"),
    "runner": ("flow", "ground", "testbed", "results", "netem_profiles", "workloads", "wanbed.module_process"),
    "wanbed": ("ground", "results", "runner", "workloads"),
    "studies": ("flow", "ground", "netem_profiles", "results", "runner", "testbed", "wanbed", "workloads"),
}
"""What each package may import of the others."""

FLOOR_OF = {place: number for number, floor in enumerate(FLOORS) for place in floor}


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


def by_file(name: str) -> str:
    """The name of an imported module by its file."""
    package, _, rest = name.partition(".")
    return rest if package == "wanbed" and rest.partition(".")[0] in LINKED else name


def place_of(module: str) -> str | None:
    """The place on the floors that a module belongs to; of a feature, that of the layer it is named by."""
    parts = module.split(".")
    if ".".join(parts[:2]) in SLICES:
        if parts[2:3] == ["registry"]:
            return "runner.experiment"
        return LAYERS[parts[3]] if len(parts) > 3 else None
    return next((".".join(parts[:size]) for size in (2, 1) if ".".join(parts[:size]) in FLOOR_OF), None)


def remedy(module: str, name: str) -> str:
    """What to do about an import the wrong way."""
    own, other = place_of(module), place_of(name)
    if other is None or own is None or FLOOR_OF[other] <= FLOOR_OF[own]:
        return f"{module} imports {name}: {module.partition('.')[0]} may not; see OUTSIDE here"
    handed = ", or write what it needs into its configuration" if module.endswith(".process") else ""
    return (
        f"{module} stands on the floor of {own} and imports {name}, which stands below, on that of {other}: move what "
        f"both need to {own} or above{handed}; see docs/architecture.md#floors"
    )


def wrong_imports(imported: Iterable[str], module: str) -> list[str]:
    package, own = module.split(".", maxsplit=1)[0], place_of(module)
    wrong = []
    for name in map(by_file, imported):
        other = place_of(name)
        if name.split(".")[0] not in PACKAGES or other == own:
            continue
        outside = name.split(".")[0] != package
        allowed = not outside or any(f"{name}.".startswith(f"{prefix}.") for prefix in OUTSIDE[package])
        if not allowed or other is None or own is None or FLOOR_OF[other] > FLOOR_OF[own]:
            wrong.append(name)
    return wrong


def modules() -> dict[str, tuple[Path, bool]]:
    """The file of each module, and whether it is that of a package."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        relative = path.relative_to(ROOT).with_suffix("")
        is_package = relative.name == "__init__"
        found[".".join(relative.parts[:-1] if is_package else relative.parts)] = (path, is_package)
    return found


@dataclass(frozen=True)
class Names:
    """What a module imports, and the names in it that lack ``wanbed``."""

    imported: tuple[str, ...]
    bare: tuple[str, ...]


@cache
def names_of_modules() -> dict[str, Names]:
    """The names in each module, whose text is parsed once for all tests."""
    found = {}
    for module, (path, is_package) in modules().items():
        tree = ast.parse(path.read_text())
        found[module] = Names(tuple(imported_modules(tree, module, is_package)), tuple(bare_names(tree)))
    return found


def test_modules_import_only_what_stands_on_their_own_floor_or_above() -> None:
    names_of = names_of_modules().items()
    offenders = {module: wrong for module, names in names_of if (wrong := wrong_imports(names.imported, module))}
    assert offenders == {}, "\n".join(remedy(module, name) for module, names in offenders.items() for name in names)


def test_a_process_that_imports_its_resolution_is_told_where_to_turn() -> None:
    assert remedy("runner.trainings.counter.process", "runner.trainings.counter.resolution") == (
        "runner.trainings.counter.process stands on the floor of workloads and imports "
        "runner.trainings.counter.resolution, which stands below, on that of runner.resolve: move what both need to "
        "workloads or above, or write what it needs into its configuration; see docs/architecture.md#floors"
    )


def part_of(module: str) -> str:
    """What imports must not come back to: a module of runner, elsewhere a folder of a package."""
    return module if module.startswith("runner.") else ".".join(module.split(".")[:2])


def circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Parts that import each other in a circle; [] if there are none. ``imports`` are those of each module."""
    parts: dict[str, set[str]] = defaultdict(set)
    for module, names in imports.items():
        parts[part_of(module)] |= {part_of(name) for name in names} - {part_of(module)}
    try:
        TopologicalSorter(parts).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


def test_imports_do_not_come_back_to_where_they_began() -> None:
    known = names_of_modules()
    imports: dict[str, set[str]] = {}
    for module, names in known.items():
        files = map(by_file, names.imported)
        imports[module] = {name if name in known else name.rpartition(".")[0] for name in files} & known.keys()
    assert circle(imports) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("testbed.kernel.namespace", "testbed.hosts.ping"),
        ("testbed.claims.registry", "testbed.rack.machine"),
        ("runner.emulation.trial", "runner.companions.faults.on_hosts.injection"),
        ("runner.resolve.experiment", "runner.resolve.connections"),
    ],
)
def test_imports_in_a_circle_are_noticed(one: str, other: str) -> None:
    assert circle({one: [other], other: []}) == []
    assert set(circle({one: [other], other: [one]})) == {part_of(one), part_of(other)}


def bare_names(tree: ast.Module) -> Iterator[str]:
    """Names that are imported, or stand in a text, without ``wanbed`` before the folder that it has a link to."""
    named = re.compile(rf"(?:.* -m )?((?:{'|'.join(LINKED)})(?:\.\w+)+)(?::\w+)?", re.DOTALL)
    imported = imported_modules(tree, "wanbed.module", is_package=False)
    yield from (name for name in imported if name.split(".")[0] in LINKED)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := named.fullmatch(node.value)):
            place = ROOT.joinpath(*found[1].split("."))
            if place.is_dir() or place.with_suffix(".py").is_file():
                yield found[1]


def test_the_only_name_that_is_imported_or_started_is_wanbed() -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__).resolve()]
    in_tests = {
        str(path): (*bare_names(ast.parse(path.read_text())),) for path in tests if "programs/hook/" not in str(path)
    }
    in_modules = {module: names.bare for module, names in names_of_modules().items() if "programs.hook" not in module}
    assert {place: names for place, names in {**in_tests, **in_modules}.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import ground.units",
        "import json, results",
        "from runner.rack import agents",
        "def later():\n    from testbed import doctor",
        "start('-m', 'workloads.rank')",
        "print('usage: python -m workloads.rank')",
        "kind = 'workloads.schedules.gpipe:GPipe'",
    ],
)
def test_a_name_without_wanbed_is_noticed(source: str) -> None:
    assert len([*bare_names(ast.parse(source))]) == 1


def test_wanbed_has_a_link_to_each_folder() -> None:
    links = [path for path in (ROOT / "wanbed").iterdir() if path.is_symlink()]
    assert {path.name: str(path.readlink()) for path in links} == {name: f"../{name}" for name in LINKED}


def test_every_package_is_looked_at() -> None:
    assert {module.split(".")[0] for module in modules()} == set(PACKAGES) == set(OUTSIDE)


def test_every_place_on_the_floors_is_there() -> None:
    paths = {place: ROOT.joinpath(*place.split(".")) for place in FLOOR_OF}
    assert [place for place, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())] == []


@pytest.mark.parametrize("module", ["runner.simulator.variant_simulation", "runner.planner.planning"])
def test_the_simulator_loads_neither_netlink_nor_mininet_nor_torch_nor_matplotlib(module: str) -> None:
    script = f"import sys, wanbed.{module}; print(*(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert not {"pyroute2", "mininet", "torch", "matplotlib", "pandas"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("testbed.kernel.namespace", "import wanbed.runner.emulation"),
        ("testbed.kernel.namespace", "from wanbed.results.records import span_log"),
        ("testbed.kernel.namespace", "def later():\n    from wanbed.workloads.rank import main"),
        ("testbed.kernel.namespace", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import wanbed.runner"),
        ("results.report.report", "import wanbed.workloads.message as m"),
        ("workloads.rank", "from wanbed.results.report.report import write_report"),
        ("workloads.rank", "import wanbed.results"),
        ("workloads.rank", "from wanbed.testbed.hosts import emulated_hosts"),
        ("netem_profiles.preset", "from wanbed.results.records.span_log import Span"),
        ("runner.simulator.training", "from wanbed.runner.planner.planning import plan"),
        ("runner.resolve.experiment", "from wanbed.runner.simulator.simulation import Simulation"),
        ("runner.cli.command_line", "from wanbed.command import main"),
        ("wanbed.api.running", "from wanbed.runner.cli.outcome import log"),
        ("runner.planner.planning", "import wanbed.api.planning"),
        ("wanbed.module_process", "import wanbed.runner.runs"),
        ("testbed.network.topology", "from ..hosts.ping import ping"),
        ("runner.companions.background.spec", "import wanbed.runner.resolve.placement"),
        ("runner.companions.background.resolution", "import wanbed.runner.companions.background.on_hosts"),
        ("runner.simulator.simulation", "from wanbed.runner.companions.background.on_hosts.flows import rows"),
    ],
)
def test_an_import_the_wrong_way_is_noticed(module: str, source: str) -> None:
    assert len(wrong_imports(imported_modules(ast.parse(source), module, is_package=False), module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("runner.emulation.trial", "import wanbed.testbed.testbed\nfrom wanbed.netem_profiles import preset"),
        ("workloads.rank", "from wanbed.results.records.span_log import Span\nimport wanbed.ground.units"),
        ("results.records.schema", "from wanbed.ground.impairments import IMPAIRMENTS"),
        ("workloads.schedules.gpipe", "from .action import Action\nfrom ..message import Message"),
        ("results.report.report", "import wanbed.ground.units as u"),
        ("testbed.kernel.namespace", "import json, resultset\nfrom wanbed.ground.units import parse_rate_bps"),
    ],
)
def test_an_import_the_right_way_is_let_pass(module: str, source: str) -> None:
    assert wrong_imports(imported_modules(ast.parse(source), module, is_package=False), module) == []


def test_relative_imports_are_followed() -> None:
    assert list(imported_modules(ast.parse("from ..a import b"), "runner.x.y", is_package=False)) == ["runner.a.b"]
    assert list(imported_modules(ast.parse("from . import b"), "runner.x", is_package=True)) == ["runner.x.b"]
