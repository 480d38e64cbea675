"""Groups of layers that are loaded into a GPU one after the other, and how long an iteration takes with them.

The layers live in host memory. An iteration is two passes: all forwards, group after group, then all backwards, from
the last group to the first. All microbatches pass a group while it is in the GPU, and meanwhile the group that comes
next is loaded. With groups 1 to G, F_j and B_j the time that all microbatches compute in group j, and L_j the time to
load it::

    iteration = L_1 + sum over j of max(F_j, L_(j+1)) + sum over j of max(B_j, L_(j-1)),    L_(G+1) = L_0 = 0

- The first load hides behind nothing: optimizer and averaging change the layers in host memory, so that an iteration
  begins with none of them in the GPU.
- The backward pass begins with the group that the forward pass has ended with, which is in the GPU already.
- At any time the GPU holds the group that computes and the one that is loaded, and these two must fit.

The optimizer is not in it, and neither is the way of gradients back to host memory.

The groups with which an iteration is shortest are found exactly. What a group adds to an iteration depends on itself
and on its neighbours alone. So the best groups after a group (i, j) do not depend on those before it, and dynamic
programming over all groups (i, j) and their successors (j, k) is exact. It takes L^3 / 6 steps for L layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any


@dataclass(frozen=True)
class SwappedLayer:
    """One layer: its times for one microbatch, and the size of its weights. ``backward_ns`` includes a recompute.

    Raises ValueError naming the field that is negative.
    """

    forward_ns: int
    backward_ns: int
    size_bytes: int

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(f"{field.name}: {getattr(self, field.name)} is negative")


@dataclass(frozen=True)
class SwappedModel:
    """A whole model on one GPU: its layers, the microbatches of an iteration, and what moves layers into the GPU.

    ``rate_bytes_per_s`` is that from host memory into the GPU. ``memory_bytes`` is what the GPU has for the weights of
    two groups, None for no limit. Raises ValueError naming the field.
    """

    layers: tuple[SwappedLayer, ...]
    microbatches: int
    rate_bytes_per_s: int
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers: there are none")
        for name in ("microbatches", "rate_bytes_per_s"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")
        if self.memory_bytes is not None and self.memory_bytes < 0:
            raise ValueError(f"memory_bytes: {self.memory_bytes} is negative")

    def load_ns(self, size_bytes: int) -> int:
        """Return how long a load takes, rounded up to one whole nanosecond for each microbatch.

        So what a load adds to a pass is shared out evenly to its microbatches.
        """
        each_ns = -(-size_bytes * 10**9 // (self.rate_bytes_per_s * self.microbatches))
        return each_ns * self.microbatches

    def fits(self, size_bytes: int, next_bytes: int = 0) -> bool:
        """Return whether a group fits into the GPU together with the one that is loaded meanwhile."""
        return self.memory_bytes is None or size_bytes + next_bytes <= self.memory_bytes


@dataclass(frozen=True)
class LayerGroup:
    """Consecutive layers: their total compute times in a pass, all microbatches, the load, and the size."""

    forward_ns: int
    backward_ns: int
    load_ns: int
    size_bytes: int


@dataclass(frozen=True)
class Grouping:
    """A model cut into groups. ``sizes`` has the number of layers of each, in the order of the model.

    Raises ValueError if they are not the model's layers, or if two neighbours do not fit into the GPU's memory.
    """

    model: SwappedModel
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.sizes) or sum(self.sizes) != len(self.model.layers):
            raise ValueError(f"sizes: groups of {self.sizes} layers do not make {len(self.model.layers)} layers")
        groups = self.groups
        alone = all(self.model.fits(group.size_bytes) for group in groups)
        if not alone or not all(self.model.fits(one.size_bytes, other.size_bytes) for one, other in pairwise(groups)):
            raise ValueError(f"sizes: groups of {self.sizes} layers exceed {self.model.memory_bytes} bytes of memory")

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The groups, in the order of the model."""
        edges = [0, *accumulate(self.sizes)]
        return tuple(group_of(self.model, start, end) for start, end in pairwise(edges))

    def document(self) -> dict[str, Any]:
        """Return the groups and what they cost an iteration, in plain JSON types."""
        return {
            "layers_of_groups": list(self.sizes),
            "rate_bytes_per_s": self.model.rate_bytes_per_s,
            "memory_bytes": self.model.memory_bytes,
            "both_passes_ns": self.iteration_ns,
            "waits_ns": self.forward_stall_ns + self.backward_stall_ns,
        }

    @property
    def forward_stall_ns(self) -> int:
        """The time for which the forward pass waits for loads, the first one included."""
        groups = self.groups
        return groups[0].load_ns + sum(max(other.load_ns - one.forward_ns, 0) for one, other in pairwise(groups))

    @property
    def backward_stall_ns(self) -> int:
        """The time for which the backward pass waits for loads."""
        return sum(max(one.load_ns - other.backward_ns, 0) for one, other in pairwise(self.groups))

    @property
    def iteration_ns(self) -> int:
        """The time of both passes: the sum of the greater of computing and loading, and the first load."""
        return passes_ns(self.groups)


def passes_ns(groups: Sequence[LayerGroup]) -> int:
    """Return the time of both passes of a model cut into ``groups``."""
    loads_ns = [0, *(group.load_ns for group in groups), 0]
    forward_ns = sum(max(group.forward_ns, loads_ns[place + 2]) for place, group in enumerate(groups))
    backward_ns = sum(max(group.backward_ns, loads_ns[place]) for place, group in enumerate(groups))
    return loads_ns[1] + forward_ns + backward_ns


def group_of(model: SwappedModel, start: int, end: int) -> LayerGroup:
    """Return the group of layers ``start`` to ``end``, without ``end``."""
    layers: Sequence[SwappedLayer] = model.layers[start:end]
    size_bytes = sum(layer.size_bytes for layer in layers)
    return LayerGroup(
        sum(layer.forward_ns for layer in layers) * model.microbatches,
        sum(layer.backward_ns for layer in layers) * model.microbatches,
        model.load_ns(size_bytes),
        size_bytes,
    )


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
