"""The fenced blocks of the documentation's pages, for tests that run what a page shows."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.test_import_directions import LINKED

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: Path, language: str, section: str | None = None) -> list[str]:
    """Return the fenced blocks of ``language`` in ``page``, or in the section of that heading alone, in order."""
    text = page.read_text(encoding="utf-8")
    if section is not None:
        (text,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    fenced = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block[2] for block in fenced if block[1] == language]


def copied_sources(folder: Path) -> Path:
    """Copy the sources into the folder, to be extended there as a page says, and return it."""
    left_out = shutil.ignore_patterns("reference", "__pycache__")
    for each in (*LINKED, "wanbed"):
        shutil.copytree(DOCS.parent / each, folder / each, symlinks=True, ignore=left_out)
    return folder


def extended_sources(folder: Path, section: str, package: str) -> Path:
    """Copy the sources with the modules that a section of extending.md adds to ``package``, its registry's line, and
    its changes of other modules.

    ``package`` is a folder below the root, like ``runner/trainings/counter``. The registry stands beside it.
    """
    sources = copied_sources(folder)
    added, registry = sources / package, Path(package).with_name("registry.py")
    added.mkdir()
    (added / "__init__.py").touch()
    *modules, line = blocks(DOCS / "extending.md", "python", section)
    for text in modules:
        place = sources / text.splitlines()[0].removeprefix("# ")
        assert place.parent == added or place.relative_to(sources).parts[0] == "results"
        assert not place.exists()
        place.write_text(text, encoding="utf-8")
    assert line.startswith(f"# {registry}\n")
    with (sources / registry).open("a", encoding="utf-8") as file:
        file.write(line)
    for change in blocks(DOCS / "extending.md", "diff", section):
        command = ["git", "apply", "--recount", "--unidiff-zero"]
        subprocess.run(command, cwd=sources, input=change, text=True, check=True)
    return sources


def extended_python(sources: Path, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Call Python, with the wanbed of these sources, in the folder."""
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def extended_wanbed(
    sources: Path, folder: Path, experiment: Mapping[str, Any], *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Call the wanbed of these sources in the folder, where the experiment is ``experiment.yaml``."""
    (folder / "experiment.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    return extended_python(sources, folder, "-m", "wanbed", *arguments)
