"""Compare the GPU that torch sees with the one that this process was assigned by CUDA_VISIBLE_DEVICES."""

_GPU, _MIG = "GPU-", "MIG-"


def assigned_uuid(seen: str, visible_devices: str | None) -> str:
    """Return the UUID of torch's first GPU as telemetry knows it. ``seen`` is what torch reports.

    ``visible_devices`` is the value of CUDA_VISIBLE_DEVICES. If it begins with a UUID, torch must see that GPU. If
    it does not, it was loaded before the variable was set, and telemetry would sample another GPU: raise ValueError.
    A MIG instance is returned by its own UUID, where torch may report that of the whole GPU.
    """
    # NVML and CUDA_VISIBLE_DEVICES write the UUID with this prefix.
    uuid = f"{_GPU}{seen.removeprefix(_GPU).removeprefix(_MIG)}"
    first = (visible_devices or "").partition(",")[0].strip()
    if first.startswith(_MIG):
        return first
    if first.startswith(_GPU) and not uuid.startswith(first):
        raise ValueError(
            f"device: torch computes on {uuid}, where CUDA_VISIBLE_DEVICES gives {first}: set it before torch is loaded"
        )
    return uuid
