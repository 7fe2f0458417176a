"""What a dense decoder's config says, the same whichever kind of file it came from.

GGUF keys: the GGUF specification's "LLM" section. config.json keys: the `transformers` configuration classes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lanewise.errors import ModelFileError, UnsupportedModelError
from lanewise.files import Metadata, ModelFile
from lanewise.models.rope import Scaling, frequencies
from lanewise.models.spec import Rope

__all__ = ["DecoderConfig", "architecture", "read_config"]

_WIDEST = 1 << 20  # no known model is wider; keeps products of two sizes far from overflow
# GGUF keys that change what a layer computes, and the value with which it computes what is built here.
_ARITHMETIC: dict[str, object] = {
    "use_parallel_residual": False,
    "attention.causal": True,
    "expert_count": 0,
    "logit_scale": 1.0,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
}
_KINDS = {"default": "none", "none": "none", "linear": "linear", "llama3": "llama3", "yarn": "yarn"}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes in elements, context in tokens. `windows[i]` is layer i's sliding window, or None."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    eps: float
    rope: Rope
    windows: tuple[int | None, ...]
    tied: bool


def architecture(file: ModelFile) -> str:
    """The model family that the file names: general.architecture, or config.json's model_type."""
    return file.metadata.string("general.architecture" if file.kind == "gguf" else "model_type")


def read_config(file: ModelFile, *, interleaved: bool = False) -> DecoderConfig:
    """The config of a GGUF file or a safetensors directory. `interleaved` says how the family pairs rotated dimensions."""
    config = _from_gguf(file, interleaved) if file.kind == "gguf" else _from_json(file, interleaved)
    if config.heads % config.kv_heads:
        raise ModelFileError(
            file.path, "the number of key/value heads", config.kv_heads, f"it must divide the {config.heads} heads, which share them in equal groups"
        )
    return config


def _from_gguf(file: ModelFile, interleaved: bool) -> DecoderConfig:
    meta, arch = file.metadata, architecture(file)

    def size(key: str, *default: int) -> int:
        return meta.integer(f"{arch}.{key}", *default, least=1, most=_WIDEST)

    for key, harmless in _ARITHMETIC.items():
        if meta.get(f"{arch}.{key}", harmless) != harmless:
            raise UnsupportedModelError(f"{file.path}: {arch}.{key} is {meta.get(f'{arch}.{key}')!r}; only {harmless!r} is supported")
    hidden, heads = size("embedding_length"), size("attention.head_count")
    layers = meta.integer(f"{arch}.block_count", least=1, most=len(file.tensors))
    head_dim = size("attention.key_length", max(hidden // heads, 1))
    if size("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModelError(f"{file.path}: values of another head size than keys are not supported")
    context = meta.integer(f"{arch}.context_length", least=1)
    return DecoderConfig(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=size("attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn=size("feed_forward_length"),
        vocab=file.tensor("token_embd.weight").shape[0],
        context=context,
        eps=meta.number(f"{arch}.attention.layer_norm_rms_epsilon", least=0.0, most=1.0),
        rope=_gguf_rope(file, arch, head_dim, context, interleaved),
        windows=(meta.integer(f"{arch}.attention.sliding_window", None, least=1),) * layers,
        tied="output.weight" not in file.tensors,
    )


def _gguf_rope(file: ModelFile, arch: str, head_dim: int, context: int, interleaved: bool) -> Rope:
    meta, prefix = file.metadata, f"{arch}.rope.scaling"
    dim = meta.integer(f"{arch}.rope.dimension_count", head_dim, least=2, most=head_dim)
    theta = meta.number(f"{arch}.rope.freq_base", 10000.0, least=1e-6)
    # Older files have a factor and no type, or `scale_linear`; llama.cpp takes both as linear, and 0 as no scaling.
    given = meta.number(f"{prefix}.factor", None) or meta.number(f"{arch}.rope.scale_linear", None)
    kind = meta.string(f"{prefix}.type", "linear" if given else "none")
    factor = _factor(file, kind, given)
    magnitude = None
    if kind == "yarn":  # the file holds what to multiply the derived magnitude by
        magnitude = (0.1 * math.log(max(factor, 1.0)) + 1.0) * meta.number(f"{prefix}.attn_factor", 1.0)
    scaling = _scaling(
        file,
        kind=kind,
        factor=factor,
        original=meta.integer(f"{prefix}.original_context_length", context),
        fast=meta.number(f"{prefix}.yarn_beta_fast", 32.0),
        slow=meta.number(f"{prefix}.yarn_beta_slow", 1.0),
        magnitude=magnitude,
    )
    _even(file, dim)
    inv_freq, magnitude = frequencies(dim, theta, scaling)
    if "rope_freqs.weight" in file.tensors:  # how a GGUF file carries llama3 scaling: a divisor for every pair
        divisors = file.tensor("rope_freqs.weight", (dim // 2,)).dequantize().astype(float).tolist()
        if not all(math.isfinite(d) and d > 0 for d in divisors):
            raise ModelFileError(file.path, "rope_freqs.weight", divisors, "its elements are positive and finite")
        inv_freq = tuple(f / d for f, d in zip(inv_freq, divisors, strict=True))
    return Rope(inv_freq, interleaved, magnitude)


def _from_json(file: ModelFile, interleaved: bool) -> DecoderConfig:
    meta = file.metadata

    def size(key: str, *default: int) -> int:
        return meta.integer(key, *default, least=1, most=_WIDEST)

    activation = meta.string("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModelError(f"{file.path}: hidden_act {activation!r} is not supported; silu is")
    hidden, heads = size("hidden_size"), size("num_attention_heads")
    layers = meta.integer("num_hidden_layers", least=1, most=len(file.tensors))
    head_dim = size("head_dim", max(hidden // heads, 1))
    context = meta.integer("max_position_embeddings", 2048, least=1)
    return DecoderConfig(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=size("num_key_value_heads", heads),
        head_dim=head_dim,
        ffn=size("intermediate_size"),
        vocab=meta.integer("vocab_size", least=1),
        context=context,
        eps=meta.number("rms_norm_eps", 1e-6, least=0.0, most=1.0),
        rope=_json_rope(file, head_dim, context, interleaved),
        windows=_json_windows(meta, layers),
        tied=meta.flag("tie_word_embeddings", False),
    )


def _json_rope(file: ModelFile, head_dim: int, context: int, interleaved: bool) -> Rope:
    """transformers 5 keeps everything in `rope_parameters`; before, `rope_theta` stood beside `rope_scaling`."""
    meta = file.metadata
    options = meta.section("rope_parameters") or meta.section("rope_scaling") or Metadata(meta.file, {})
    if any(isinstance(value, Mapping) for value in options.values()):
        raise UnsupportedModelError(f"{file.path}: rope_parameters of its own for each layer type are not supported")
    theta = options.number("rope_theta", meta.number("rope_theta", 10000.0), least=1e-6)
    if options.number("partial_rotary_factor", meta.number("partial_rotary_factor", 1.0)) != 1.0:
        raise UnsupportedModelError(f"{file.path}: partial_rotary_factor other than 1 is not supported for this family")
    kind = options.string("rope_type", options.string("type", "default"))
    _even(file, head_dim)
    factor = _factor(file, kind, options.number("factor", None))
    scaling = _scaling(
        file,
        kind=kind,
        factor=factor,
        original=options.integer("original_max_position_embeddings", context),
        low=options.number("low_freq_factor", 1.0),
        high=options.number("high_freq_factor", 4.0),
        fast=options.number("beta_fast", 32.0),
        slow=options.number("beta_slow", 1.0),
        magnitude=_json_magnitude(options, factor),
        truncate=options.flag("truncate", True),
    )
    inv_freq, magnitude = frequencies(head_dim, theta, scaling)
    return Rope(inv_freq, interleaved, magnitude)


def _json_magnitude(options: Metadata, factor: float) -> float | None:
    """YaRN's attention_factor, or the quotient of mscale and mscale_all_dim where both are given."""
    if options.get("attention_factor") is not None:
        return options.number("attention_factor")
    above, below = (options.number(key, 0.0, least=0.0, most=1e3) for key in ("mscale", "mscale_all_dim"))
    if not above or not below:
        return None
    log = 0.1 * math.log(max(factor, 1.0))
    return (above * log + 1.0) / (below * log + 1.0)


def _json_windows(meta: Metadata, layers: int) -> tuple[int | None, ...]:
    unknown = set(meta.strings("layer_types", [])) - {"full_attention", "sliding_attention"}
    if unknown:
        raise UnsupportedModelError(f"{meta.file}: layer type {min(unknown)!r} is not supported; full_attention and sliding_attention are")
    if not meta.flag("use_sliding_window", False) or meta.get("sliding_window") is None:
        return (None,) * layers
    window = meta.integer("sliding_window", least=1)
    first = meta.integer("max_window_layers", layers)
    kinds = meta.strings("layer_types", ["full_attention" if i < first else "sliding_attention" for i in range(layers)])
    if len(kinds) != layers:
        raise ModelFileError(meta.file, "the length of layer_types", len(kinds), f"num_hidden_layers is {layers}")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _factor(file: ModelFile, kind: str, given: float | None) -> float:
    """The scaling factor; a kind that scales needs one."""
    if given is None and _KINDS.get(kind, "none") != "none":
        raise ModelFileError(file.path, "the RoPE scaling factor", None, f"scaling {kind!r} needs one")
    return given or 1.0


def _scaling(file: ModelFile, kind: str, **options: Any) -> Scaling:
    """A `Scaling` whose refusals name the file."""
    if kind not in _KINDS:
        raise UnsupportedModelError(f"{file.path}: RoPE scaling {kind!r} is not known; known kinds: {', '.join(_KINDS)}")
    try:
        return Scaling(_KINDS[kind], **options)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{file.path}: {error}") from None


def _even(file: ModelFile, dim: int) -> None:
    if dim < 2 or dim % 2:
        raise ModelFileError(file.path, "the number of rotated dimensions", dim, "it is even and at least 2")
