"""The example package of the page on validating a scheduler, installed as its reader would, and the page's commands."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.docs import pages
from tests.docs.pages import DOCS

PAGE = DOCS / "validating-a-scheduler.md"
EXAMPLE = DOCS / "example-scheduler"

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "pip": ("-m", "pip"),
    "python": (),
    "wanbed": ("-m", "wanbed"),
}


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of ``language`` in the page."""
    return pages.blocks(PAGE, language)


def commands() -> list[str]:
    """Every command of the page, in order."""
    return [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]


def copied(folder: Path) -> Path:
    """A copy of the example package, where installing it leaves nothing in this checkout."""
    return Path(shutil.copytree(EXAMPLE, folder / "copy"))


def run(command: str, package: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command of the page in the copy ``package``, with this Python and this checkout in place of installed ones.

    ``pip install`` goes to a folder beside the copy, from which everything else imports; it uses no network.
    """
    site = package.parent / "site"
    program, *words = command.removeprefix("sudo ").split()
    if command.startswith("pip install"):
        words += ["--no-build-isolation", "--no-index", "--quiet", "--target", str(site)]
    # What a shell does with a star.
    words = [
        name
        for word in words
        for name in (sorted(str(path.relative_to(package)) for path in package.glob(word)) if "*" in word else [word])
    ]
    path = os.pathsep.join([str(site), str(DOCS.parent)])
    return subprocess.run(
        [sys.executable, *PROGRAMS[program], *words],
        cwd=package,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
