"""`lanewise chat`: turns from a pipe and from a terminal, /clear and /exit, and both meanings of Ctrl-C."""

import os
import pty
import select
import subprocess
import time

import pytest
from cli_fakes import FakeChat, lanewise, started

from lanewise.cli import chat
from lanewise.engine import SamplingParams


def test_each_line_of_a_pipe_is_a_turn_and_its_answer_a_line(llm):
    done = lanewise("chat", "m.gguf", "-q", stdin="Hi\n\n  And you?  \n")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Hello there, world.\n" * 2, "")
    (talk,) = FakeChat.made
    assert talk.turns == ["Hi", "And you?"]
    assert talk.closed
    assert llm.made[0].closed


def test_options_reach_the_conversation(llm):
    lanewise("chat", "m.gguf", "--system", "Be brief.", "--seed", "4", "--stop", "X", stdin="Hi\n")
    assert FakeChat.made[0].system == "Be brief."
    assert llm.made[0].params == [SamplingParams(max_tokens=1024, seed=4, stop=("X",))]


def test_clear_forgets_and_exit_leaves(llm):
    lanewise("chat", "m.gguf", stdin="Hi\n/clear\nAgain\n/exit\nnever\n")
    assert FakeChat.made[0].turns == ["Hi", "Again"]
    assert FakeChat.made[0].cleared == 1


def test_an_answer_that_was_cut_says_why(llm):
    llm.finish = "length"
    assert "the answer was cut: --max-tokens is 7" in lanewise("chat", "m.gguf", "-n", "7", stdin="Hi\n").stderr
    llm.finish = "context"
    assert "the context is full; /clear starts again" in lanewise("chat", "m.gguf", stdin="Hi\n").stderr


def test_a_full_context_in_a_pipe_is_an_error(llm):
    done = lanewise("chat", "m.gguf", "-q", stdin="too long\nHi\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "5000 tokens" in done.stderr


def test_bytes_that_are_no_text_are_refused_with_their_line(llm):
    done = lanewise("chat", "m.gguf", "-q", stdin=b"Hi\n\xff\n")
    assert done.exit_code == 2
    assert "line 2 of stdin is not UTF-8 text" in done.stderr


def test_on_a_terminal_a_full_context_leaves_the_conversation_open(llm, capsys):
    talk = FakeChat(llm("m.gguf", on_progress=lambda *_: None), None)
    chat._answer(talk, "too long", SamplingParams(), live=True)
    assert "the context has 4096; /clear starts again" in capsys.readouterr().err


def test_on_a_terminal_ctrl_c_ends_the_answer_and_not_the_conversation(llm, capsys):
    talk = FakeChat(llm("m.gguf", on_progress=lambda *_: None), None)
    talk.llm.fail = KeyboardInterrupt()
    chat._answer(talk, "Hi", SamplingParams(), live=True)
    assert capsys.readouterr().out == "Hello \n"
    with pytest.raises(KeyboardInterrupt):
        chat._answer(talk, "Hi", SamplingParams(), live=False)


def test_what_is_typed_ends_with_ctrl_d_and_survives_bytes_that_are_no_text(monkeypatch, capsys):
    typed = iter(["  Hi ", UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "there", EOFError()])

    def ask(prompt):
        item = next(typed)
        if isinstance(item, Exception):
            raise item
        return item

    monkeypatch.setattr("builtins.input", ask)
    assert list(chat._typed()) == ["Hi", "there"]
    assert "not UTF-8" in capsys.readouterr().err


def test_a_session_on_a_terminal():
    here, there = pty.openpty()
    with started("chat", "m.gguf", stdin=there, stdout=there, stderr=there) as process:
        os.close(there)
        read_until(here, "/exit or Ctrl-D", "> ")
        os.write(here, b"Hi\n")
        read_until(here, "Hello there, world.", "> ")
        os.write(here, b"slow\n")
        read_until(here, "Hello ")
        os.write(here, b"\x03")  # stops the answer
        read_until(here, "> ")
        os.write(here, b"Hi\n")
        read_until(here, "Hello there, world.", "> ")
        assert left_with_ctrl_c(here, process) == 130
    os.close(here)


def left_with_ctrl_c(terminal, process, tries=20):
    """Press ^C at the prompt until the program has left. Python's input() misses one that comes just before it begins to wait."""
    for _ in range(tries):
        os.write(terminal, b"\x03")
        try:
            return process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            continue
    return None


def read_until(terminal, *words, timeout=20):
    """Read until the words have come in this order."""
    text, end = "", time.monotonic() + timeout
    for word in words:
        while word not in text:
            ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{word!r} did not come; so far {text!r}"
            text += os.read(terminal, 4096).decode()
        text = text.split(word, 1)[1]
