"""One stage of a Llama-shaped model, which takes prompts chunk by chunk and can stop after any layer."""

from torch import Tensor

from workloads.compute.device.torch_device import TorchDevice
from workloads.inference.inference_model import InferenceModel
from workloads.inference.key_value_cache import KVCache
from workloads.inference.llama_layers import LlamaLayers, build_layers, place_chunk
from workloads.model.gpt_config import bytes_per_element
from workloads.model.gpt_stage import DTYPES


class PrefillChunk:
    """A chunk on its way through a stage, a layer at each ``step``; ``InferenceStage.begin_chunk`` makes it.

    Between steps anything else may run, other chunks on the same stage too. A chunk may be given up after any layer and
    begun again: its tokens do not count in the cache before its last step.
    """

    def __init__(self, model: InferenceModel, module: LlamaLayers, cache: KVCache, inputs: Tensor) -> None:
        self._module = module
        self._cache = cache
        self._x = inputs
        self._place = place_chunk(model, cache, len(inputs), inputs.device)
        self._layers = iter(module.layers.values())
        self.layers_left = len(module.layers)
        """How many steps there are to come."""

    def step(self) -> bool:
        """Run the next layer and return whether any is left. The first also embeds, the last also runs the head.

        On a GPU the layer has only been enqueued on return (see ``TorchDevice.timed``). Raises RuntimeError if no
        layer is left, ValueError if another chunk has taken this one's place in the cache.
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
        """The chunk's result after its last step (see ``InferenceStage.prefill_chunk``). RuntimeError before that."""
        if self.layers_left:
            raise RuntimeError(f"the chunk has {self.layers_left} layers of the stage to go through")
        return self._x


class InferenceStage:
    """Consecutive ``layers`` of a model with random weights from ``seed``, for any number of sequences at a time.

    The stages of a model, one after another, compute the same as one stage of all its layers, to the bit; the first has
    the token embedding, the last the final norm and the head. ``precision`` is that of weights, activations, keys and
    values, and stores as many bytes as the model counts.

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
        """Whether inputs are token numbers."""
        return self.layers.start == 0

    @property
    def is_last(self) -> bool:
        """Whether outputs are logits."""
        return self.layers.stop == self.model.layers

    def new_cache(self, capacity: int) -> KVCache:
        """Return an empty cache of this stage's layers, for one sequence of at most ``capacity`` tokens."""
        return KVCache(self.model, self.layers, capacity, device=self.device, dtype=self.dtype)

    def hidden_states(self, payload: memoryview) -> Tensor:
        """Return the bytes that the previous stage sent as a chunk's inputs; on the CPU the payload's own memory."""
        return self.device.received(payload, self.dtype).view(-1, self.model.hidden)

    def begin_chunk(self, cache: KVCache, inputs: Tensor, prior_tokens: int) -> PrefillChunk:
        """Start on the next chunk of the cache's sequence, computing nothing yet (see ``prefill_chunk``)."""
        expected = (len(inputs),) if self.is_first else (len(inputs), self.model.hidden)
        if inputs.shape != expected:
            raise ValueError(f"inputs: of shape {tuple(inputs.shape)}, not {expected}")
        if cache.layers != self.layers:
            raise ValueError(f"cache: of layers {cache.layers}, not {self.layers}")
        cache.check_room(prior_tokens, len(inputs))
        return PrefillChunk(self.model, self._module, cache, inputs.to(self.device.device))

    def prefill_chunk(self, cache: KVCache, inputs: Tensor, prior_tokens: int) -> Tensor:
        """Take the next chunk of the cache's sequence, ``prior_tokens`` of which are in the cache, through all layers.

        ``inputs`` are the chunk's tokens, (tokens,) int64, at the first stage, and else the hidden states, (tokens,
        hidden), of the stage before. The last stage returns the logits, (vocabulary,), of the token after the chunk's
        last one. Raises ValueError if the cache is not of these layers, or the chunk not next in it.
        """
        chunk = self.begin_chunk(cache, inputs, prior_tokens)
        while chunk.step():
            pass
        return chunk.outputs
