"""Format the impairments of links for a report."""

from wanbed.ground.impairments import Impairment
from wanbed.results.text.number_text import milliseconds_text, percent_text


def impairment_text(impairment: Impairment, value: float | None) -> str:
    """Format a value, given in the unit of the impairment's column, as ``5.00 ms`` or ``1.00 %``."""
    return milliseconds_text(value) if impairment.is_duration else percent_text(value)
