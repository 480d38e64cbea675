"""Kernels of a hostile GPU: torch's operators on its memory are only enqueued, and their results are NaN until then."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.workloads.hostile_gpu.arguments import form, form_of, mapped, tensors_of
from tests.support.workloads.hostile_gpu.memory import Arena
from tests.support.workloads.hostile_gpu.without_modes import WithoutModes

DEVICE = torch.device("cpu", 0)
"""The GPU. Host memory is ``torch.device("cpu")``: torch computes with both, and takes none for the other."""

_aten = torch.ops.aten
_VIEWS = {_aten._unsafe_view.default, _aten._reshape_alias.default}
_EMPTY = {_aten.empty.memory_format, _aten.empty_strided.default, _aten.empty_like.default, _aten.new_empty.default}

_outputs: dict[object, list[tuple[Any, ...] | None]] = {}
"""Size, stride and type of the results that an operator has had for arguments of a form."""

Enqueue = Callable[[Callable[[], object]], None]


class Kernels:
    """Carries out operators on ``memory``, with ``enqueue`` on the thread's stream.

    ``new(size, stride, dtype)`` allocates, ``synchronize(why)`` makes the host wait for the stream.
    """

    def __init__(
        self,
        memory: Arena,
        pinned: Arena,
        enqueue: Enqueue,
        new: Callable[..., Tensor],
        synchronize: Callable[[str], None],
    ) -> None:
        self._memory = memory
        self._pinned = pinned
        self._enqueue = enqueue
        self._new = new
        self._synchronize = synchronize

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out one operator, of which the host sees all that CUDA would let it see."""
        tensors = tensors_of(args, kwargs)
        ours = [each for each in tensors if self.owns(each)]
        to_gpu = kwargs.get("device") == DEVICE
        if not ours and not to_gpu:
            return func(*args, **kwargs)
        if func in _EMPTY and kwargs.get("device") == torch.device("cpu"):
            return func(*args, **kwargs)
        special = self._special(func, args, kwargs)
        if special is not None:
            return special
        for other in tensors:
            if other.dim() and other.numel() and not self.owns(other):
                raise RuntimeError(f"Expected all tensors to be on the same device, but {func} found some on the host")
        return self._kernel(func, args, kwargs)

    def _special(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a copy, or of an operator that fills new memory; None for any other operator."""
        if func is _aten._to_copy.default:
            return self._to_copy(args[0], kwargs)
        if func is _aten.copy_.default:
            return self._copy(*args, **kwargs)
        return self._fill_new(func, args, kwargs) if kwargs.get("device") == DEVICE else None

    def _kernel(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.Tag.data_dependent_output in func.tags:
            self._synchronize("value")
            return func(*args, **kwargs)
        assert torch.Tag.dynamic_output_shape not in func.tags, f"{func} makes the host wait for the GPU"
        if _is_view(func):
            return func(*args, **kwargs)
        if not _writes(func):
            return self._compute(func, args, kwargs)
        kernel_args, kernel_kwargs = self._pointers(args, kwargs)
        self._enqueue(lambda: func(*kernel_args, **kernel_kwargs))
        written = [_aliased(func, each.alias_info, args, kwargs) for each in func._schema.returns]
        return written[0] if len(written) == 1 else tuple(written) or None

    def owns(self, tensor: Tensor) -> bool:
        """Return whether the tensor is in the GPU's memory."""
        return bool(tensor.numel()) and tensor in self._memory

    def to_host(self, tensor: Tensor) -> Tensor:
        """Return a copy in host memory, for which the host waits."""
        self._synchronize("copy")
        with WithoutModes():
            return tensor.detach().clone()

    def _to_copy(self, source: Tensor, kwargs: dict[str, Any]) -> Tensor:
        dtype = kwargs.get("dtype") or source.dtype
        if not self.owns(source):
            made = self._new(source.size(), source.stride(), dtype)
            return self._copy(made, source.to(dtype))
        if dtype == source.dtype:
            return source.detach()
        return self._compute(_aten._to_copy.default, (source,), {"dtype": dtype})  # type: ignore[no-any-return]

    def _copy(self, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        on_host = [each for each in (target, source) if not self.owns(each)]
        asynchronous = all(non_blocking and each in self._pinned for each in on_host) or not source.dim()
        (to, of), _ = self._pointers((target, source if self.owns(source) else source.clone()), {})
        self._enqueue(lambda: to.copy_(of))
        if on_host and not asynchronous:
            self._synchronize("copy")
        return target

    def _fill_new(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        made: Tensor = func(*args, **{**kwargs, "device": torch.device("cpu")})
        out = self._new(made.size(), made.stride(), made.dtype)
        if func not in _EMPTY and made.numel():
            target = self._memory.pointer(out)
            self._enqueue(lambda: target.copy_(made))
        return out

    def _compute(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kwargs = {name: value for name, value in kwargs.items() if name != "device"}
        outputs = self._outputs_of(func, args, kwargs)
        made = [None if each is None else self._new(*each) for each in outputs]
        if func not in _EMPTY:
            targets = [None if each is None else self._memory.pointer(each) for each in made]
            kernel_args, kernel_kwargs = self._pointers(args, kwargs)

            def kernel() -> None:
                results = func(*kernel_args, **kernel_kwargs)
                for target, result in zip(targets, [results] if len(targets) == 1 else results, strict=True):
                    if target is not None:
                        target.copy_(result)

            self._enqueue(kernel)
        return made[0] if len(made) == 1 else tuple(made)

    def _outputs_of(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[Any, ...] | None]:
        """Return size, stride and type of the results, by a try on zeros: meta kernels differ from the CPU's."""

        key = func, form(args, kwargs)
        if key not in _outputs:
            blank_args, blank_kwargs = mapped(torch.zeros_like, args, kwargs)
            results = func(*blank_args, **blank_kwargs)
            _outputs[key] = [
                form_of(each) if isinstance(each, Tensor) else None
                for each in ([results] if isinstance(results, Tensor) else results)
            ]
        return _outputs[key]

    def _pointers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def pointer(tensor: Tensor) -> Tensor:
            memory = next((memory for memory in (self._memory, self._pinned) if tensor in memory), None)
            return tensor.detach() if memory is None else memory.pointer(tensor)

        return mapped(pointer, args, kwargs)


@cache
def _writes(func: OpOverload) -> bool:
    """Return whether an operator changes an argument."""
    return any(each.alias_info is not None and each.alias_info.is_write for each in func._schema.arguments)


@cache
def _is_view(func: OpOverload) -> bool:
    """Return whether an operator only returns its argument's memory in another form."""
    shares = any(each.alias_info is not None for each in func._schema.returns)
    return func in _VIEWS or (shares and not _writes(func))


def _aliased(func: OpOverload, alias: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the argument that a result of an operator in place is."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set == alias.before_set:
            return args[position] if position < len(args) else kwargs[argument.name]
    raise AssertionError(f"{func} returns no argument of its own")


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, a thread's operators go through ``kernels``."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kernels = kernels

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Backward passes call this with functions watched.
        with torch._C.DisableTorchFunction():
            return self._kernels.dispatch(func, args, kwargs or {})


class TensorMode(TorchFunctionMode):
    """Within it, a thread's tensors of ``kernels`` know that they are on the GPU."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self._kernels = kernels

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _ON_HOST and isinstance(args[0], Tensor) and self._kernels.owns(args[0]):
            tensor = args[0]
            if func in (_DEVICE_OF, _IS_CPU):
                return DEVICE if func == _DEVICE_OF else False
            if func is Tensor.numpy:
                raise TypeError("can't convert a tensor of the GPU to numpy: copy it to host memory first")
            if func is not Tensor.to:
                return func(self._kernels.to_host(tensor), *args[1:], **kwargs)
            device, dtype, *_ = torch._C._nn._parse_to(*args[1:], **kwargs)
            if device is not None and device != DEVICE:
                return self._kernels.to_host(tensor).to(dtype or tensor.dtype)
            return tensor if dtype is None else tensor.to(dtype=dtype)
        return func(*args, **kwargs)


_DEVICE_OF = Tensor.device.__get__
_IS_CPU = Tensor.is_cpu.__get__  # type: ignore[attr-defined]
_ON_HOST = {_DEVICE_OF, _IS_CPU, Tensor.numpy, Tensor.cpu, Tensor.tolist, Tensor.to}
