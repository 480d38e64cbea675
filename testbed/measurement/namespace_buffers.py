"""Give TCP sockets buffers of any size without the right to do so socket by socket: by their namespace's sysctls."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from wanbed.testbed.kernel.namespace import read_sysctls, write_sysctls

_BUFFERS = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")


@contextmanager
def namespace_buffers(namespaces: Iterable[str], *, receive_bytes: int, send_bytes: int) -> Iterator[None]:
    """Give sockets that are made in these namespaces during the block buffers of that size, and restore the sysctls."""
    sizes = {name: f"4096 {size} {size}" for name, size in zip(_BUFFERS, (receive_bytes, send_bytes), strict=True)}
    with ExitStack() as restoring:
        for namespace in set(namespaces):
            before = {name: value for name, value in read_sysctls(namespace, _BUFFERS).items() if value is not None}
            restoring.callback(write_sysctls, namespace, before)
            write_sysctls(namespace, sizes)
        yield
