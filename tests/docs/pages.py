"""The fenced blocks of the documentation's pages, for tests that run what a page shows."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: Path, language: str, section: str | None = None) -> list[str]:
    """Return the fenced blocks of ``language`` in ``page``, or in the section of that heading alone, in order."""
    text = page.read_text(encoding="utf-8")
    if section is not None:
        (text,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    fenced = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block[2] for block in fenced if block[1] == language]
