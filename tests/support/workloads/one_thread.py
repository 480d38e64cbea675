"""Let torch compute with one thread in tests: ``_one_thread = pytest.fixture(autouse=True)(one_thread)``."""

from collections.abc import Iterator

import torch


def one_thread() -> Iterator[None]:
    """Use one thread like the ranks: on products this small several threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
