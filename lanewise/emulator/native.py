"""Some loops by the processor's own instructions, where it has them: numpy takes ten passes for a multiplication and addition with one rounding, and
halves become floats one by one. `floats` has the same in numpy, which is what these are tested against, and what other processors run.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

__all__ = ["dot2", "fused32", "widened16"]

Array = NDArray[Any]
_LOOP = """
define void @run({parameters}, float* noalias %to, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{loads}
  {compute}
  %at = getelementptr float, float* %to, i64 %i
  store float %result, float* %at
  %next = add nuw i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
_LOAD = "  %p{0} = getelementptr {1}, {1}* %a{0}, i64 %i\n  %v{0} = load {1}, {1}* %p{0}"
_PAIR = "<2 x half>"
# (what the processor must have, the types of the sources, the result of %v0, %v1 ...)
_LOOPS = {
    "fma": (("fma", "neon"), ("float",) * 3, "%result = call float @llvm.fma.f32(float %v0, float %v1, float %v2)"),
    "half": (("f16c", "neon"), ("half",), "%result = fpext half %v0 to float"),
    "dot2": (
        ("f16c", "neon"),
        (_PAIR, _PAIR, "float"),
        f"""%x = fpext {_PAIR} %v0 to <2 x float>
  %y = fpext {_PAIR} %v1 to <2 x float>
  %p = fmul <2 x float> %x, %y
  %low = extractelement <2 x float> %p, i32 0
  %high = extractelement <2 x float> %p, i32 1
  %first = fadd float %v2, %low
  %result = fadd float %first, %high""",
    ),
}


@cache
def _compiled(name: str) -> Callable[..., None] | None:
    """The loop over (addresses of sources, address of the result, number of elements); None where the processor would call a library for each one."""
    wanted, kinds, compute = _LOOPS[name]
    features = llvm.get_host_cpu_features()
    if not any(features.get(one) for one in wanted):
        return None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parameters = ", ".join(f"{kind}* noalias %a{i}" for i, kind in enumerate(kinds))
    loads = "\n".join(_LOAD.format(i, kind) for i, kind in enumerate(kinds))
    text = _LOOP.format(parameters=parameters, loads=loads, compute=compute)
    module = llvm.parse_assembly("declare float @llvm.fma.f32(float, float, float)\n" + text)
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=3)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(kinds) + 1), ctypes.c_int64)(engine.get_function_address("run"))

    def run(*given: Any, owner: Any = engine) -> None:
        made(*given)

    return run


def fused32(a: Array, b: Array, c: Array) -> Array | None:
    """a * b + c of float32 with one rounding, of any shapes that spread to one; None where the processor has no such instruction."""
    loop = _compiled("fma")
    if loop is None:
        return None
    shape = a.shape if a.shape == b.shape == c.shape else np.broadcast_shapes(a.shape, b.shape, c.shape)
    held = [one if one.shape == shape and one.flags.c_contiguous else np.ascontiguousarray(np.broadcast_to(one, shape)) for one in (a, b, c)]
    result = np.empty(shape, np.float32)
    if result.size:
        loop(*(one.ctypes.data for one in (*held, result)), result.size)
    return result


def dot2(a: Array, b: Array, c: Array) -> Array | None:
    """c + a0 b0, then + a1 b1, each rounded, of pairs of float16 [2, waves, lanes] that lie side by side; None where it cannot be done so."""
    loop = _compiled("dot2")
    if loop is None or not a.strides[0] == b.strides[0] == 2 or a.shape != b.shape or c.shape != a.shape[1:] or c.dtype != np.float32:
        return None
    held = [np.ascontiguousarray(one) for one in (a.transpose(1, 2, 0), b.transpose(1, 2, 0), c)]
    result = np.empty(c.shape, np.float32)
    if result.size:
        loop(*(one.ctypes.data for one in (*held, result)), result.size)
    return result


def widened16(x: Array) -> Array | None:
    """float32 of float16, of any shape; packed pairs [2, ...] stay side by side in memory. None where the processor has no such instruction."""
    loop = _compiled("half")
    if loop is None:
        return None
    pairs = x.ndim == 3 and x.strides[0] == x.itemsize
    laid = x.transpose(1, 2, 0) if pairs else x
    held = laid if laid.flags.c_contiguous else np.ascontiguousarray(laid)
    result = np.empty(held.shape, np.float32)
    if result.size:
        loop(held.ctypes.data, result.ctypes.data, result.size)
    return result.transpose(2, 0, 1) if pairs else result
