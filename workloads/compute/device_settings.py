"""The device that a back end computes on. Needs no torch and goes through JSON."""

from dataclasses import dataclass

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class DeviceSettings:
    """The device that a process computes on, and how. A back end that uses none ignores them.

    - ``name``: auto (cuda if there is a GPU), cpu or cuda.
    - ``threads``: torch's threads on the CPU. The default is one, because ranks share a machine.
    - ``deterministic``: use only kernels that give the same bits in every run.

    Raises ValueError naming the field.
    """

    name: str = "auto"
    threads: int = 1
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.name not in DEVICES:
            raise ValueError(f"name: {self.name!r} is none of {', '.join(DEVICES)}")
        if self.threads < 1:
            raise ValueError(f"threads: {self.threads} is below 1")


@dataclass(frozen=True)
class SwapSettings:
    """``layers_of_groups`` are the groups, None to choose them by times that the rank measures when it begins.

    ``memory_bytes`` is what the device has for the weights of two groups, None for no limit.
    """

    layers_of_groups: tuple[int, ...] | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class TrainingDevice(DeviceSettings):
    """The device that a rank trains on.

    - ``check_iteration``: the iteration that a profiler records too, None for none.
    - ``swapping``: how the whole model is swapped through the device, None if it is there all the time.
    """

    check_iteration: int | None = None
    swapping: SwapSettings | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.check_iteration is not None and self.check_iteration < 0:
            raise ValueError(f"check_iteration: {self.check_iteration} is below 0")
