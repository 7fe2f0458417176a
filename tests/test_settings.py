"""LANEWISE_* variables: defaults, what parses, and what is refused in words."""

import pytest
from support.repo import REPO, words

from lanewise import settings
from lanewise.errors import SettingError
from lanewise.gates import settings as gate

GOOD = {
    "DEVICE": ("reference", "reference"),
    "CONTEXT": ("512", 512),
    "MAX_BATCH": ("1", 1),
    "PREFILL_CHUNK": ("64", 64),
    "REFERENCE": ("off", False),
}


@pytest.mark.parametrize("name", settings.SETTINGS)
def test_an_absent_or_empty_variable_is_its_default(monkeypatch, name):
    monkeypatch.delenv(f"LANEWISE_{name}", raising=False)
    assert settings.get(name) == settings.SETTINGS[name].default
    monkeypatch.setenv(f"LANEWISE_{name}", "")
    assert settings.get(name) == settings.SETTINGS[name].default


@pytest.mark.parametrize("name", GOOD)
def test_a_variable_is_parsed(monkeypatch, name):
    text, value = GOOD[name]
    monkeypatch.setenv(f"LANEWISE_{name}", text)
    assert settings.get(name) == value


@pytest.mark.parametrize(("name", "text"), [("CONTEXT", "0"), ("CONTEXT", "-1"), ("CONTEXT", "4k"), ("MAX_BATCH", "1.5"), ("REFERENCE", "maybe")])
def test_a_value_that_cannot_be_read_is_refused_with_what_it_takes(monkeypatch, name, text):
    monkeypatch.setenv(f"LANEWISE_{name}", text)
    with pytest.raises(SettingError) as caught:
        settings.get(name)
    assert str(caught.value) == f"LANEWISE_{name} is {text!r}; it takes {settings.SETTINGS[name].accepts}"


@pytest.mark.parametrize(("text", "on"), [("1", True), ("ON", True), ("true", True), ("0", False), ("Off", False), ("false", False)])
def test_a_switch_takes_the_usual_words(monkeypatch, text, on):
    monkeypatch.setenv("LANEWISE_REFERENCE", text)
    assert settings.enabled("REFERENCE") is on


def test_a_kernel_without_a_switch_is_always_on():
    assert settings.enabled(None)


def test_every_setting_says_what_it_takes_and_what_it_is_for():
    assert words(gate.unexplained, REPO) == []
