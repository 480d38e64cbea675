"""One inference request: a prompt to prefill, and the number of tokens to decode."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Raises ValueError naming the field.

    ``number`` counts requests from 0 in order of arrival. ``arrival_ns`` counts from the start of the trace.
    """

    number: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError(f"number: {self.number} is negative")
        if self.arrival_ns < 0:
            raise ValueError(f"arrival_ns: {self.arrival_ns} is negative")
        if self.prompt_tokens < 1:
            raise ValueError(f"prompt_tokens: {self.prompt_tokens} is below 1")
        if self.output_tokens < 1:
            raise ValueError(f"output_tokens: {self.output_tokens} is below 1")
