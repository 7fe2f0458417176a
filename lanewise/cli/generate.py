"""`lanewise generate`: prompts in, text out."""

import os
import sys
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from lanewise.cli import options
from lanewise.cli.terminal import Progress, as_json, complain, print_json, printable

if TYPE_CHECKING:
    from lanewise.engine import LLM, Completion, SamplingParams


@click.command()
@options.model
@click.option("--prompt", "-p", "prompts", multiple=True, required=True, help="The text to continue; - reads stdin. May be repeated.")
@options.sampling(max_tokens=128)
@click.option("--logprobs", type=int, help="With --json: log probabilities of each token and of this many most likely ones.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the model's own end of text.")
@click.option("--chat", is_flag=True, help="Wrap each prompt in the model's chat template; so does --system.")
@options.system
@options.device
@options.threads
@options.context
@options.quiet
@as_json
def generate(
    model: str,
    prompts: tuple[str, ...],
    chat: bool,
    system: str | None,
    device: str | None,
    threads: int | None,
    context: int | None,
    quiet: bool,
    as_json: bool,
    **sampling: Any,
) -> None:
    """Generate text from one or more prompts. MODEL is a .gguf file, or a directory with config.json and *.safetensors."""
    if sampling["logprobs"] is not None and not as_json:
        raise click.BadParameter("log probabilities are only printed with --json", param_hint="--logprobs")
    texts = _texts(prompts)

    from lanewise.engine import LLM, SamplingParams

    params = SamplingParams(**sampling)
    with Progress() as progress, LLM(model, device, threads=threads, context=context, on_progress=progress) as llm:
        options.note_all(llm, quiet)
        asked: list[Any] = [_messages(system, text) for text in texts] if chat or system is not None else list(texts)
        if as_json:
            completions = llm.generate(asked, params)
            print_json({"model": model, "completions": [_machine(p, c) for p, c in zip(texts, completions, strict=True)]})
        elif len(asked) == 1:
            completions = [_stream(llm, asked[0], params)]
        else:
            completions = llm.generate(asked, params)
            for index, (text, completion) in enumerate(zip(texts, completions, strict=True), 1):
                options.emit(f"[{index}] {_heading(text)}\n{completion.text}\n")
    if not quiet and not as_json:
        click.echo(options.speed(completions), err=True)


def _texts(prompts: tuple[str, ...]) -> list[str]:
    """The prompts, with `-` read from stdin. Python hides bytes of an argument that are not UTF-8 in surrogates; those are refused."""
    if prompts.count("-") > 1:
        raise click.BadParameter("stdin can be read once; give - once", param_hint="--prompt")
    texts = []
    for prompt in prompts:
        raw = sys.stdin.buffer.read() if prompt == "-" else os.fsencode(prompt)
        texts.append(options.decoded(raw, "the prompt on stdin" if prompt == "-" else "the prompt"))
    return texts


def _messages(system: str | None, text: str) -> list[dict[str, str]]:
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": text}]


def _stream(llm: "LLM", prompt: Any, params: "SamplingParams") -> "Completion":
    """Print a completion as it is made, and a line end behind it."""
    completion: Completion | None = None
    with closing(llm.stream(prompt, params)) as chunks:
        for chunk in chunks:
            options.emit(chunk.text)
            completion = chunk.completion
    options.emit("\n")
    assert completion is not None, "the last chunk has the completion"
    if completion.finish_reason == "context":
        complain("note", f"the context of {llm.context} tokens is full")
    return completion


def _heading(text: str, limit: int = 60) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _machine(prompt: str, completion: "Completion") -> dict[str, Any]:
    """Everything about a completion: tokens, seconds, and tokens a second."""
    return {"prompt": prompt, **asdict(completion), "prefill_rate": completion.prefill_rate, "decode_rate": completion.decode_rate}
