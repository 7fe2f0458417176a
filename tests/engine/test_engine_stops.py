"""The stop filter passes on exactly the text before the first stop string, however the text is cut up."""

from hypothesis import given
from hypothesis import strategies as st

from lanewise.engine.stops import StopFilter

_TEXT = st.text(alphabet="abc", max_size=40)
_STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3)


def _feed(text: str, cuts: list[int], stops: list[str]) -> tuple[str, bool, StopFilter]:
    filtered, at, out = StopFilter(tuple(stops)), 0, ""
    for cut in [*sorted(c % (len(text) + 1) for c in cuts), len(text)]:
        out += filtered.push(text[at:cut])
        at = cut
    return out, filtered.stopped, filtered


@given(_TEXT, st.lists(st.integers(0, 40), max_size=8), _STOPS)
def test_text_ends_before_the_first_stop_string_to_be_completed(text: str, cuts: list[int], stops: list[str]) -> None:
    out, stopped, filtered = _feed(text, cuts, stops)
    if stopped:
        assert any(text.startswith(out + stop) for stop in stops)
        assert not any(stop in out for stop in stops)
    else:
        assert not any(stop in text for stop in stops)
        assert out + filtered.finish() == text


@given(_TEXT, _STOPS)
def test_nothing_that_could_begin_a_stop_string_is_let_out(text: str, stops: list[str]) -> None:
    out, stopped, _ = _feed(text, [], stops)
    held = text[len(out) :]
    if not stopped:
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_text_after_a_stop_is_swallowed() -> None:
    stops = StopFilter(("x",))
    assert stops.push("ax") == "a"
    assert stops.push("more") == ""
    assert stops.finish() == ""
