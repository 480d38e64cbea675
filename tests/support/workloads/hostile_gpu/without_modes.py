"""Let torch compute as if no mode watched it: what the GPU itself does, many times for each operator of a program."""

from types import TracebackType

import torch
from torch._C import _len_torch_dispatch_stack
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode


class WithoutModes:
    """Within it no mode sees this thread's functions and operators. Torch's own way looks for many other modes too."""

    def __enter__(self) -> None:
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._operators: list[TorchDispatchMode] = [_pop_mode() for _ in range(_len_torch_dispatch_stack())]

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for mode in reversed(self._operators):
            _push_mode(mode)
        self._functions.__exit__(kind, value, trace)
