"""Triton's interpreter, mended: what it gets wrong about bfloat16 is no kernel's fault, and allowing for it would hide what is.

Triton 3.6 holds bfloat16 as its bits in uint16. Its conversion from float32 cuts instead of rounding to nearest even, it loses subnormal numbers
both ways, and a dot of bfloat16 multiplies the bits as integers. Mended, each is what hardware does, so that one bound serves for both.
"""

from typing import Any

import numpy as np

__all__ = ["mend", "narrow", "on", "widen"]


def widen(bits: Any) -> Any:
    """float32 from the bits of bfloat16: they are its upper half."""
    return (np.asarray(bits).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def narrow(values: Any) -> Any:
    """The bits of bfloat16 from float32, rounded to nearest, ties to even; NaN stays NaN.

    >>> hex(narrow(np.float32([1 + 3 * 2**-8]))[0])
    '0x3f82'
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def on() -> bool:
    """Whether this process's kernels run in the interpreter."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def mend() -> None:
    """Change the interpreter of this process; call it before the first kernel runs. TRITON_INTERPRET=1 must have been set at the start."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    if getattr(builder, "lanewise_mended", False):
        return
    cast, convert, dot = builder.cast_impl, builder.create_fp_to_fp, builder.create_dot

    def bfloat(src: Any, to: Any) -> Any:
        """The conversion when it is from or to bfloat16 and float32, else None."""
        source, target = src.dtype.scalar, to.scalar
        if (source, target) == (tl.bfloat16, tl.float32):
            return interpreter.TensorHandle(widen(src.data), target)
        if (source, target) == (tl.float32, tl.bfloat16):
            return interpreter.TensorHandle(narrow(src.data), target)
        return None

    def wide(x: Any) -> Any:
        return interpreter.TensorHandle(widen(x.data), tl.float32) if x.dtype.scalar == tl.bfloat16 else x

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        # not `or`: a handle is true when all of its numbers are
        made = bfloat(src, dst_type)
        return cast(self, src, dst_type) if made is None else made

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        made = bfloat(src, dst_type)
        return convert(self, src, dst_type, rounding_mode) if made is None else made

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, wide(a), wide(b), *rest)

    builder.cast_impl, builder.create_fp_to_fp, builder.create_dot = cast_impl, create_fp_to_fp, create_dot
    builder.lanewise_mended = True
