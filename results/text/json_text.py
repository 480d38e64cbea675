"""Write documents as JSON that a terminal may show."""

import json
from typing import Any

from wanbed.results.text.number_text import UNSEEN


def json_text(document: Any) -> str:
    """Return the document as JSON, in which invisible characters and those that change text around them are escaped.

    A reader of the JSON gets the same document. Raise ValueError for a number that is not finite.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return text.translate(_ESCAPES)


_ESCAPES = {code: f"\\u{code:04x}" for code in UNSEEN}
