"""Isolate names written from right to left, so that they do not turn what stands beside them."""

import re

_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"
_RIGHT_TO_LEFT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
_PHRASE = re.compile(f"{_RIGHT_TO_LEFT}+(?:[ \u00a0'._-]{_RIGHT_TO_LEFT}+)*")


def isolated(text: str) -> str:
    """Return the text with every right-to-left phrase between isolates, so that numbers beside it keep their place.

    Without, digits that follow a Hebrew or Arabic word are drawn before it (Unicode Standard Annex 9, W7 and N1; the
    isolates are its X5c). They work in HTML as they do in a picture's text and in a title, where no element does.
    """
    return _PHRASE.sub(lambda phrase: f"{_FIRST_STRONG_ISOLATE}{phrase[0]}{_POP_ISOLATE}", text)
