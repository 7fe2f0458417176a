"""`lanewise generate`: what goes to stdout and what to stderr, every option's way to the engine, and Ctrl-C."""

import signal
import subprocess
from dataclasses import fields

import pytest
from cli_fakes import lanewise, read, started

from lanewise.cli.generate import generate
from lanewise.engine import SamplingParams
from lanewise.errors import ContextLengthError

SPEED = "prompt 31 tokens, 310.0 tok/s; decode 3 tokens, 1.0 tok/s\n"


def test_text_goes_to_stdout_and_the_note_and_the_speeds_to_stderr(llm):
    done = lanewise("generate", "m.gguf", "-p", "Hi")
    assert (done.exit_code, done.stdout) == (0, "Hello there, world.\n")
    assert done.stderr == "lanewise: note: reference backend: weights expanded\n" + SPEED
    assert llm.made[0].prompts == ["Hi"]
    assert llm.made[0].closed


def test_quiet_leaves_stderr_empty(llm):
    assert lanewise("generate", "m.gguf", "-p", "Hi", "--quiet").stderr == ""


def test_every_option_reaches_the_engine(llm):
    options = ["-n", "5", "--temperature", "0.5", "--top-k", "40", "--top-p", "0.9", "--min-p", "0.05", "--seed", "3", "--ignore-eos"]
    options += ["--repetition-penalty", "1.1", "--presence-penalty", "0.2", "--frequency-penalty", "0.3"]
    options += ["--stop", "END", "--stop", "STOP", "--stop-id", "2", "--stop-id", "5", "--device", "reference", "--context", "99", "--threads", "3"]
    assert lanewise("generate", "m.gguf", "-p", "Hi", *options, "--json", "--logprobs", "2").exit_code == 0
    (made,) = llm.made
    assert (made.path, made.device, made.asked_context, made.threads) == ("m.gguf", "reference", 99, 3)
    wanted = SamplingParams(
        max_tokens=5,
        temperature=0.5,
        top_k=40,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        seed=3,
        stop=("END", "STOP"),
        stop_ids=(2, 5),
        logprobs=2,
        ignore_eos=True,
    )
    assert made.params == [wanted]


def test_without_options_the_engine_gets_its_own_defaults(llm):
    lanewise("generate", "m.gguf", "-p", "Hi")
    assert llm.made[0].params == [SamplingParams()]
    assert {f.name for f in fields(SamplingParams)} <= {option.name for option in generate.params}


def test_chat_wraps_the_prompt_and_a_system_message_implies_it(llm):
    user = {"role": "user", "content": "Hi"}
    lanewise("generate", "m.gguf", "-p", "Hi", "--chat")
    lanewise("generate", "m.gguf", "-p", "Hi", "--system", "Be brief.")
    assert llm.made[0].prompts == [[user]]
    assert llm.made[1].prompts == [[{"role": "system", "content": "Be brief."}, user]]


def test_a_dash_reads_the_prompt_from_stdin(llm):
    lanewise("generate", "m.gguf", "-p", "-", stdin="Grüße\n")
    assert llm.made[0].prompts == ["Grüße\n"]


def test_several_prompts_are_answered_in_order_under_their_headings(llm):
    done = lanewise("generate", "m.gguf", "-p", "One\nline", "-p", "x" * 100)
    assert done.stdout == f"[1] One line\nHello there, world.\n[2] {'x' * 57}...\nHello there, world.\n"
    assert done.stderr.endswith(f"[1] {SPEED}[2] {SPEED}")


def test_json_has_everything_and_nothing_else_is_on_stdout(llm):
    done = lanewise("generate", "m.gguf", "-p", "Hi", "--json", "--logprobs", "1")
    (completion,) = read(done)["completions"]
    assert (completion["prompt"], completion["text"], completion["token_ids"]) == ("Hi", "Hello there, world.", [0, 1, 2])
    assert (completion["prefill_rate"], completion["decode_rate"]) == (31 / 0.1, 2 / 2.0)
    assert completion["logprobs"] == [{"token": 7, "logprob": None, "top": [[7, -0.5]]}]  # -inf is no JSON
    assert "tok/s" not in done.stderr


def test_one_token_has_no_decode_rate(llm):
    llm.answer = "Hello"
    assert lanewise("generate", "m.gguf", "-p", "Hi", "-q").stdout == "Hello\n"
    assert "decode 1 token\n" in lanewise("generate", "m.gguf", "-p", "Hi").stderr


def test_a_full_context_is_said(llm):
    llm.finish = "context"
    assert "note: the context of 4096 tokens is full" in lanewise("generate", "m.gguf", "-p", "Hi").stderr


def test_an_error_after_some_text_is_one_line_and_exit_code_2(llm):
    llm.fail = ContextLengthError("the prompt has 9 tokens; the context has 4")
    done = lanewise("generate", "m.gguf", "-p", "Hi")
    assert (done.exit_code, done.stdout) == (2, "Hello ")
    assert done.stderr.endswith("lanewise: error: the prompt has 9 tokens; the context has 4\n")
    assert llm.made[0].closed


def test_a_bug_keeps_its_traceback(llm):
    llm.fail = ZeroDivisionError()
    assert isinstance(lanewise("generate", "m.gguf", "-p", "Hi").exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-p", "Hi", "--top-p", "2"), "lanewise: error: top_p is 2.0"),
        (("-p", "Hi", "--max-tokens", "0"), "lanewise: error: max_tokens is 0"),
        (("-p", "Hi", "--max-tokens", "many"), "Invalid value for '--max-tokens'"),
        (("-p", "Hi", "--logprobs", "3"), "only printed with --json"),
        (("-p", "-", "-p", "-"), "stdin can be read once"),
        (("-p", b"\xff".decode(errors="surrogateescape")), "lanewise: error: the prompt is not UTF-8 text: byte 0 is 0xff"),
        ((), "--prompt"),
    ],
)
def test_wrong_input_exits_with_2_before_anything_is_loaded(llm, options, words):
    done = lanewise("generate", "m.gguf", *options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stdout == ""
    assert llm.made == []


def test_stdin_that_is_not_text_is_refused(llm):
    done = lanewise("generate", "m.gguf", "-p", "-", stdin=b"ab\xff")
    assert (done.exit_code, done.stderr) == (2, "lanewise: error: the prompt on stdin is not UTF-8 text: byte 2 is 0xff\n")


def test_a_model_that_is_not_there_is_one_line(tmp_path):
    done = lanewise("generate", str(tmp_path / "none.gguf"), "-p", "Hi")
    assert done.exit_code == 2
    assert done.stderr.startswith("lanewise: error: ")
    assert done.stderr.count("\n") == 1


def test_an_interrupt_in_process_is_exit_code_130(llm):
    llm.fail = KeyboardInterrupt()
    done = lanewise("generate", "m.gguf", "-p", "Hi", "-q")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "Hello ", "\n")
    assert llm.made[0].closed


def test_ctrl_c_ends_a_stream_at_once_and_without_a_traceback():
    with started("generate", "m.gguf", "-p", "slow", "-q", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(6) == "Hello "
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (130, "", "\n")
