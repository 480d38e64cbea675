"""Find out, during a backward, when all gradients of a bucket are final."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

Part = tuple[int, int]
"""The first element of a part of the flat gradients, and the one after its last."""


class GradientBuckets:
    """The buckets of one backward, in the order in which they are summed: from the last elements to the first.

    ``parts`` has the parameters with the elements that the gradient of each has in the flat gradients. ``complete`` is
    called with each bucket, in order, as soon as all gradients in it and in those before it are final.
    """

    def __init__(
        self, parts: Mapping[nn.Parameter, Part], buckets: Collection[Part], complete: Callable[[int, int], None]
    ) -> None:
        self._buckets = list(buckets)
        self._complete = complete
        self._missing = {
            parameter: [
                number for number, (start, end) in enumerate(self._buckets) if first < end and start < after_last
            ]
            for parameter, (first, after_last) in parts.items()
        }
        self._open = [0] * len(self._buckets)
        for numbers in self._missing.values():
            for number in numbers:
                self._open[number] += 1
        self._next = 0

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Within this context, take a gradient as final as soon as a backward has added to it."""
        handles = [
            parameter.register_post_accumulate_grad_hook(self.final)  # type: ignore[no-untyped-call]
            for parameter in self._missing
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def final(self, parameter: Tensor) -> None:
        """Handle that the gradient of ``parameter`` is final."""
        for number in self._missing.pop(parameter, ()):  # type: ignore[call-overload]
            self._open[number] -= 1
        while self._next < len(self._buckets) and not self._open[self._next]:
            bucket = self._buckets[self._next]
            self._next += 1
            self._complete(*bucket)

    def final_but(self, awaited: Collection[Tensor]) -> None:
        """Handle that all gradients are final, but those of ``awaited``."""
        kept = {id(parameter) for parameter in awaited}
        for parameter in [each for each in self._missing if id(each) not in kept]:
            self.final(parameter)
