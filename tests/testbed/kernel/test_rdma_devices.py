"""RDMA devices and what they have sent, from a folder that plays /sys/class/infiniband."""

from pathlib import Path

from wanbed.testbed.kernel.rdma_devices import rdma_ports, rdma_sent_bytes


def port(devices: Path, device: str, number: int, words: str | None) -> Path:
    folder = devices / device / f"ports/{number}"
    (folder / "counters").mkdir(parents=True)
    (folder / "state").write_text("4: ACTIVE\n")
    (folder / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (folder / "link_layer").write_text("InfiniBand\n")
    if words is not None:
        (folder / "counters/port_xmit_data").write_text(f"{words}\n")
    return folder


def test_every_port_of_every_device_is_found(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_1", 1, "0")
    (port(tmp_path, "mlx5_0", 1, "0") / "rate").unlink()
    first, second = rdma_ports(tmp_path)
    assert first.document() == {
        "device": "mlx5_0",
        "port": 1,
        "state": "4: ACTIVE",
        "rate": None,
        "link_layer": "InfiniBand",
    }
    assert (second.name, second.rate) == ("mlx5_1/1", "400 Gb/sec (4X NDR)")


def test_counters_are_in_words_of_four_bytes(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", 1, "25")
    port(tmp_path, "mlx5_0", 2, None)
    port(tmp_path, "rxe0", 1, "N/A (no PMA)")
    assert rdma_sent_bytes(tmp_path) == {"mlx5_0/1": 100}


def test_a_machine_without_rdma_has_none(tmp_path: Path) -> None:
    assert rdma_ports(tmp_path / "none") == ()
    assert rdma_sent_bytes(tmp_path / "none") == {}
