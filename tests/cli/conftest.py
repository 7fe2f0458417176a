"""The fake model, put where commands look for the engine."""

import cli_fakes
import pytest


@pytest.fixture
def llm(monkeypatch):
    """The class that `generate` and `chat` load, fresh for each test; `.made` has its instances."""

    class Fresh(cli_fakes.FakeLLM):
        made = []  # noqa: RUF012

    monkeypatch.setattr("lanewise.engine.LLM", Fresh)
    monkeypatch.setattr(cli_fakes.FakeChat, "made", [])
    return Fresh


@pytest.fixture(autouse=True)
def _own_locks(monkeypatch, tmp_path_factory):
    """Tests that measure may run beside each other."""
    monkeypatch.setattr("lanewise.bench.lock._folder", lambda: tmp_path_factory.getbasetemp() / "locks")
