"""Each rule of the page on trust names tests that exist."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
_RULE = re.compile(r"^\| (?!rule |---)(?P<rule>.+?) \| (?P<tests>.+) \|$", re.MULTILINE)
_PART = re.compile(r"\]\(([^)]+\.py)\)|`(test_\w+)`")


def test_every_rule_is_held_by_tests_that_exist() -> None:
    rules = _RULE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rules) >= 10
    for rule, tests in rules:
        source, named = "", 0
        for path, test in _PART.findall(tests):
            if path:
                source = (PAGE.parent / path).read_text(encoding="utf-8")
            else:
                named += 1
                assert f"def {test}(" in source, (rule, test)
        assert named, rule
