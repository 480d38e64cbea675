"""Faults that somebody might make, as changes of today's code, and what carries them out in a process."""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

STAGING = "wanbed.workloads.compute.device.staging"
DEVICE = "wanbed.workloads.compute.device.torch_device"
TIMER = "wanbed.workloads.compute.device.device_measurement"
COMPUTE = "wanbed.workloads.compute.torch_compute"
COPIES = "wanbed.workloads.compute.grouped_model"
GROUPS = "wanbed.workloads.compute.grouped_model"
PREFILL = "wanbed.workloads.serving.prefill_compute"


@dataclass(frozen=True)
class Fault:
    """``old`` occurs once in ``module``, and ``new`` in its place is a fault.

    ``harmless`` is None, or why the changed code is still right: then nothing may notice it.
    """

    name: str
    module: str
    old: str
    new: str
    harmless: str | None = None


_NO_WAIT_TO_RELEASE = """\
Whoever releases a payload has read it before (CopyThread sends it first, take_back copies it), and reading waits for
the same event. The wait in release is for a caller that gives up a payload unread, of which there is none."""

_SPAN_HAS_ENDED = """\
An activation is received on prefill's stream or on the default one, and both ways the host has waited for its copy.
It is freed with its piece, after all layers that read it: the host has waited for each of them."""

_LOAD_IS_BEHIND = """\
Every load waits for all that has been enqueued to compute, and so for whatever used the memory before."""

FAULTS = (
    Fault("no copy waits for what computes", STAGING, "        stream.wait_for(computed)\n", ""),
    Fault(
        "a copy to the host does not wait for what computes",
        STAGING,
        "        self._wait_for_compute(self._outward)\n",
        "",
    ),
    Fault(
        "a sum is copied back while kernels use the gradients",
        STAGING,
        "        self._wait_for_compute(self._inward)\n",
        "",
    ),
    Fault(
        "the event that a copy waits for is recorded too late",
        STAGING,
        "        self._compute.record(computed)\n        stream.wait_for(computed)\n",
        "        stream.wait_for(computed)\n        self._compute.record(computed)\n",
    ),
    Fault(
        "kernels do not wait for a tensor on its way to the device",
        STAGING,
        "        self.compute.wait_for(self.done)\n",
        "        pass\n",
    ),
    Fault(
        "a payload is read before it has been copied",
        STAGING,
        "    def payload(self) -> memoryview:\n        self._done.wait()\n",
        "    def payload(self) -> memoryview:\n",
    ),
    Fault(
        "the source of a copy is freed before the copy",
        STAGING,
        "_UnderWay(stream is self._outward, before, done, source, release)",
        '_UnderWay(stream is self._outward, before, done, torch.empty_like(source, device="meta"), release)',
    ),
    Fault(
        "a received tensor is freed before the kernels that read it",
        STAGING,
        "filled_on=self._inward, used_on=self._compute",
        "filled_on=self._inward, used_on=self._inward",
    ),
    Fault(
        "a received tensor takes memory that kernels still use",
        STAGING,
        "filled_on=self._inward, used_on=self._compute",
        "filled_on=self._compute, used_on=self._compute",
    ),
    Fault(
        "a received payload is released before it has been copied",
        STAGING,
        "(done if copy.done.passed() else self._under_way).append(copy)",
        "copy.release() if not copy.done.passed() else done.append(copy)",
    ),
    Fault(
        "a copy is settled before it is done",
        STAGING,
        "(done if copy.done.passed() else self._under_way).append(copy)",
        "done.append(copy)",
    ),
    Fault(
        "a pinned buffer is free as soon as its copy begins",
        STAGING,
        "        return _PinnedOutgoing(buffer, done, self._buffers.give_back)",
        "        self._buffers.give_back(buffer)\n        return _PinnedOutgoing(buffer, done, lambda _: None)",
    ),
    Fault(
        "a pinned buffer is given back without waiting for its copy",
        STAGING,
        "    def release(self) -> None:\n        self._done.wait()\n",
        "    def release(self) -> None:\n",
        harmless=_NO_WAIT_TO_RELEASE,
    ),
    Fault(
        "the update does not wait for the sum",
        STAGING,
        "self._copy(self._inward, tensor, source).wait()",
        "self._copy(self._inward, tensor, source)",
    ),
    Fault(
        "the end of a copy is recorded before the copy",
        STAGING,
        "            stream.copy(target, source)\n            stream.record(done)\n",
        "            stream.record(done)\n            stream.copy(target, source)\n",
    ),
    Fault("a span does not wait for its end", TIMER, "        after.wait()\n", ""),
    Fault(
        "a backward does not wait for its gradient",
        COMPUTE,
        "            self._received[Message(MessageKind.GRADIENT, *key)][0].let_compute_wait()\n",
        "            pass\n",
    ),
    Fault(
        "a forward does not wait for its activation",
        COMPUTE,
        "        copy.let_compute_wait()\n        return _InFlight",
        "        return _InFlight",
    ),
    Fault(
        "prefill does not wait for the end of a layer",
        DEVICE,
        "        after.wait()\n",
        "",
    ),
    Fault(
        "a copy of prefill is used before it is done",
        DEVICE,
        "        done.wait()\n",
        "",
    ),
    Fault(
        "the KV cache is not of the stream that fills it",
        PREFILL,
        "        with self._stream():\n            if piece.request not in self._sequences:\n"
        "                self._sequences[piece.request] = _Sequence(self._stage.new_cache(piece.prompt_tokens))\n",
        "        if piece.request not in self._sequences:\n"
        "            self._sequences[piece.request] = _Sequence(self._stage.new_cache(piece.prompt_tokens))\n"
        "        with self._stream():\n",
    ),
    Fault(
        "an activation for prefill is not of the stream that reads it",
        PREFILL,
        "        with self._stream():\n            self._inputs[request, chunk]",
        "        if True:\n            self._inputs[request, chunk]",
        harmless=_SPAN_HAS_ENDED,
    ),
    Fault(
        "a group is loaded over one that computes",
        COPIES,
        "        self._after_compute(self._inward)\n",
        "",
    ),
    Fault(
        "a group computes before it is loaded",
        COPIES,
        "        self._compute.wait_for(self._loaded[group])\n",
        "",
    ),
    Fault(
        "a group waits for the load of another",
        COPIES,
        "        self._compute.wait_for(self._loaded[group])\n",
        "        self._compute.wait_for(next(iter(self._loaded.values())))\n",
    ),
    Fault(
        "gradients go back before they are computed",
        COPIES,
        "        self._after_compute(self._outward)\n",
        "",
    ),
    Fault(
        "gradients are overwritten before they have gone back",
        COPIES,
        "            self._compute.wait_for(self._returned[end])\n",
        "            pass\n",
    ),
    Fault(
        "the optimizer does not wait for the last gradients",
        COPIES,
        "            returned.wait()\n",
        "            pass\n",
    ),
    Fault(
        "the end of a load is recorded before the load",
        COPIES,
        "        stream.copy(target, source)\n        stream.record(interval.after)\n",
        "        stream.record(interval.after)\n        stream.copy(target, source)\n",
    ),
    Fault(
        "the memory of weights is of another stream than loads",
        COPIES,
        "filled_on=self._inward, used_on=self._compute",
        "filled_on=self._compute, used_on=self._compute",
        harmless=_LOAD_IS_BEHIND,
    ),
    Fault(
        "an iteration begins with a group of the last one",
        GROUPS,
        "        self._in_memory.clear()\n",
        "",
    ),
    Fault(
        "the next group is loaded over the one that computes",
        GROUPS,
        "        at = layout.starts[number]\n",
        "        at = 0\n",
    ),
    Fault(
        "gradients are added to those of the group before",
        GROUPS,
        "            self._groups[group].gradients.zero_()\n",
        "",
    ),
    Fault(
        "gradients of a group are zeroed before they have gone back",
        GROUPS,
        "            self._copies.await_room(end_of(group))\n            self._groups[group].gradients.zero_()\n",
        "            self._groups[group].gradients.zero_()\n            self._copies.await_room(end_of(group))\n",
    ),
)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Within it, the functions of the fault's module run the changed code. Fail if its text is not there once."""
    module = importlib.import_module(fault.module)
    path = Path(inspect.getfile(module))
    source = path.read_text(encoding="utf-8")
    assert source.count(fault.old) == 1, f"{fault.name}: its text is {source.count(fault.old)} times in {path.name}"
    changed = compile(source.replace(fault.old, fault.new), str(path), "exec", dont_inherit=True)
    before: list[tuple[FunctionType, CodeType]] = []
    for code in _functions(changed):
        found: object = module
        for name in code.co_qualname.split("."):
            found = inspect.getattr_static(found, name, None)
        if isinstance(found, FunctionType):
            # A decorated function is the one inside.
            found = inspect.unwrap(found)
            before.append((found, found.__code__))
            found.__code__ = code
    assert before
    try:
        yield
    finally:
        for function, code in before:
            function.__code__ = code


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of the functions of a module and of the methods of its classes."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_NEWLOCALS:
                yield constant
            else:
                yield from _functions(constant)
