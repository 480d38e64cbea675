import re

from tests.docs.pages import DOCS
from wanbed.runner.cli.command_line import COMMANDS

PAGE = DOCS / "commands.md"


def test_every_command_has_its_line() -> None:
    listed = re.findall(r"^\| `wanbed ([\w-]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def test_the_readme_stays_short() -> None:
    assert len((DOCS.parent / "README.md").read_text(encoding="utf-8").splitlines()) < 120
