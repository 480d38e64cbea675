import ast
from pathlib import Path

import pytest

from tests.mutants.faults import faults_in
from tests.mutants.trials import drawn

ROOT = Path(__file__).parents[2]


def planted(source: str) -> set[str]:
    return {fault.planted(source) for fault in faults_in(source)}


@pytest.mark.parametrize(
    ("source", "faulty"),
    [
        ("a < b", {"a <= b"}),
        ("a is not b", {"a is b"}),
        ("(a) + (b)", {"(a) - (b)"}),
        ("a and b", {"a or b"}),
        ("not a", {" a"}),
        ("most = 5", {"most = 4", "most = 6"}),
        ("most_ns = 1000", {"most_ns = 500", "most_ns = 2000"}),
        ("part = 0.5", {"part = 0.375", "part = 0.625"}),
        ("exact = True", {"exact = False"}),
        ("least(min(a))", {"pass", "least(max(a))"}),
        ("send(a, b)", {"pass", "send(b, a)"}),
        ("a if b else c", {"a if True else c", "a if False else c"}),
        ("[a for a in b if c]", {"[a for a in b if True]"}),
        ("def f():\n a.b = c", {"def f():\n pass"}),
    ],
)
def test_one_place_is_changed(source: str, faulty: set[str]) -> None:
    assert planted(source) == faulty


@pytest.mark.parametrize(
    "source",
    [
        'raise ValueError(f"{a + 1} is below {1}")',
        "assert a < 1",
        "count: int",
        "@cached(1)\ndef f(a: Literal[1]) -> Literal[1]: ...",
        "zip(a, strict=True)",
        "Field(examples=[32])",
        'log.info("%d", 1)',
        "if TYPE_CHECKING:\n import a",
        'if __name__ == "__main__":\n main(1)',
        '"""Twice 2."""',
    ],
)
def test_what_no_test_should_see_is_left_alone(source: str) -> None:
    assert planted(source) - {"pass"} == set()


def test_columns_are_characters() -> None:
    assert planted('s("é", 7)') == {"pass", 's("é", 6)', 's("é", 8)'}


def test_every_fault_leaves_a_module_that_parses() -> None:
    modules = [file.relative_to(ROOT) for name in ("workloads", "testbed") for file in (ROOT / name).rglob("*.py")]
    for each in drawn(ROOT, modules, 150, 1):
        faulty = each.fault.planted(each.source)
        assert ast.dump(ast.parse(faulty)) != ast.dump(ast.parse(each.source)), each
