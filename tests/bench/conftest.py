"""Locks of their own for tests that run beside each other."""

import pytest


@pytest.fixture(autouse=True)
def _own_locks(monkeypatch, tmp_path):
    monkeypatch.setattr("lanewise.bench.lock._folder", lambda: tmp_path / "locks")
