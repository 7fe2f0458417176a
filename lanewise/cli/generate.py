"""`lanewise generate`: prompts in, text out."""

import os
import sys
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanewise.cli import options
from lanewise.cli.terminal import Json, Progress, complain, print_json, printable

if TYPE_CHECKING:
    from lanewise.engine import LLM, Completion, SamplingParams


def generate(
    ctx: typer.Context,
    model: options.Model,
    prompt: Annotated[list[str], typer.Option("--prompt", "-p", help="The text to continue; - reads stdin. May be repeated.", show_default=False)],
    max_tokens: options.MaxTokens = 128,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    repetition_penalty: options.RepetitionPenalty = 1.0,
    presence_penalty: options.PresencePenalty = 0.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    seed: options.Seed = None,
    stop: options.Stop = None,
    stop_id: options.StopId = None,
    logprobs: Annotated[
        int | None, typer.Option(help="With --json: log probabilities of each token and of this many most likely ones.", show_default=False)
    ] = None,
    ignore_eos: options.IgnoreEos = False,
    chat: Annotated[bool, typer.Option("--chat", help="Wrap each prompt in the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="The system message; implies --chat.", show_default=False)] = None,
    device: options.Device = None,
    threads: options.Threads = None,
    context: options.Context = None,
    quiet: options.Quiet = False,
    as_json: Json = False,
) -> None:
    """Generate text from one or more prompts."""
    if logprobs is not None and not as_json:
        raise typer.BadParameter("log probabilities are only printed with --json", param_hint="--logprobs")
    texts = _texts(prompt)

    from lanewise.engine import LLM

    params = options.sampling(ctx.params)
    with Progress() as progress, LLM(model, device, threads=threads, context=context, on_progress=progress) as llm:
        options.note_all(llm, quiet)
        prompts: list[Any] = [_messages(system, text) for text in texts] if chat or system is not None else list(texts)
        if as_json:
            completions = llm.generate(prompts, params)
            print_json({"model": model, "completions": [_machine(p, c) for p, c in zip(texts, completions, strict=True)]})
        elif len(prompts) == 1:
            completions = [_stream(llm, prompts[0], params)]
        else:
            completions = llm.generate(prompts, params)
            for index, (text, completion) in enumerate(zip(texts, completions, strict=True), 1):
                options.emit(f"[{index}] {_heading(text)}\n{completion.text}\n")
    if not quiet and not as_json:
        typer.echo(options.speed(completions), err=True)


def _texts(prompts: list[str]) -> list[str]:
    """The prompts, with `-` read from stdin. Python hides bytes of an argument that are not UTF-8 in surrogates; those are refused."""
    if prompts.count("-") > 1:
        raise typer.BadParameter("stdin can be read once; give - once", param_hint="--prompt")
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
