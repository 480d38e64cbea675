from collections.abc import Iterable

import pytest

from wanbed.testbed.measurement import namespace_buffers as module
from wanbed.testbed.measurement.namespace_buffers import namespace_buffers

BEFORE = {"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_wmem": "4096 16384 4194304"}


@pytest.fixture
def sysctls(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """The sysctls of two namespaces."""
    held = {"/east": dict(BEFORE), "/west": dict(BEFORE)}

    def read(namespace: str, names: Iterable[str]) -> dict[str, str]:
        return {name: held[namespace][name] for name in names}

    monkeypatch.setattr(module, "read_sysctls", read)
    monkeypatch.setattr(module, "write_sysctls", lambda namespace, settings: held[namespace].update(settings))
    return held


def test_sockets_made_in_the_block_get_the_sizes_and_later_ones_those_from_before(
    sysctls: dict[str, dict[str, str]],
) -> None:
    with namespace_buffers(["/east", "/west"], receive_bytes=500_000, send_bytes=1_000_000):
        wanted = {"net.ipv4.tcp_rmem": "4096 500000 500000", "net.ipv4.tcp_wmem": "4096 1000000 1000000"}
        assert sysctls == {"/east": wanted, "/west": wanted}
    assert sysctls == {"/east": BEFORE, "/west": BEFORE}


def test_sysctls_are_restored_after_an_error(sysctls: dict[str, dict[str, str]]) -> None:
    with (
        pytest.raises(TimeoutError),
        namespace_buffers(["/east"], receive_bytes=500_000, send_bytes=1_000_000),
    ):
        raise TimeoutError
    assert sysctls["/east"] == BEFORE
