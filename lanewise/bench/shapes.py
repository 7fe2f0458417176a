"""Models of a published shape with random weights, made in memory: what speed depends on, without a download.

Sizes are those of the models' config.json on Hugging Face: Qwen3 (arXiv 2505.09388) and SmolLM2 (arXiv 2502.02737). Which tensor
gets which format is the recipe's choice, as in a file that `lanewise quantize` writes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import UnsupportedModelError
from lanewise.files import Metadata, ModelFile, Tensor
from lanewise.files.recipes import choose, find
from lanewise.formats import FORMATS, Format
from lanewise.models.names import tensor_name

__all__ = ["SHAPES", "ModelShape", "random_model", "random_rows"]

_POOL = 1 << 16  # blocks that are drawn; larger tensors repeat them
_SAMPLE = 64  # blocks that a format's scale is derived from
_RMS = 0.02  # of the weights, as trained models have it


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes in elements, context in tokens; `family` is a GGUF architecture."""

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    tied: bool
    theta: float
    eps: float


SHAPES: dict[str, ModelShape] = {
    "smollm2-135m": ModelShape("llama", 576, 30, 9, 3, 64, 1536, 49152, 8192, True, 1e5, 1e-5),
    "qwen3-0.6b": ModelShape("qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, True, 1e6, 1e-6),
    "qwen3-4b": ModelShape("qwen3", 2560, 36, 32, 8, 128, 9728, 151936, 40960, True, 1e6, 1e-6),
    "qwen3-8b": ModelShape("qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 40960, False, 1e6, 1e-6),
}


def random_model(shape: str | ModelShape, type_name: str, seed: int = 0) -> ModelFile:
    """A model of that shape (a name of SHAPES, or sizes of one's own), quantized as recipe `type_name`, the same for the same seed.

    Tensors of one format share their bytes: memory is that of the largest of each. Raises UnsupportedModelError and FormatError,
    listing what there is.

    >>> with random_model("smollm2-135m", "Q4_0") as model:
    ...     sum(tensor.elements for tensor in model.tensors.values())
    134515008
    """
    name = shape if isinstance(shape, str) else shape.family
    if isinstance(shape, str):
        if shape not in SHAPES:
            raise UnsupportedModelError(f"unknown shape {shape[:64]!r}; there are {', '.join(SHAPES)}")
        shape = SHAPES[shape]
    recipe = find(type_name)
    # The recipe looks at names and shapes only.
    empty = np.empty(0, np.uint8)
    blanks = {n: Tensor(n, FORMATS["F32"], size, empty) for n, size in _tensors(shape)}
    chosen = {choice.tensor.name: choice.format for choice in choose(recipe, blanks)}
    drawn = _Drawn(np.random.default_rng(seed))
    most: dict[Format, int] = {}
    for n, fmt in chosen.items():
        most[fmt] = max(most.get(fmt, 0), _nbytes(fmt, blanks[n].shape))
    tensors = {n: Tensor(n, fmt, blanks[n].shape, drawn.bytes_of(fmt, blanks[n].shape, most[fmt])) for n, fmt in chosen.items()}
    path = Path(f"{name}.{recipe.name}.random")
    return ModelFile(path, "gguf", Metadata(path, _metadata(shape)), tensors, ())


def random_rows(fmt: Format, n: int, k: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """raw[n,row_bytes] of weights as a trained model's, from `rng`; past 65536 blocks they repeat."""
    return _Drawn(rng).bytes_of(fmt, (n, k), n * fmt.row_bytes(k))


def _tensors(s: ModelShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every tensor."""
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    yield tensor_name("gguf", "embedding"), (s.vocab, s.hidden)
    if not s.tied:
        yield tensor_name("gguf", "head"), (s.vocab, s.hidden)
    yield tensor_name("gguf", "norm"), (s.hidden,)
    heads = {"q_norm": (s.head_dim,), "k_norm": (s.head_dim,)} if s.family == "qwen3" else {}
    attention = {"mixer.norm": (s.hidden,), "q": (q, s.hidden), "k": (kv, s.hidden), "v": (kv, s.hidden), "o": (s.hidden, q)}
    mlp = {"channel.norm": (s.hidden,), "gate": (s.ffn, s.hidden), "up": (s.ffn, s.hidden), "down": (s.hidden, s.ffn)}
    parts: dict[str, tuple[int, ...]] = {**attention, **heads, **mlp}
    for layer in range(s.layers):
        yield from ((tensor_name("gguf", part, layer), size) for part, size in parts.items())


def _metadata(s: ModelShape) -> dict[str, Any]:
    keys = {
        "block_count": s.layers,
        "context_length": s.context,
        "embedding_length": s.hidden,
        "feed_forward_length": s.ffn,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.kv_heads,
        "attention.key_length": s.head_dim,
        "attention.value_length": s.head_dim,
        "attention.layer_norm_rms_epsilon": s.eps,
        "rope.freq_base": s.theta,
    }
    return {"general.architecture": s.family, **{f"{s.family}.{key}": value for key, value in keys.items()}}


def _nbytes(fmt: Format, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[:-1], dtype=np.int64)) * fmt.row_bytes(shape[-1])


class _Drawn:
    """Bytes of random tensors; each format is drawn once."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._matrices: dict[Format, NDArray[np.uint8]] = {}

    def bytes_of(self, fmt: Format, shape: tuple[int, ...], most: int) -> NDArray[np.uint8]:
        """A tensor's data; `most` is how many bytes the longest of this format has.

        It stays writeable: a backend hands pages of read-only data, which is a mapped file's, back to the system.
        """
        if len(shape) == 1:
            values = 1 + 0.1 * self._rng.standard_normal(shape[0], np.float32)  # a norm's weights
            return fmt.quantize(values)
        if fmt not in self._matrices:
            self._matrices[fmt] = np.resize(self._blocks(fmt).view(np.uint8), most)
        return self._matrices[fmt][: _nbytes(fmt, shape)].reshape(*shape[:-1], -1)

    def _blocks(self, fmt: Format) -> NDArray[np.uint8]:
        if fmt.block == 1:
            return fmt.quantize(_RMS * self._rng.standard_normal(_POOL * 32, np.float32))
        blocks = np.frombuffer(self._rng.bytes(_POOL * fmt.nbytes), fmt.layout).copy()
        least = next((name for name in ("m", "dmin") if name in (fmt.layout.names or ())), None)
        scale, offset = _scales(fmt, blocks[:_SAMPLE].copy(), least)
        spread = self._rng.uniform(0.5, 1.5, _POOL)
        blocks["d"] = scale * spread
        if least:
            blocks[least] = offset * spread
        return blocks.view(np.uint8)


def _scales(fmt: Format, sample: NDArray[Any], least: str | None) -> tuple[float, float]:
    """(d, m or dmin) with which random codes decode to a mean of 0, where there is a minimum, and an rms of _RMS."""

    def decoded(d: float, minimum: float) -> NDArray[np.float32]:
        sample["d"] = d
        if least:
            sample[least] = minimum
        return fmt.dequantize(sample.view(np.uint8))

    values, offset = decoded(1.0, 0.0), 0.0
    if least:
        minima = decoded(0.0, 1.0)
        offset = -float(values.mean() / minima.mean())
        values = values + np.float32(offset) * minima
    scale = _RMS / float(np.sqrt(np.square(values, dtype=np.float64).mean()))
    return scale, offset * scale
