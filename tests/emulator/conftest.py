"""What the emulator's tests share."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _triton_cache(tmp_path_factory):
    """Triton's cache of this run of the tests; workers share it. One that the environment names is kept."""
    if "TRITON_CACHE_DIR" in os.environ:
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "triton"))
        yield
