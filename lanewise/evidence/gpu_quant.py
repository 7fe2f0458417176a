"""What an arm on packed weights says that it launched: the kernels of its way, for the format, types and k of the problem, with nothing fused."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.evidence.gpu_kernels import FUSED, STORED, described_kernels
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import shown
from lanewise.kernels.gpu.quant_layout import BLOCK, Layout, layout_of

__all__ = ["check_grouped", "check_quantized"]

_QUANTIZE, _COMBINE, _DEQUANTIZE = "_quantize", "_combine", "_dequantize"
_DOTS, _OCTETS, _ONE = "_tiles", "octets", "one"  # products by 4-way dots, and by the matrix unit of tokens by eight, and of one
_GROUPED, _GROUPED_ONE = "_grouped", "grouped_one"
_PRODUCTS = (_DOTS, _OCTETS, _ONE, _GROUPED, _GROUPED_ONE)


def check_quantized(where: str, compiled: list[Any], problem: Mapping[str, Any], arm: Mapping[str, Any]) -> Iterator[Reason]:
    """Reasons against the descriptions of an arm's kernels."""
    try:
        kernels, layout = described_kernels(compiled), layout_of(str(problem.get("format")))
    except (ValueError, LanewiseError) as error:
        yield Reason("witness", where, "descriptions of kernels for the format of the problem", str(error)[:100])
        return
    names = [name for name, _, _ in kernels]
    splits = any(constants.get("SPLITS") not in (None, 1) for name, _, constants in kernels if name in _PRODUCTS)
    product = _DOTS if _DOTS in names else _ONE if problem.get("m") == 1 and not layout.scale.startswith("half") else _OCTETS
    ways = {"quant_gemm": (_DEQUANTIZE,), "quant_gemv": (product, *((_COMBINE,) if splits else ()))}
    way: Sequence[str] = ways.get(str(arm["witness"]["kernel"]), ())
    if arm["label"] == "quant" and product in way:
        way = (_QUANTIZE, *way)
    if names != list(way):
        yield Reason("witness", where, ", ".join(way) or "no kernel", ", ".join(names)[:100])
        return
    for name, signature, constants in kernels:
        yield from _as_the_problem(where, name, signature, constants, problem, layout)


def check_grouped(where: str, compiled: list[Any], problem: Mapping[str, Any], arm: Mapping[str, Any]) -> Iterator[Reason]:
    """The same of an arm on experts: x is quantized in the order in which the next kernel takes it, or by that kernel itself, and ids are read early
    where the arm says so."""
    try:
        kernels, layout = described_kernels(compiled), layout_of(str(problem.get("format")))
    except (ValueError, LanewiseError) as error:
        yield Reason("witness", where, "descriptions of kernels for the format of the problem", str(error)[:100])
        return
    names = [name for name, _, _ in kernels]
    alone = names == [_GROUPED_ONE] and not layout.scale.startswith("half")
    if not alone and names != [_QUANTIZE, _GROUPED]:
        yield Reason("witness", where, f"{_GROUPED_ONE}, or {_QUANTIZE}, {_GROUPED}", ", ".join(names)[:100])
        return
    for name, signature, constants in kernels:
        yield from _as_the_problem(where, name, signature, constants, problem, layout)
    quantizes, product = kernels[0][2], kernels[-1][2]
    for constant in ("OWN", "WEIGHTED"):
        if product.get(constant) is not False:
            yield Reason("witness", where, f"a row of x for each token, and no router's weights: {constant} False", shown(product.get(constant)))
    ordered = False if alone else product.get("ORDERED")
    if not alone and ordered is not quantizes.get("ROWS"):
        yield Reason("witness", where, f"rows of x in the order of the pairs: ROWS {shown(ordered)}", shown(quantizes.get("ROWS")))
    early = arm["label"] == "grouped" and not ordered and bool(product.get("PDL"))
    if product.get("EARLY") is not early:
        yield Reason("witness", where, f"EARLY {early}, as {arm['label']} has it", shown(product.get("EARLY")))


def _as_the_problem(
    where: str, name: str, signature: Mapping[str, Any], constants: Mapping[str, Any], problem: Mapping[str, Any], layout: Layout
) -> Iterator[Reason]:
    """What a kernel of the format, the types and the k of the problem has, with nothing fused."""
    stored = f"*{STORED.get(str(problem.get('dtype')))}"
    if fused := [part for part in FUSED if constants.get(part)]:
        yield Reason("witness", where, "a product with nothing fused, as the problem says", ", ".join(fused))
    operands = {_QUANTIZE: ("x",), _DEQUANTIZE: ("out",)}.get(name, ("y",))
    for operand in operands:
        if signature.get(operand) != stored:
            yield Reason("witness", where, f"{operand} of {name} of type {stored}, as the problem says", shown(signature.get(operand)))
    for constant, right in _constants(name, layout).items():
        if constants.get(constant) != right:
            yield Reason("witness", where, f"{constant} {shown(right)} of {name}, as {layout.format} has it", shown(constants.get(constant)))
    right, blocks = -(-int(problem["k"]) // BLOCK), constants.get("BLOCKS")
    if blocks and blocks != right:
        yield Reason("witness", where, f"a kernel of {right} blocks", shown(blocks))
    written = [constants.get(one, 1) for one in ("TILES", "W", "SPLITS")]  # tiles that a warp goes over without a loop, or 0
    looped = name in (_DOTS, _GROUPED) and not written[0]
    if name in _PRODUCTS and not looped and not (all(type(one) is int for one in written) and right <= prod(written) < right + prod(written[1:])):
        yield Reason("witness", where, f"TILES, W and SPLITS for {right} blocks", shown(written))


def _constants(name: str, layout: Layout) -> dict[str, Any]:
    """What a format decides in a kernel."""
    if name == _QUANTIZE:
        return {"SMALL": layout.activation == "q8_0"}
    if name == _COMBINE:
        return {}
    found = {"CODE": layout.code, "SCALE": layout.scale, "GROUP": layout.group, "SHIFT": layout.shift, "RECORD": layout.record}
    return found | {"VECTORS": layout.quants + layout.high, "SCALES": layout.scales, "TAIL": layout.tail}
