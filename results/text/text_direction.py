"""Isolate names written from right to left, so that they do not change the direction of adjacent text."""

import re

_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"
_RIGHT_TO_LEFT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
_PHRASE = re.compile(f"{_RIGHT_TO_LEFT}+(?:[ \u00a0'._-]{_RIGHT_TO_LEFT}+)*")


def isolated(text: str) -> str:
    """Return the text with isolates around every right-to-left phrase, so that numbers beside it keep their place.

    Without isolates, digits that follow a Hebrew or Arabic word are drawn before it (Unicode Standard Annex 9, rules W7
    and N1; isolates are rule X5c). Isolates also work in a picture's text and in a title, where HTML elements do not.
    """
    return _PHRASE.sub(lambda phrase: f"{_FIRST_STRONG_ISOLATE}{phrase[0]}{_POP_ISOLATE}", text)
