"""Model families: a config and tensor names in, a `ModelSpec` out. A new family is one file here and one row below."""

from collections.abc import Callable

from lanewise.errors import UnsupportedModelError
from lanewise.files import ModelFile
from lanewise.models.config import architecture
from lanewise.models.llama import llama
from lanewise.models.qwen2 import qwen2
from lanewise.models.qwen3 import qwen3
from lanewise.models.spec import ModelSpec

__all__ = ["FAMILIES", "ModelSpec", "spec_of"]

# general.architecture of GGUF and model_type of config.json are the same word for these.
FAMILIES: dict[str, Callable[[ModelFile], ModelSpec]] = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3}


def spec_of(file: ModelFile) -> ModelSpec:
    """The spec of a model file, with every tensor that it reads known to be there in its shape.

    Raises UnsupportedModelError for a family without a row, ModelFileError for a config or a tensor that does not fit.
    """
    family = architecture(file)
    if family not in FAMILIES:
        raise UnsupportedModelError(f"{file.path}: model family {family!r} is not supported; supported: {', '.join(FAMILIES)}")
    spec = FAMILIES[family](file)
    read = set()
    for weight in spec.weights():
        file.tensor(weight.name, weight.shape)
        read.add(weight.name)
    unread = [name for name in file.tensors if name not in read and not name.endswith(_UNREAD)]
    if unread:
        raise UnsupportedModelError(
            f"{file.path}: {len(unread)} of its tensors are not part of a {family} model of {len(spec.layers)} layers as its config "
            f"describes it, the first of them {unread[0][:80]!r}; without them the answers would be wrong"
        )
    return spec


# Read elsewhere, recomputed, or a second copy of a tied embedding.
_UNREAD = ("rope_freqs.weight", "rotary_emb.inv_freq", "lm_head.weight")
