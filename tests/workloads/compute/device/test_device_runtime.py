import pytest

from wanbed.workloads.compute.device.device_runtime import assigned_uuid

SEEN = "5fd4c7a1-0000"


@pytest.mark.parametrize(
    ("seen", "visible", "uuid"),
    [
        (SEEN, None, f"GPU-{SEEN}"),
        (SEEN, "", f"GPU-{SEEN}"),
        (SEEN, "2", f"GPU-{SEEN}"),
        (SEEN, f"GPU-{SEEN}", f"GPU-{SEEN}"),
        (f"GPU-{SEEN}", "GPU-5fd4,GPU-7", f"GPU-{SEEN}"),
        (SEEN, "MIG-77", "MIG-77"),
        ("MIG-77", "MIG-77", "MIG-77"),
    ],
)
def test_a_gpu_has_the_uuid_that_telemetry_samples(seen: str, visible: str | None, uuid: str) -> None:
    assert assigned_uuid(seen, visible) == uuid


def test_another_gpu_than_the_assigned_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^device: torch computes on GPU-5fd4c7a1-0000, where .* gives GPU-7: set it"):
        assigned_uuid(SEEN, "GPU-7")
