import socket
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import LOOPBACK, free_ports
from wanbed.workloads.serving import decode_process
from wanbed.workloads.serving.decode_process import DecodeProcess
from wanbed.workloads.serving.serving_configs import DecodeConfig, Endpoint


def answers(endpoint: Endpoint) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex((endpoint.address, endpoint.port)) == 0


def test_a_decode_host_does_not_answer_senders_before_its_model_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen, controller = (Endpoint("decode", LOOPBACK, port) for port in free_ports(2))
    answered: list[bool] = []

    def build(_: DecodeConfig) -> None:
        answered.append(answers(listen))

    monkeypatch.setattr(decode_process, "_decoder", build)
    process = DecodeProcess(DecodeConfig(listen, controller, "token", str(tmp_path / "counts")))
    assert answered == [False]
    assert answers(listen)
    process._listener.close()
