"""Compare what is computed with what was recorded, for figures that only a commit which says so may change.

``WANBED_RECORD=1 pytest FILE`` records anew, and passes.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path


def check_recorded(file: Path, found: Mapping[str, str]) -> None:
    """Fail where the lines of ``file``, each a name and a text, are not those ``found``."""
    if os.environ.get("WANBED_RECORD"):
        file.write_text("".join(f"{name}\t{text}\n" for name, text in found.items()), encoding="utf-8")
    recorded = dict(line.split("\t", 1) for line in file.read_text(encoding="utf-8").splitlines())
    changed = {
        name: f"was {recorded.get(name, 'not there')}, is {found.get(name, 'not there')}"
        for name in recorded.keys() | found.keys()
        if recorded.get(name) != found.get(name)
    }
    assert not changed, f"{len(changed)} of {len(found)} are not as in {file.name}: {changed}"


def digest(text: str) -> str:
    """Return sixteen characters that stand for a text too long to record."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
