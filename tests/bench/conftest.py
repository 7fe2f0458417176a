"""Locks in a folder that a test can look into."""

import pytest


@pytest.fixture(autouse=True)
def _locks_in_sight(monkeypatch, tmp_path):
    monkeypatch.setattr("lanewise.bench.lock._folder", lambda: tmp_path / "locks")
