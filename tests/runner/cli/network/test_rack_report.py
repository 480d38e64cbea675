"""What ``wanbed doctor --rack`` prints of a machine."""

import pytest

from wanbed.runner.cli.network.rack_report import print_rack
from wanbed.runner.rack.diagnosis.rack_diagnosis import MachineDiagnosis, RackDiagnosis
from wanbed.runner.rack.host_placement import Node
from wanbed.testbed.kernel.rdma_devices import RdmaPort
from wanbed.testbed.rack.machine.survey import survey_machine


def test_rdma_devices_of_a_machine_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    port = RdmaPort("mlx5_0", 1, "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand").document()
    survey = {**survey_machine(None), "rdma": [port]}
    cluster = {"address": "10.0.0.1:6379", "ray": "2", "token_authentication": True, "sources_sent": False}
    diagnosis = RackDiagnosis(cluster, (MachineDiagnosis(Node("east", "1", "10.0.0.2"), survey=survey),), (), ())
    print_rack(diagnosis, "test")
    assert "RDMA mlx5_0/1 at 400 Gb/sec (4X NDR), which is kept unused" in capsys.readouterr().out
