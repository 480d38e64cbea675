"""The configuration of a rendezvous."""

import pytest

from wanbed.workloads.transport.rendezvous_config import RendezvousConfig

VALID: dict[str, object] = {"listen_address": "10.1.0.1", "listen_port": 29_501, "run_token": "00" * 16}


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"listen_port": 0}, "listen_port: 0 is no port to listen on"),
        ({"run_token": "00"}, "run_token: write 16 bytes in hexadecimal"),
        ({"run_token": "no"}, "run_token: write 16 bytes in hexadecimal"),
        ({"timeout_ns": 0}, "timeout_ns: 0 is below 1"),
        ({"peer_timeout_s": 7}, "peer_timeout_s: 7 is below 8"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(changed: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}$"):
        RendezvousConfig(**VALID | changed)  # type: ignore[arg-type]
