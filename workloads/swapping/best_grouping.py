"""Find the groups with which an iteration is shortest, exactly.

What a group adds to an iteration depends on itself and on its neighbours alone. So the best groups after a group (i, j)
do not depend on those before it, and dynamic programming over all groups (i, j) and their successors (j, k) is exact.
It takes L^3 / 6 steps for L layers.
"""

from functools import cached_property

from wanbed.workloads.swapping.grouping import Grouping, SwappedModel

_Found = tuple[int, tuple[int, ...]]
"""The rest of an iteration in nanoseconds, and the ends of the groups that it takes."""


class _Search:
    def __init__(self, model: SwappedModel) -> None:
        self._model = model
        self._layers = len(model.layers)
        self._rest: dict[tuple[int, int], _Found | None] = {}

    @cached_property
    def _sums(self) -> tuple[list[int], list[int], list[int]]:
        """Sums over the first layers: forward and backward of all microbatches, and bytes."""
        forward_ns, backward_ns, size_bytes = [0], [0], [0]
        for layer in self._model.layers:
            forward_ns.append(forward_ns[-1] + layer.forward_ns * self._model.microbatches)
            backward_ns.append(backward_ns[-1] + layer.backward_ns * self._model.microbatches)
            size_bytes.append(size_bytes[-1] + layer.size_bytes)
        return forward_ns, backward_ns, size_bytes

    def best(self) -> tuple[int, ...] | None:
        """Return the ends of the best groups, None if no groups fit into the memory."""
        forward_ns, backward_ns, size_bytes = self._sums
        layers, model, found = self._layers, self._model, self._rest
        load_ns = [[0] * (layers + 1) for _ in range(layers)]
        for start in range(layers):
            for end in range(start + 1, layers + 1):
                load_ns[start][end] = model.load_ns(size_bytes[end] - size_bytes[start])
        # From the last groups to the first: the rest after a group needs the rest after its successors.
        for start in range(layers - 1, -1, -1):
            fits = model.fits(size_bytes[layers] - size_bytes[start])
            found[start, layers] = (forward_ns[layers] - forward_ns[start], ()) if fits else None
            for end in range(layers - 1, start, -1):
                best: _Found | None = None
                computes_ns, loads_ns = forward_ns[end] - forward_ns[start], load_ns[start][end]
                for after in range(end + 1, layers + 1):
                    rest = found[end, after]
                    if rest is None or not model.fits(
                        size_bytes[end] - size_bytes[start], size_bytes[after] - size_bytes[end]
                    ):
                        continue
                    time_ns = max(computes_ns, load_ns[end][after]) + rest[0]
                    time_ns += max(backward_ns[after] - backward_ns[end], loads_ns)
                    if best is None or (time_ns, len(rest[1])) < (best[0], len(best[1]) - 1):
                        best = time_ns, (after, *rest[1])
                found[start, end] = best
        return self._first(load_ns[0])

    def _first(self, load_ns: list[int]) -> tuple[int, ...] | None:
        best: _Found | None = None
        for end in range(1, self._layers + 1):
            rest = self._rest[0, end]
            if rest is None:
                continue
            time_ns = load_ns[end] + self._sums[1][end] + rest[0]
            if best is None or (time_ns, len(rest[1])) < (best[0], len(best[1]) - 1):
                best = time_ns, (end, *rest[1])
        return None if best is None else best[1]


def best_grouping(model: SwappedModel) -> Grouping:
    """Return the grouping with the shortest iteration; among equal ones, one of the fewest groups.

    Raise ValueError if no two neighbouring layers fit into the GPU's memory together, whatever the groups.
    """
    ends = _Search(model).best()
    if ends is None:
        largest = max(
            one.size_bytes + other.size_bytes
            for one, other in zip(model.layers, (*model.layers[1:], model.layers[-1]), strict=True)
        )
        raise ValueError(
            f"memory_bytes: {model.memory_bytes} hold no group of layers and the next one, which take up to "
            f"{largest} bytes for two layers"
        )
    return Grouping(model, tuple(end - start for start, end in zip((0, *ends), ends, strict=False)))
