"""One stage of a Llama-shaped model. It prefills prompts chunk by chunk and can pause after any layer."""

from torch import Tensor

from wanbed.workloads.compute.device.torch_device import TorchDevice
from wanbed.workloads.gpt.gpt_config import bytes_per_element
from wanbed.workloads.gpt.gpt_stage import DTYPES
from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.inference.key_value_cache import KVCache
from wanbed.workloads.inference.llama_layers import LlamaLayers, build_layers, place_chunk


class PrefillChunk:
    """A chunk being prefilled by a stage, one layer at each ``step``. ``InferenceStage.begin_chunk`` creates it.

    Other work may run between two steps, including other chunks on the same stage. A chunk may be abandoned after any
    layer and begun again, because the cache counts its tokens only after the last step.
    """

    def __init__(self, model: InferenceModel, module: LlamaLayers, cache: KVCache, inputs: Tensor) -> None:
        self._module = module
        self._cache = cache
        self._x = inputs
        self._place = place_chunk(model, cache, len(inputs), inputs.device)
        self._layers = iter(module.layers.values())
        self.layers_left = len(module.layers)
        """The number of remaining steps."""

    def step(self) -> bool:
        """Run the next layer and return whether any layer remains.

        The model's embedding runs with the stage's first layer, the model's head with its last one. On a GPU the layer
        has only been enqueued on return (see ``TorchDevice.timed``). Raises RuntimeError if no layer remains, and
        ValueError if another chunk has taken this one's place in the cache.
        """
        if not self.layers_left:
            raise RuntimeError("the chunk has been through all layers of the stage")
        tokens = len(self._x)
        if self.layers_left == len(self._module.layers) and self._module.tokens is not None:
            self._x = self._module.tokens(self._x)
        self._x = next(self._layers)(self._x, self._place)
        self.layers_left -= 1
        if self.layers_left == 0:
            self._cache.advance(tokens)
            if self._module.norm is not None and self._module.head is not None:
                self._x = self._module.head(self._module.norm(self._x[-1]))
        return self.layers_left > 0

    @property
    def outputs(self) -> Tensor:
        """The chunk's result (see ``InferenceStage.prefill_chunk``). Raises RuntimeError before the last step."""
        if self.layers_left:
            raise RuntimeError(f"the chunk has {self.layers_left} layers of the stage to go through")
        return self._x


class InferenceStage:
    """Consecutive ``layers`` of a model with random weights from ``seed``, for any number of sequences at a time.

    The stages of a model in sequence compute bit for bit the same as one stage of all layers. The first stage has the
    token embedding, the last one the final norm and the head. ``precision`` is that of weights, activations, keys and
    values; it must take the model's ``bytes_per_element``.

    Raises ValueError naming the argument.
    """

    def __init__(self, model: InferenceModel, layers: range, *, seed: int, device: TorchDevice, precision: str) -> None:
        if not layers or layers.step != 1 or layers.start < 0 or layers.stop > model.layers:
            raise ValueError(f"layers: {layers} are not consecutive ones of the {model.layers} of {model.name}")
        if seed < 0:
            raise ValueError(f"seed: {seed} is negative")
        if bytes_per_element(precision) != model.bytes_per_element:
            raise ValueError(
                f"precision: {precision} stores {bytes_per_element(precision)} bytes of an element, "
                f"{model.name} counts {model.bytes_per_element}"
            )
        self.model = model
        self.layers = layers
        self.dtype = DTYPES[precision]
        self.device = device
        self._module = build_layers(model, layers, seed=seed, dtype=self.dtype, device=device.device)

    @property
    def is_first(self) -> bool:
        """Return whether this is the model's first stage, whose inputs are token numbers."""
        return self.layers.start == 0

    @property
    def is_last(self) -> bool:
        """Return whether this is the model's last stage, whose outputs are logits."""
        return self.layers.stop == self.model.layers

    def new_cache(self, capacity: int) -> KVCache:
        """Return an empty cache of this stage's layers, for one sequence of at most ``capacity`` tokens."""
        return KVCache(self.model, self.layers, capacity, device=self.device, dtype=self.dtype)

    def hidden_states(self, payload: memoryview) -> Tensor:
        """Return a payload from the previous stage as a chunk's inputs, on the CPU without a copy."""
        return self.device.received(payload, self.dtype).view(-1, self.model.hidden)

    def begin_chunk(self, cache: KVCache, inputs: Tensor, prior_tokens: int) -> PrefillChunk:
        """Begin the next chunk of the cache's sequence without computing anything yet (see ``prefill_chunk``).

        Raises ValueError naming the argument.
        """
        expected = (len(inputs),) if self.is_first else (len(inputs), self.model.hidden)
        if inputs.shape != expected:
            raise ValueError(f"inputs: of shape {tuple(inputs.shape)}, not {expected}")
        if cache.layers != self.layers:
            raise ValueError(f"cache: of layers {cache.layers}, not {self.layers}")
        cache.check_room(prior_tokens, len(inputs))
        return PrefillChunk(self.model, self._module, cache, inputs.to(self.device.device))

    def prefill_chunk(self, cache: KVCache, inputs: Tensor, prior_tokens: int) -> Tensor:
        """Compute all layers for the next chunk of a sequence, after ``prior_tokens`` tokens in the cache.

        ``inputs`` are the chunk's tokens, (tokens,) int64, at the first stage, and the previous stage's hidden states,
        (tokens, hidden), at any other. Return the hidden states; at the last stage return the logits, (vocabulary,), of
        the token after the chunk's last one. Raises ValueError if the cache is not of these layers, or if the chunk
        does not come next in it.
        """
        chunk = self.begin_chunk(cache, inputs, prior_tokens)
        while chunk.step():
            pass
        return chunk.outputs
