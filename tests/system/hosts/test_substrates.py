import subprocess
from pathlib import Path

from tests.support.runner.wanbed_command import BUSY_OR_NOT, WANBED
from wanbed.testbed.substrate.probe import choose_substrate, probe_guest, probe_kernel

LINK = "topology: {datacenters: [{name: dune, hosts: 1}, {name: fjord, hosts: 1}], wan: {latency: 25ms, rate: 20Mbit}}"
AS_IN_A_CONTAINER = 'mount -t tmpfs -o size=64m tmpfs /dev/shm; exec "$@"'


def test_this_machine_has_netem_somewhere() -> None:
    offers = [probe_kernel(), probe_guest()]
    assert any(offer.available for offer in offers), [offer.reason for offer in offers]


def test_the_kernels_own_netem_comes_before_the_guest() -> None:
    assert choose_substrate("auto").name == ("kernel" if probe_kernel().available else "guest")


def test_the_guest_works_where_a_container_has_little_shared_memory(substrate: str, tmp_path: Path) -> None:
    file = tmp_path / "link.yaml"
    file.write_text(LINK)
    command = ["unshare", "--mount", "sh", "-c", AS_IN_A_CONTAINER, "sh", *WANBED, "calibrate", str(file)]
    done = subprocess.run([*command, "--substrate", substrate], capture_output=True, text=True, check=False)
    assert done.returncode in BUSY_OR_NOT, done.stderr
