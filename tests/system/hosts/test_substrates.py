from testbed.substrate.probe import choose_substrate, probe_guest, probe_kernel


def test_this_machine_has_netem_somewhere() -> None:
    offers = [probe_kernel(), probe_guest()]
    assert any(offer.available for offer in offers), [offer.reason for offer in offers]


def test_the_kernels_own_netem_comes_before_the_guest() -> None:
    assert choose_substrate("auto").name == ("kernel" if probe_kernel().available else "guest")
