"""Replace what lies between two marks of a page: a part that a program writes, in a page that people write."""


def with_marked_text(page: str, begin: str, end: str, text: str) -> str:
    """Return the page with ``text`` between the marks ``begin`` and ``end``, each a line, and an empty line around it.

    Raise ValueError if a mark is missing.
    """
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"the page lacks {begin!r} or {end!r}")
    return f"{before}{begin}\n{text.strip()}\n\n{end}{after}"
