"""The global parameters of one stage, as each replica keeps them, and the outer optimizer that moves them.

A replica's pseudo-gradient is its global parameters minus its local ones. With ``d``, the average of all replicas'
pseudo-gradients, the outer optimizer is SGD with Nesterov's momentum ``m`` and learning rate ``r``, as in DiLoCo (arXiv
2311.08105): ``v = m v + d``, then ``global -= r (d + m v)``. All replicas see the same average, so that their global
parameters and ``v`` stay the same to the bit. The local ones become ``(1 - alpha) global + alpha local``, as in
Streaming DiLoCo (arXiv 2501.18512).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from wanbed.workloads.synchronization.codec import add_encoded, decode, encode
from wanbed.workloads.synchronization.synchronization import Synchronization, cut_fragments


class OuterOptimizer:
    """Synchronises ``parameters`` of one of ``replicas``: a flat fp32 tensor that the inner optimizer changes in place.

    ``changed`` is called after the parameters of a fragment have been replaced. Pseudo-gradients lie in host memory,
    encoded in the wire format. Only ``add`` may be called by another thread.
    """

    def __init__(
        self,
        parameters: Tensor,
        synchronization: Synchronization,
        replicas: int,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._local = parameters
        self.rules = synchronization
        self._replicas = replicas
        self._changed = changed
        self._cuts = cut_fragments(parameters.numel(), synchronization.fragments)
        self._global = parameters.detach().clone()
        self._velocity = torch.zeros_like(self._global)
        self._encoded: dict[int, Tensor] = {}

    @property
    def element_bytes(self) -> int:
        """The bytes that stay together where an encoded pseudo-gradient is cut."""
        return self.rules.wire.element_bytes

    def encode(self, fragment: int) -> None:
        """Encode the pseudo-gradient of a fragment as it is now."""
        part = slice(*self._cuts[fragment])
        moved = self._global[part] - self._local[part]
        self._encoded[fragment] = encode(moved.cpu(), self.rules.wire)

    def encoded(self, fragment: int) -> memoryview:
        """Return the encoded pseudo-gradient of a fragment, writable, for an all-reduce in place."""
        return self._encoded[fragment].numpy().data

    def add(self, total: memoryview, part: memoryview) -> None:
        """Add ``part`` of another replica's encoded pseudo-gradient to ``total``, the same part of this one's."""
        add_encoded(total, part, self.rules.wire)

    def state(self, size_bytes: int) -> memoryview:
        """Return a copy of global parameters and momentum in host memory. Raise ValueError if its size is another."""
        both = torch.cat((self._global, self._velocity)).cpu()
        _check_state(both.nbytes, size_bytes)
        return both.numpy().data.cast("B")

    def take_state(self, state: memoryview) -> None:
        """Take over what ``state`` returned at another replica. The local parameters become the global ones."""
        _check_state(state.nbytes, 2 * self._global.nbytes)
        shared, velocity = torch.frombuffer(state, dtype=torch.float32).chunk(2)
        self._global.copy_(shared)
        self._velocity.copy_(velocity)
        self._local.copy_(self._global)
        self._changed()

    def apply(self, fragment: int, parts: int | None = None) -> None:
        """Take the outer step of a fragment, whose pseudo-gradient now holds the sum of ``parts`` replicas'.

        None: of all replicas.
        """
        values, part = self.rules, slice(*self._cuts[fragment])
        summed = decode(self._encoded.pop(fragment), values.wire)[: part.stop - part.start]
        average = summed.to(self._global.device) / (parts or self._replicas)
        shared, velocity = self._global[part], self._velocity[part]
        velocity.mul_(values.outer_momentum).add_(average)
        shared.sub_(values.outer_learning_rate * (average + values.outer_momentum * velocity))
        local = self._local[part]
        if values.alpha:
            local.mul_(values.alpha).add_(shared, alpha=1 - values.alpha)
        else:
            local.copy_(shared)
        self._changed()


def _check_state(size_bytes: int, expected: int) -> None:
    if size_bytes != expected:
        raise ValueError(f"what a replica begins with has {size_bytes} bytes, and {expected} are expected")


_Timed = Callable[[Callable[[], None]], tuple[int, int]]
"""Carries out a function on the device. Returns its start and end."""


class OuterSteps:
    """The steps of ``outer``, timed by ``timed``. A state that has been taken over is given to ``release``."""

    def __init__(self, outer: OuterOptimizer, timed: _Timed, release: Callable[[memoryview], None]) -> None:
        self._outer = outer
        self._timed = timed
        self._release = release

    @property
    def rules(self) -> Synchronization:
        """The rules that ``outer`` follows."""
        return self._outer.rules

    def encode(self, fragment: int) -> tuple[int, int]:
        """Encode the pseudo-gradient of a fragment in host memory. Return its start and end."""
        return self._timed(lambda: self._outer.encode(fragment))

    def encoded(self, fragment: int) -> memoryview:
        """Return the encoded pseudo-gradient of a fragment."""
        return self._outer.encoded(fragment)

    def add_encoded(self, total: memoryview, part: memoryview) -> None:
        """Add in fp32, and encode the sum."""
        self._outer.add(total, part)

    def apply(self, fragment: int, parts: int) -> tuple[int, int]:
        """Take the outer step of a fragment. Return its start and end."""
        return self._timed(lambda: self._outer.apply(fragment, parts))

    def state(self, size_bytes: int) -> memoryview:
        """Return the global parameters and the outer momentum, in fp32."""
        return self._outer.state(size_bytes)

    def take_state(self, state: memoryview) -> None:
        """Take over global parameters and outer momentum, and begin with these parameters. AdamW begins anew."""
        self._outer.take_state(state)
        self._release(state)
