import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\((?!https?://)([^)\s#]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    return target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))


def test_every_link_within_the_project_leads_somewhere() -> None:
    links = [(page, *link) for page in PAGES for link in _LINK.findall(page.read_text(encoding="utf-8"))]
    broken = [
        f"{page.name}: {path}#{anchor}" for page, path, anchor in links if not leads_somewhere(page, path, anchor)
    ]
    assert broken == []
