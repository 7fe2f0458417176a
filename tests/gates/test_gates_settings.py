"""The gate of settings: what counts as a read, and what does not."""

import pytest
from support.repo import changed, words

from lanewise.gates import settings

GHOST = {"lanewise/settings.py": ('        Setting("PIN"', '        Setting("GHOST", str, None, "a name", "nothing"),\n        Setting("PIN"')}


def unread(code):
    """Whether a setting counts as read with some code in front of the class that users load."""
    with changed({**GHOST, "lanewise/engine/llm.py": ("class LLM:", f"{code}\n\n\nclass LLM:")}) as repo:
        return words(settings.unread, repo)


@pytest.mark.parametrize(
    "code",
    [
        '_GHOST = settings.get("GHOST")\n_POOL_TOKENS = _GHOST',
        'print(settings.get("GHOST"))',
        'from lanewise.settings import get as ask\nprint(ask("GHOST"))',
        'import lanewise.settings\nprint(lanewise.settings.enabled("GHOST"))',
    ],
)
def test_a_read_counts_under_any_name_of_the_function(code):
    assert unread(code) == []


@pytest.mark.parametrize(
    "code",
    [
        '# settings.get("GHOST")',
        "print(\"settings.get('GHOST')\")",
        '_OTHER = {}\nprint(_OTHER.get("GHOST"))',
        'def never():\n    """settings.get("GHOST")"""\n    return settings.get("GHOST")',
        'class get:\n    def __init__(self, x):\n        pass\n\n\nprint(get("GHOST"))',
        'print(settings.SETTINGS["GHOST"])',
    ],
)
def test_a_mention_or_a_read_that_nothing_reaches_does_not_count(code):
    assert unread(code) == ["the setting GHOST is declared and nothing reads it"]
