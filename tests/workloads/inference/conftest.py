import pytest

from tests.support.workloads.one_thread import one_thread

_one_thread = pytest.fixture(autouse=True, scope="package")(one_thread)
