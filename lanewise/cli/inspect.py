"""`lanewise inspect`: what a model file holds, whether or not Lanewise can run it."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from lanewise.cli import options
from lanewise.cli.terminal import as_json, print_json, print_table, printable, size
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from lanewise.files import ModelFile
    from lanewise.models import ModelSpec


@click.command()
@options.model
@click.option("--tensors", is_flag=True, help="List every tensor.")
@as_json
def inspect(model: str, tensors: bool, as_json: bool) -> None:
    """Show a model's architecture, sizes, formats and tokenizer. MODEL is a .gguf file or a directory."""
    from lanewise.files import open_model

    with open_model(model) as file:
        facts = {**_facts(file), "formats": _formats(file), **_text(file)}
        listing: list[dict[str, Any]] = [
            {"name": t.name, "format": t.format.name, "shape": list(t.shape), "bytes": t.nbytes} for t in file.tensors.values()
        ]
    if as_json:
        print_json({**facts, "tensors": listing} if tensors else facts)
        return
    _print_facts(facts)
    if tensors:
        click.echo()
        rows = ((t["name"], t["format"], "x".join(map(str, t["shape"])) or "scalar", f"{t['bytes']:,}") for t in listing)
        print_table(("tensor", "format", "shape", "bytes"), rows, right=("bytes",))


def _facts(file: "ModelFile") -> dict[str, Any]:
    """Sizes from the spec where there is one, which also has checked them; else as the file's metadata has them."""
    from lanewise.models import spec_of

    elements = sum(t.elements for t in file.tensors.values())
    known: dict[str, Any] = {
        "file": str(file.path),
        "kind": file.kind,
        "architecture": _metadata(file, "general.architecture", "model_type"),
        "name": _metadata(file, "general.name", "_name_or_path"),
        "parameters": elements,
        "bytes": file.nbytes,
        "bits_per_weight": round(8 * file.nbytes / elements, 2) if elements else None,
    }
    try:
        return known | {"runs": True, "why_not": None} | _from_spec(spec_of(file))
    except LanewiseError as error:
        return known | {"runs": False, "why_not": str(error)} | _from_metadata(file)


def _from_spec(spec: "ModelSpec") -> dict[str, Any]:
    mixer = spec.layers[0].mixer
    return {
        "context": spec.context,
        "layers": len(spec.layers),
        "hidden": spec.hidden,
        "heads": mixer.heads,
        "kv_heads": mixer.kv_heads,
        "head_dim": mixer.head_dim,
        "vocab": spec.vocab,
    }


def _from_metadata(file: "ModelFile") -> dict[str, Any]:
    arch = _metadata(file, "general.architecture", "model_type")
    keys = {
        "context": (f"{arch}.context_length", "max_position_embeddings"),
        "layers": (f"{arch}.block_count", "num_hidden_layers"),
        "hidden": (f"{arch}.embedding_length", "hidden_size"),
        "heads": (f"{arch}.attention.head_count", "num_attention_heads"),
        "kv_heads": (f"{arch}.attention.head_count_kv", "num_key_value_heads"),
        "head_dim": (f"{arch}.attention.key_length", "head_dim"),
        "vocab": (f"{arch}.vocab_size", "vocab_size"),
    }
    return {fact: _metadata(file, *names) for fact, names in keys.items()}


def _metadata(file: "ModelFile", gguf: str, json: str) -> str | int | None:
    """A bare value for show: numbers and texts only, whatever a strange file may have put there."""
    value = file.metadata.get(gguf if file.kind == "gguf" else json)
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _formats(file: "ModelFile") -> list[dict[str, Any]]:
    count, nbytes, elements = Counter[str](), Counter[str](), Counter[str]()
    for t in file.tensors.values():
        count[t.format.name] += 1
        nbytes[t.format.name] += t.nbytes
        elements[t.format.name] += t.elements
    return [
        {"format": name, "tensors": count[name], "bytes": nbytes[name], "bits_per_weight": round(8 * nbytes[name] / elements[name], 2)}
        for name, _ in nbytes.most_common()
    ]


def _text(file: "ModelFile") -> dict[str, Any]:
    """The tokenizer's kind, or why it cannot be used, and whether there is a chat template."""
    from lanewise.files.tokenizer import load_tokenizer

    kind = "tokenizer.json"
    if file.kind == "gguf":
        words = (file.metadata.get("tokenizer.ggml.model"), file.metadata.get("tokenizer.ggml.pre"))
        kind = " ".join(w for w in words if isinstance(w, str)) or "none"
    try:
        tokenizer = load_tokenizer(file)
    except LanewiseError as error:
        return {"tokenizer": kind, "tokenizer_error": str(error), "chat_template": None}
    return {"tokenizer": kind, "tokenizer_error": None, "chat_template": tokenizer.template is not None}


def _print_facts(facts: dict[str, Any]) -> None:
    def shown(value: Any) -> str:
        return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else printable(value)

    formats = ", ".join(f"{f['tensors']} {f['format']} ({f['bits_per_weight']:g} bits)" for f in facts["formats"])
    template = {True: "yes", False: "no", None: "unknown"}[facts["chat_template"]]
    rows = {
        "file": f"{printable(facts['file'])} ({facts['kind']})",
        "architecture": shown(facts["architecture"]),
        "name": shown(facts["name"]),
        "runs": "yes" if facts["runs"] else f"no: {printable(facts['why_not'])}",
        "parameters": f"{facts['parameters']:,}",
        "size": f"{size(facts['bytes'])}, {facts['bits_per_weight']} bits per weight" if facts["parameters"] else size(facts["bytes"]),
        "context": f"{shown(facts['context'])} tokens",
        "layers": f"{shown(facts['layers'])}, hidden size {shown(facts['hidden'])}",
        "heads": f"{shown(facts['heads'])}, {shown(facts['kv_heads'])} for keys and values, head size {shown(facts['head_dim'])}",
        "vocabulary": shown(facts["vocab"]),
        "tensors": formats or "none",
        "tokenizer": printable(facts["tokenizer"]) + (f": {printable(facts['tokenizer_error'])}" if facts["tokenizer_error"] else ""),
        "chat template": template,
    }
    for name, text in rows.items():
        click.echo(f"{name + ':':<15}{text}")
