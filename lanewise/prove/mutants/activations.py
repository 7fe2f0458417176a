"""Wrong kernels that quantize activations."""

from lanewise.prove.mutants.mutant import Mutant, of

__all__ = ["MUTANTS"]

_MODULE = "kernels.gpu.act_quant"

MUTANTS: tuple[Mutant, ...] = (
    *of(
        "act_quant: numbers", _MODULE, "act_quant",
        ("rounding", "ties go away from zero", "code = (product + _ROUND).to(tl.int32, bitcast=True) - _ROUND_BITS",
         "code = tl.where(product >= 0, tl.floor(product + 0.5), tl.ceil(product - 0.5)).to(tl.int32)", "halves"),
        ("rounding", "codes are cut", "code = (product + _ROUND).to(tl.int32, bitcast=True) - _ROUND_BITS", "code = product.to(tl.int32)"),
        ("rounding", "the quotient is a product with a reciprocal", "value * tl.div_rn(127.0, amax)", "value / amax * 127.0", "next to halves"),
        ("arithmetic", "128 and not 127", "value * tl.div_rn(127.0, amax), 127.0)", "value * tl.div_rn(128.0, amax), 127.0)"),
        ("arithmetic", "the scale is of 128", "scale = tl.div_rn(amax, 127.0).to(tl.int32, bitcast=True)", "scale = tl.div_rn(amax, 128.0).to(tl.int32, bitcast=True)"),
        ("arithmetic", "the largest is not of absolute values", "value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 4, keep_dims=True)",
         "tl.maximum(value, 0.0).to(tl.int32, bitcast=True), 4, keep_dims=True)"),
        ("arithmetic", "infinity is no broken group", "broken = most >= _INF_BITS", "broken = most > _INF_BITS", "broken | act_quant"),
        ("arithmetic", "a broken group has the scale of its infinity", "scale = tl.where(broken, _NAN_BITS, tl.where(none, 0, scale))",
         "scale = tl.where(none & ~broken, 0, scale)", "broken | act_quant"),
        ("arithmetic", "the smallest scale is not nought", "none = broken | (most < _ZERO_BELOW_BITS)", "none = broken | (most == 0)", "bf16 subnormal"),
        ("bound by one", "the threshold is nought too", "none = broken | (most < _ZERO_BELOW_BITS)", "none = broken | (most <= _ZERO_BELOW_BITS)", "f32 subnormal"),
        ("arithmetic", "sums are of a group with a negative lost", "tl.sum(tl.sum(code, 4, keep_dims=True), 1, keep_dims=True)",
         "tl.sum(tl.sum(tl.maximum(code, 0), 4, keep_dims=True), 1, keep_dims=True)"),
        ("operand dropped", "a sum has no scale", "tl.where(none, 0.0, scale * thirty_two.to(tl.float32))", "tl.where(none, 0.0, thirty_two.to(tl.float32))", "q8_0"),
        ("arithmetic", "bytes keep their sign's bits", "tl.sum((code & 0xFF) << (j * 8), 4, keep_dims=True)", "tl.sum(code << (j * 8), 4, keep_dims=True)"),
    ),
    *of(
        "act_quant: places", _MODULE, "act_quant",
        ("mask of a load", "x is loaded past k", "value = tl.load(at + columns, mask=columns < k, other=0.0)", "value = tl.load(at + columns)", "q8_0 m=3 k=800"),
        ("bound by one", "a column more", "value = tl.load(at + columns, mask=columns < k, other=0.0)", "value = tl.load(at + columns, mask=columns <= k, other=0.0)", "q8_0 m=3 k=800"),
        ("stride", "rows of x have k columns", "x_at = x + row * x_row", "x_at = x + row * k", "padded"),
        ("stride", "every token is the first", "x_at = x + row * x_row", "x_at = x", "m=3"),
        ("mask of a store", "words are stored past the last block", "c * 4 + (u & 1) * 2 + p), word, mask=inside)", "c * 4 + (u & 1) * 2 + p), word)", "k=736"),
        ("address", "a token's place is the next one's", "octet, r = token >> 3, (token & 7).to(tl.int32)", "octet, r = token >> 3, ((token + 1) & 7).to(tl.int32)"),
        ("address", "units lie in another order", "(u >> 1) * 128 + r * 16 + c * 4 + (u & 1) * 2 + p), word", "(u >> 1) * 128 + r * 16 + c * 4 + (u & 1) + 2 * p), word"),
        ("address", "the scales of a pair are exchanged", "(u >> 1) * 16 + r * 2 + (u & 1) + c * 0)", "(u >> 1) * 16 + r * 2 + (1 - (u & 1)) + c * 0)", "q8_0"),
        ("address", "sums of sixteen are exchanged", "(u >> 2) * 64 + (u & 3) * 2 + p), sixteen", "(u >> 2) * 64 + (u & 3) * 2 + (1 - p)), sixteen", "q8_k"),
        ("address", "sums of 32 begin a word late", "tl.store(sums_at + (u & 7), thirty_two", "tl.store(sums_at + ((u + 1) & 7), thirty_two", "q8_k"),
    ),
    *of(
        "act_quant: norm", _MODULE, "act_quant",
        ("operand dropped", "the norm's weight is left out", "normed = (value * tl.rsqrt(mean + eps) * weight).to(tile.dtype)", "normed = (value * tl.rsqrt(mean + eps)).to(tile.dtype)"),
        ("arithmetic", "the mean is of the padded width", "mean = tl.div_rn(tl.sum(squares), tl.cast(k, tl.float32))", "mean = tl.sum(squares) / (tl.cdiv(k, 256) * 256)", "k=736"),
        ("operand dropped", "eps is left out", "tl.rsqrt(mean + eps)", "tl.rsqrt(mean)", "zeros"),
        ("rounding", "the norm's result is not rounded", "weight).to(tile.dtype)", "weight)", "bf16"),
        ("tail of k", "squares of the first program alone", "for start in tl.range(0, k, EACH * 256):", "for start in tl.range(0, EACH * 256, EACH * 256):", "k=4352"),
        words=("norm=",),
    ),
)  # fmt: skip
