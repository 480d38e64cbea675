"""A package of another author, installed where a test says."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    group: str,
    entries: Mapping[str, str],
    *,
    code: str | None = None,
    version: str = "1.0",
) -> None:
    """Install the package of one module into ``site``, with entry points of one group, for the rest of the test.

    ``code`` is the module's text; None leaves the module out. The distribution has the module's name, with dashes.
    """
    metadata = site / f"{module}-{version}.dist-info"
    metadata.mkdir(parents=True)
    if code is not None:
        (site / f"{module}.py").write_text(code)
    name = module.replace("_", "-")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"[{group}]", *(f"{entry} = {path}" for entry, path in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, module, raising=False)
