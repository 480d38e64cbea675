"""The KV cache of one sequence in consecutive layers, and its conversion to bytes and back."""

import torch
from torch import Tensor

from wanbed.workloads.compute.device.torch_device import TorchDevice, as_bytes
from wanbed.workloads.inference.inference_model import InferenceModel


class KVCache:
    """The keys and values of one sequence in ``layers``. Memory for ``capacity`` tokens is allocated once.

    Keys are stored after the rotation by their positions. A layer's bytes are the keys of its tokens in order, (tokens,
    kv_heads, head_dim), followed by the values in the same form. They are contiguous in memory once the cache is full,
    so a prompt's cache on the CPU is sent without a copy. Raises ValueError if ``capacity`` is below 1.
    """

    def __init__(
        self, model: InferenceModel, layers: range, capacity: int, *, device: TorchDevice, dtype: torch.dtype
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity: {capacity} is below 1")
        self.layers = layers
        self.capacity = capacity
        self._device = device
        shape = len(layers), 2, capacity, model.kv_heads, model.head_dim
        self._elements = torch.empty(shape, dtype=dtype, device=device.device)
        self._layer_tokens = dict.fromkeys(layers, 0)

    @property
    def tokens(self) -> int:
        """The number of tokens, from the sequence's start, that all layers have stored."""
        return min(self._layer_tokens.values())

    def check_room(self, prior_tokens: int, tokens: int) -> None:
        """Raise ValueError unless a chunk of ``tokens`` after ``prior_tokens`` comes next in this cache, and fits."""
        if prior_tokens != self.tokens:
            raise ValueError(f"prior_tokens: the cache has {self.tokens} tokens, not {prior_tokens}")
        if not 1 <= tokens <= self.capacity - prior_tokens:
            raise ValueError(f"tokens: the cache has room for 1 to {self.capacity - prior_tokens} more, not {tokens}")

    def store(self, layer: int, prior_tokens: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store a layer's part of a chunk. Return the layer's keys and values from the sequence's start, not copied.

        All tensors are (tokens, kv_heads, head_dim). The chunk's tokens count once ``advance`` has been called; until
        then the chunk may be stored again. Raises ValueError if the chunk does not come next, or does not fit.
        """
        self.check_room(prior_tokens, len(keys))
        end = prior_tokens + len(keys)
        kept = self._of(layer)
        kept[0, prior_tokens:end] = keys
        kept[1, prior_tokens:end] = values
        return kept[0, :end], kept[1, :end]

    def advance(self, tokens: int) -> None:
        """Count ``tokens`` more tokens, which every layer must have stored."""
        end = self.tokens + tokens
        self._layer_tokens = dict.fromkeys(self.layers, end)

    def forget_after(self, tokens: int) -> None:
        """Keep only the first ``tokens`` tokens. Raises ValueError if the cache has fewer."""
        if not 0 <= tokens <= self.tokens:
            raise ValueError(f"tokens: {tokens} are not among the {self.tokens} of the cache")
        self._layer_tokens = dict.fromkeys(self.layers, tokens)

    def layer_bytes(self, layer: int) -> memoryview:
        """Return the bytes of a layer's keys and values, without a copy if they are contiguous in CPU memory."""
        return as_bytes(self._device.on_host(self._of(layer)[:, : self._layer_tokens[layer]]))

    def to_bytes(self) -> memoryview:
        """Return the bytes of all layers in order, ``model.kv_bytes(len(layers), tokens)`` of them."""
        return as_bytes(self._device.on_host(self._elements[:, :, : self.tokens]))

    def chunk_bytes(self, prior_tokens: int, tokens: int) -> memoryview:
        """Return a copy of the bytes of ``tokens`` tokens after ``prior_tokens`` in all layers, in ``to_bytes`` order.

        Raises ValueError if the cache does not have all of these tokens.
        """
        if prior_tokens < 0 or tokens < 1 or prior_tokens + tokens > self.tokens:
            raise ValueError(f"tokens: {tokens} after {prior_tokens} are not among the {self.tokens} of the cache")
        chunk = self._elements[:, :, prior_tokens : prior_tokens + tokens]
        return as_bytes(self._device.on_host(chunk.clone()))

    def load_chunk(self, layers: range, prior_tokens: int, data: memoryview) -> None:
        """Load the bytes that ``chunk_bytes`` of a cache of exactly these layers returned. Load chunks in order.

        The tensors are restored bit for bit; ``data`` may be reused afterwards. Raises ValueError if the layers are not
        all in this cache or do not have exactly ``prior_tokens`` tokens each, or if ``data`` is not a whole number of
        tokens that fits.
        """
        if self._tokens_of(layers) != {prior_tokens}:
            raise ValueError(f"prior_tokens: {_named(layers)} have not {prior_tokens} tokens here")
        self._load(layers, prior_tokens, data)

    def load(self, layers: range, data: memoryview) -> None:
        """Load the bytes from ``to_bytes`` of a cache of exactly these layers, or from ``layer_bytes`` for one layer.

        The tensors are restored bit for bit; ``data`` may be reused afterwards. ``tokens`` counts them once all layers
        have been loaded. Raises ValueError if the layers are not all in this cache, or if ``data`` is not 1 to
        ``capacity`` whole tokens.
        """
        self._tokens_of(layers)
        self._load(layers, 0, data)

    def _tokens_of(self, layers: range) -> set[int]:
        """Return the set of the layers' token counts. Raises ValueError if a layer is not in this cache."""
        if not layers or layers.step != 1 or layers.start not in self.layers or layers[-1] not in self.layers:
            raise ValueError(f"layers: {_named(layers)} are not all among {_named(self.layers)}")
        return {self._layer_tokens[layer] for layer in layers}

    def _load(self, layers: range, prior_tokens: int, data: memoryview) -> None:
        _, _, capacity, heads, head_dim = self._elements.shape
        token_bytes = len(layers) * 2 * heads * head_dim * self._elements.itemsize
        tokens, rest = divmod(data.nbytes, token_bytes)
        room = capacity - prior_tokens
        if rest or not 1 <= tokens <= room:
            raise ValueError(
                f"data: {data.nbytes} bytes are not 1 to {room} tokens of {token_bytes} bytes in {_named(layers)}"
            )
        first, end = layers.start - self.layers.start, prior_tokens + tokens
        received = self._device.received(data, self._elements.dtype)
        shape = len(layers), 2, tokens, heads, head_dim
        self._elements[first : first + len(layers), :, prior_tokens:end] = received.view(shape)
        self._layer_tokens.update(dict.fromkeys(layers, end))

    def _of(self, layer: int) -> Tensor:
        return self._elements[self.layers.index(layer)]


def _named(layers: range) -> str:
    return f"layers {layers.start} to {layers.stop - 1}"
