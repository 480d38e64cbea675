import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.workloads.prefill_by_hand import CPU, moved
from tests.support.workloads.reference_llama import TINY
from wanbed.workloads.compute.device.torch_device import CpuDevice, TorchDevice, as_tensor
from wanbed.workloads.inference.key_value_cache import KVCache


class ApartDevice(CpuDevice):
    """A CPU with separate memory, like a GPU: every transfer to or from it is a copy."""

    shares_memory = False

    def received(self, payload: memoryview, dtype: torch.dtype) -> Tensor:
        return as_tensor(payload, dtype).clone()

    def on_host(self, tensor: Tensor) -> Tensor:
        return tensor.detach().contiguous().clone()


def empty(
    layers: range = range(1, 4), capacity: int = 8, dtype: torch.dtype = torch.float32, device: TorchDevice = CPU
) -> KVCache:
    return KVCache(TINY, layers, capacity, device=device, dtype=dtype)


def random_part(tokens: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(tokens, TINY.kv_heads, TINY.head_dim).to(dtype)


def extend(cache: KVCache, tokens: int, dtype: torch.dtype = torch.float32) -> None:
    for layer in cache.layers:
        cache.store(layer, cache.tokens, random_part(tokens, dtype), random_part(tokens, dtype))
    cache.advance(tokens)


def extended(tokens: int, capacity: int, layers: range = range(1, 4)) -> KVCache:
    cache = empty(layers, capacity)
    extend(cache, tokens)
    return cache


def address(data: memoryview) -> int:
    return torch.frombuffer(data, dtype=torch.uint8).data_ptr()


def test_a_layer_keeps_its_chunks_one_after_another() -> None:
    cache = empty()
    keys, values = random_part(8), random_part(8)
    for part in (slice(0, 3), slice(3, 4), slice(4, 8)):
        for layer in cache.layers:
            kept_keys, kept_values = cache.store(layer, part.start, keys[part], values[part])
            assert torch.equal(kept_keys, keys[: part.stop])
            assert torch.equal(kept_values, values[: part.stop])
        cache.advance(part.stop - part.start)
    assert cache.tokens == 8
    assert bytes(cache.layer_bytes(2)) == keys.numpy().tobytes() + values.numpy().tobytes()


def test_chunks_do_not_move_what_is_kept() -> None:
    cache = empty()
    first, _ = cache.store(1, 0, random_part(3), random_part(3))
    cache.advance(3)
    second, _ = cache.store(1, 3, random_part(5), random_part(5))
    assert second.data_ptr() == first.data_ptr()


@pytest.mark.parametrize("device", [CPU, ApartDevice()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(tokens=st.integers(1, 8), room=st.integers(0, 3), more_room=st.integers(0, 3))
def test_a_moved_cache_is_the_same_to_the_bit(
    device: TorchDevice, dtype: torch.dtype, tokens: int, room: int, more_room: int
) -> None:
    cache = empty(capacity=tokens + room, dtype=dtype, device=device)
    extend(cache, tokens, dtype)
    there = empty(capacity=tokens + more_room, dtype=dtype, device=device)
    there.load(cache.layers, moved(cache.to_bytes()))
    assert there.tokens == tokens
    assert there.to_bytes() == cache.to_bytes()
    assert there.to_bytes() == b"".join(cache.layer_bytes(layer) for layer in cache.layers)


def test_what_is_received_may_be_overwritten_once_it_is_loaded() -> None:
    cache = extended(5, 5)
    there = empty(capacity=6)
    payload = moved(cache.to_bytes())
    there.load(cache.layers, payload)
    payload[:] = bytes(payload.nbytes)
    assert there.to_bytes() == cache.to_bytes()


def test_a_moved_cache_goes_on() -> None:
    cache = extended(5, 5)
    there = empty(capacity=8)
    there.load(cache.layers, moved(cache.to_bytes()))
    extend(there, 2)
    assert there.tokens == 7


@given(tokens=st.integers(1, 8), capacity=st.integers(8, 10))
def test_a_cache_has_the_bytes_that_the_model_counts(tokens: int, capacity: int) -> None:
    cache = extended(tokens, capacity)
    assert cache.to_bytes().nbytes == TINY.kv_bytes(3, tokens)
    assert cache.layer_bytes(1).nbytes == TINY.kv_bytes(1, tokens)


def test_a_full_cache_is_sent_from_where_it_lies() -> None:
    cache = extended(8, 8)
    assert address(cache.layer_bytes(3)) == address(cache.layer_bytes(3))
    assert address(cache.to_bytes()) == address(cache.layer_bytes(1))


def test_tokens_count_once_all_layers_have_been_loaded() -> None:
    there = empty(range(4))
    for layers in (range(1, 3), range(1)):
        there.load(layers, moved(extended(5, 5, layers).to_bytes()))
        assert there.tokens == 0
    there.load(range(3, 4), moved(extended(5, 5, range(3, 4)).to_bytes()))
    assert there.tokens == 5


@pytest.mark.parametrize("layers", [range(3), range(1, 5), range(0), range(1, 4, 2)])
def test_layers_of_another_stage_are_not_loaded(layers: range) -> None:
    with pytest.raises(ValueError, match=r"^layers: "):
        empty().load(layers, memoryview(bytearray(TINY.kv_bytes(3, 2))))


@pytest.mark.parametrize("size", [0, TINY.kv_bytes(3, 2) - 4, TINY.kv_bytes(3, 9)])
def test_bytes_that_are_no_tokens_or_too_many_are_not_loaded(size: int) -> None:
    with pytest.raises(ValueError, match=rf"^data: {size} bytes are not 1 to 8 tokens of 768 bytes in layers 1 to 3$"):
        empty().load(range(1, 4), memoryview(bytearray(size)))


def test_a_cache_for_no_token_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^capacity: 0 is below 1$"):
        empty(capacity=0)


@pytest.mark.parametrize("device", [CPU, ApartDevice()])
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), spare=st.integers(0, 3))
def test_chunks_that_move_one_after_another_make_the_same_cache(
    device: TorchDevice, sizes: list[int], spare: int
) -> None:
    whole = extended(sum(sizes), sum(sizes))
    there = empty(range(8), sum(sizes) + spare, device=device)
    start = 0
    for size in sizes:
        there.load_chunk(whole.layers, start, moved(whole.chunk_bytes(start, size)))
        start += size
    assert [there.layer_bytes(layer) for layer in whole.layers] == [whole.layer_bytes(layer) for layer in whole.layers]
    assert there.tokens == 0


def test_a_chunk_stays_as_it_was_when_the_cache_goes_on() -> None:
    cache = extended(3, 8)
    chunk = cache.chunk_bytes(1, 2)
    before = bytes(chunk)
    cache.store(1, 3, random_part(2), random_part(2))
    assert chunk == before


@pytest.mark.parametrize(("prior", "tokens"), [(-1, 1), (0, 0), (0, 4), (3, 1)])
def test_a_chunk_that_the_cache_has_not_is_refused(prior: int, tokens: int) -> None:
    with pytest.raises(ValueError, match=r"^tokens: .* are not among the 3 of the cache$"):
        extended(3, 8).chunk_bytes(prior, tokens)


def test_a_chunk_that_is_not_the_next_of_its_layers_is_refused() -> None:
    chunk = moved(extended(3, 3).chunk_bytes(0, 3))
    there = empty(capacity=8)
    with pytest.raises(ValueError, match=r"^prior_tokens: layers 1 to 3 have not 2 tokens here$"):
        there.load_chunk(there.layers, 2, chunk)
    there.load_chunk(there.layers, 0, chunk)
    with pytest.raises(ValueError, match=r"^data: .* are not 1 to 5 tokens"):
        there.load_chunk(there.layers, 3, moved(memoryview(bytes(chunk) * 2)))
