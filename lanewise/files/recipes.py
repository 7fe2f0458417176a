"""Which format each weight of a model gets when it is quantized: one rule a line, as data.

The mixes Q3_K_S to Q5_K_M are llama.cpp's published ones (src/llama-quant.cpp, its choice of a tensor's type): the weights that
hurt most when they are coarse get more bits. Left out are its exceptions for Falcon, LLaMA-2-70B and models of eight experts, and the mixes
Q2_K and Q2_K_S, which depend on the ratio of heads. A plain format name (Q4_K, Q8_0, ...) gives every weight that format.

>>> find("q4_k_m").rules[0].format
'Q6_K'
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lanewise.errors import FormatError
from lanewise.files.model_file import Tensor
from lanewise.formats import FORMATS, Format

__all__ = ["Choice", "Recipe", "Rule", "choose", "find", "names"]

# Of the layers that have such a tensor, number i of n gets the rule's format. Integer division as in the source.
_LAYERS: dict[str, Callable[[int, int], bool]] = {
    "all": lambda i, n: True,
    "first two": lambda i, n: i < 2,
    "first four": lambda i, n: i < 4,
    "first sixteenth": lambda i, n: i < n // 16,
    "first eighth": lambda i, n: i < n // 8,
    # both ends, and every third between: half of the layers
    "half": lambda i, n: i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2,
}
_V = r"blk\.\d+\.attn_(v|qkv|kv_b)\.weight"
_DOWN = r"blk\.\d+\.ffn_down.*\.weight"
_OUT = r"blk\.\d+\.attn_output\.weight"
# The head, which is the embedding where the two are tied.
_HEAD = "head"
# Small, and sensitive: these stay as they are, like everything of one dimension and all that is not a ".weight".
_KEPT = re.compile(r".*(_norm|ffn_gate_inp|ssm_conv1d|shortconv\.conv|attn_rel_b)\.weight|(position_embd|token_types)\.weight")
# When a row is not whole blocks: a format of 32-blocks with at least as many bits, then F16.
_FALLBACK = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "IQ4_XS": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


@dataclass(frozen=True, slots=True)
class Rule:
    """Weights whose whole name matches `pattern` get `format`, in the layers that `layers` names."""

    pattern: str
    format: str
    layers: str = "all"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The first rule that matches wins; any other weight gets `base`. `file_type` is general.file_type's number (llama_ftype)."""

    name: str
    base: str
    file_type: int
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What a tensor becomes; `wanted` is the recipe's format where the rows did not fit it. `kept` tensors are copied."""

    tensor: Tensor
    format: Format
    wanted: str | None = None

    @property
    def kept(self) -> bool:
        return self.format is self.tensor.format


_HEAD_Q6 = Rule(_HEAD, "Q6_K")
# llama_ftype numbers: llama.h
_PLAIN = (
    *(("F32", 0), ("F16", 1), ("BF16", 32), ("Q4_0", 2), ("Q4_1", 3), ("Q5_0", 8), ("Q5_1", 9), ("Q8_0", 7)),
    *(("Q2_K", 10), ("Q3_K", 11), ("Q4_K", 14), ("Q5_K", 16), ("Q6_K", 18), ("IQ4_NL", 25), ("IQ4_XS", 30)),
)
_RECIPES = (
    *(Recipe(name, name, file_type) for name, file_type in _PLAIN),
    Recipe("Q3_K_S", "Q3_K", 11, (_HEAD_Q6,)),
    Recipe(
        "Q3_K_M",
        "Q3_K",
        12,
        (
            _HEAD_Q6,
            Rule(_V, "Q5_K", "first two"),
            Rule(_V, "Q4_K"),
            Rule(_DOWN, "Q5_K", "first sixteenth"),
            Rule(_DOWN, "Q4_K"),
            Rule(_OUT, "Q4_K"),
        ),
    ),
    Recipe("Q3_K_L", "Q3_K", 13, (_HEAD_Q6, Rule(_V, "Q5_K"), Rule(_DOWN, "Q5_K"), Rule(_OUT, "Q5_K"))),
    Recipe("Q4_K_S", "Q4_K", 14, (_HEAD_Q6, Rule(_V, "Q5_K", "first four"), Rule(_DOWN, "Q5_K", "first eighth"))),
    Recipe("Q4_K_M", "Q4_K", 15, (_HEAD_Q6, Rule(_V, "Q6_K", "half"), Rule(_DOWN, "Q6_K", "half"))),
    Recipe("Q5_K_S", "Q5_K", 16, (_HEAD_Q6,)),
    Recipe("Q5_K_M", "Q5_K", 17, (_HEAD_Q6, Rule(_V, "Q6_K", "half"), Rule(_DOWN, "Q6_K", "half"))),
)
_BY_NAME = {recipe.name: recipe for recipe in _RECIPES}


def names() -> tuple[str, ...]:
    """Every type that `quantize_file` takes."""
    return tuple(_BY_NAME)


def find(name: str) -> Recipe:
    """The recipe of that name, in upper or lower case. Raises FormatError, listing all."""
    recipe = _BY_NAME.get(name.upper())
    if recipe is None:
        raise FormatError(f"unknown type {name[:64]!r}; a model can be quantized to {', '.join(_BY_NAME)}")
    return recipe


def choose(recipe: Recipe, tensors: Mapping[str, Tensor]) -> list[Choice]:
    """What every tensor of a model becomes, in the model's order."""
    head = "output.weight" if "output.weight" in tensors else "token_embd.weight"
    rules = [(re.compile(re.escape(head) if rule.pattern == _HEAD else rule.pattern), rule) for rule in recipe.rules]
    places = [_places(pattern, tensors) for pattern, _ in rules]
    return [_choose(recipe, tensor, rules, places) for tensor in tensors.values()]


def _places(pattern: re.Pattern[str], tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """The layers that have a tensor of this kind, by the "blk.N." of its name, numbered in order."""
    layers = {int(name.split(".")[1]) for name in tensors if pattern.fullmatch(name) and name.startswith("blk.")}
    return {f"{layer}": index for index, layer in enumerate(sorted(layers))}


def _choose(recipe: Recipe, tensor: Tensor, rules: list[tuple[re.Pattern[str], Rule]], places: list[dict[str, int]]) -> Choice:
    if len(tensor.shape) < 2 or not tensor.name.endswith(".weight") or _KEPT.fullmatch(tensor.name):
        return Choice(tensor, tensor.format)
    wanted = recipe.base
    for (pattern, rule), order in zip(rules, places, strict=True):
        if pattern.fullmatch(tensor.name) and _LAYERS[rule.layers](order.get(_layer(tensor.name), 0), len(order)):
            wanted = rule.format
            break
    fitting = wanted
    if tensor.shape[-1] % FORMATS[fitting].block:
        fitting = _FALLBACK.get(fitting, "F16")
    if tensor.shape[-1] % FORMATS[fitting].block:
        fitting = "F16"
    return Choice(tensor, FORMATS[fitting], None if fitting == wanted else wanted)


def _layer(name: str) -> str:
    """The N of "blk.N.", without leading zeros; "" for a name without."""
    parts = name.split(".")
    return str(int(parts[1])) if parts[0] == "blk" and parts[1].isdecimal() else ""
