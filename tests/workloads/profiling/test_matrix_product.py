import torch

from wanbed.workloads.compute.device.torch_device import CpuDevice
from wanbed.workloads.profiling.matrix_product import ProductTimes, measure_product
from wanbed.workloads.profiling.repeats import Pace


class Counting(CpuDevice):
    """A device on which a product takes as long as ``product_ns`` says, whatever it takes."""

    def __init__(self, product_ns: int) -> None:
        self.product_ns = product_ns

    def timed(self, work):  # type: ignore[no-untyped-def]
        products = []
        original = torch.mm

        def counted(*factors, **options):  # type: ignore[no-untyped-def]
            products.append(factors[0].shape)
            return original(*factors, **options)

        torch.mm = counted
        try:
            work()
        finally:
            torch.mm = original
        assert set(products) == {(16, 16)}
        return 1_000, 1_000 + len(products) * self.product_ns


def test_the_time_is_that_of_one_product_however_many_are_timed_at_once() -> None:
    found = measure_product(Counting(500_000), torch.float32, 16, Pace(7, 0, 5_000_000))
    assert found == ProductTimes(16, (500_000,) * 7)


def test_products_use_the_configured_precision() -> None:
    found = measure_product(CpuDevice(), torch.bfloat16, 8, Pace(7, 0, 0))
    assert found.size == 8
    assert min(found.repeats_ns) > 0
