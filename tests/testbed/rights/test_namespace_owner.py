import pytest

from wanbed.testbed.rights.namespace_owner import UNMAPPED, owner_of

WHOLE_MACHINE = "         0          0 4294967295\n"
OWN = "         0       1000          1\n"
CONTAINER = "         0     100000      65536\n     70000       1000          1\n"


@pytest.mark.parametrize(
    ("id_map", "user_id", "owner"),
    [
        (WHOLE_MACHINE, 0, 0),
        (WHOLE_MACHINE, 1000, 1000),
        (OWN, 0, 1000),
        (CONTAINER, 5, 100_005),
        (CONTAINER, 70_000, 1000),
        (OWN, 1, UNMAPPED),
        ("", 0, UNMAPPED),
    ],
)
def test_an_id_is_translated_as_the_namespaces_map_says(id_map: str, user_id: int, owner: int) -> None:
    assert owner_of(user_id, id_map) == owner
