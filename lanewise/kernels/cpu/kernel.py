"""What a CPU kernel is: a name, the names of its arguments, and a body that an `Emitter` writes.

Every kernel has the machine-level signature `void k(int64 *args, int64 chunk, int64 worker)`. `args` is a table of int64
(addresses, sizes, float bits) that Python fills by name; `chunk` says which part of the work to do; `worker` which scratch
memory to use. So a kernel knows nothing of threads, and a table of kernels can be walked without Python.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from lanewise.kernels.cpu.emit import I64, VOID, Emitter, Value
from lanewise.kernels.cpu.isa import Isa

__all__ = ["Arguments", "CpuKernel", "double_bits", "float_bits", "module_of"]

Body = Callable[[Emitter, "Arguments", Value, Value], None]


@dataclass(frozen=True, slots=True)
class CpuKernel:
    """name: its symbol; arguments: names in order; body(e, a, chunk, worker) writes it, reading arguments as `a.name`."""

    name: str
    arguments: tuple[str, ...]
    body: Body

    def ir(self, isa: Isa) -> str:
        """The LLVM IR of this kernel for an instruction set."""
        return module_of(self, isa)

    def pack(self, **values: int) -> NDArray[np.int64]:
        """The argument table. Raises TypeError for a name that is missing or too many."""
        if set(values) != set(self.arguments):
            raise TypeError(f"{self.name} takes {', '.join(self.arguments)}; given {', '.join(values)}")
        return np.array([values[name] for name in self.arguments], np.int64)


class Arguments:
    """Loads arguments, each once, as int64 values named after them; `real` reads one as the float32 whose bits it holds."""

    def __init__(self, e: Emitter, table: Value, names: tuple[str, ...]) -> None:
        self._e = e
        self._values = {name: e.b.load(e.b.gep(table, [ir.Constant(I64, i)])) for i, name in enumerate(names)}

    def __getattr__(self, name: str) -> Value:
        return self._values[name]

    def real(self, name: str) -> Value:
        return self._e.bits_to_float(self._values[name])


def float_bits(value: float) -> int:
    """A float32 as an argument: its bits."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def double_bits(value: float) -> int:
    """A float64 as an argument: its bits."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def module_of(kernel: CpuKernel, isa: Isa) -> str:
    """The LLVM IR of one kernel."""
    module = ir.Module(kernel.name)
    module.triple = isa.triple
    function = ir.Function(module, ir.FunctionType(VOID, [I64.as_pointer(), I64, I64]), kernel.name)
    function.attributes.add("nounwind")
    table, chunk, worker = function.args
    e = Emitter(ir.IRBuilder(function.append_basic_block("entry")), isa)
    kernel.body(e, Arguments(e, table, kernel.arguments), chunk, worker)
    e.b.ret_void()
    return str(module)
