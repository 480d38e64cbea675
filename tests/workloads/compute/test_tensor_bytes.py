import pytest
import torch

from wanbed.workloads.compute.tensor_bytes import as_bytes, as_tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_and_tensor_are_the_same_memory_both_ways(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).to(dtype).view(2, 3).requires_grad_()
    data = as_bytes(tensor)
    assert (data.nbytes, data.format, data.ndim, data.readonly) == (6 * dtype.itemsize, "B", 1, False)
    back = as_tensor(data, dtype)
    assert torch.equal(back, tensor.detach().flatten())
    back[4] = 9
    assert tensor[1, 1] == 9


def test_bytes_keep_the_tensors_memory_alive() -> None:
    data = as_bytes(torch.full((1000,), 7.0))
    torch.zeros(1000)
    assert torch.equal(as_tensor(data, torch.float32), torch.full((1000,), 7.0))


def test_a_tensor_whose_elements_are_out_of_order_has_no_bytes() -> None:
    with pytest.raises(RuntimeError):
        as_bytes(torch.zeros(2, 3).t())
