"""Launches of the quantized GPU kernels with operands that hold nothing, for targets that are not here; and kernels with some text replaced."""

import importlib.util
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from lanewise.arch import Arch
from lanewise.kernels.gpu import quant_gemm, quant_gemv
from lanewise.kernels.gpu.act_quant import Activations
from lanewise.kernels.gpu.quant_config import STRANDS, QuantConfig, default
from lanewise.kernels.gpu.quant_layout import LAYOUTS, Layout
from lanewise.kernels.gpu.quant_pack import QuantWeight

from .gpu_launch import Code, compiled

_HERE = Path(quant_gemv.__file__).parent
_MODULES = (
    "quant_codes",
    "quant_dots",
    "quant_mma",
    "quant_threads",
    "quant_one",
    "quant_octets",
    "quant_gemv",
)  # each may import those in front of it
_number = itertools.count()


@dataclass(frozen=True)
class Case:
    """y[m,n] of k columns; fused: with bias, gate and residual."""

    format: str
    m: int
    n: int = 4096
    k: int = 2048
    fused: bool = False

    def __str__(self) -> str:
        return f"{self.format} m={self.m} {self.n}x{self.k}{' fused' if self.fused else ''}"

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.format]

    @property
    def vectors(self) -> int:
        """Loads of 16 bytes that a lane takes a tile with."""
        return self.layout.quants + self.layout.high + self.layout.scales

    def config(self, row: Arch) -> QuantConfig:
        return default(row, self.format, self.m, self.n, self.k)

    def tiles(self, row: Arch) -> tuple[int, int]:
        """How many tiles a lane's code loads, and multiplies: those that are held and, where a strand has more, those of the loop."""
        config = self.config(row)
        strands, mine = STRANDS // config.warps, -(-self.k // 256 // config.warps)
        held = mine if config.ahead >= mine else min(mine, max(1, config.ahead // strands) * strands)
        turns = -(-(mine - held) // held)
        return held * (1 + (turns > 0)), held * (turns > 0) + mine - turns * held


def operands(case: Case) -> tuple[Activations, QuantWeight, dict[str, Any]]:
    octets, blocks = -(-case.m // 8), -(-case.k // 256)
    q = torch.empty((octets, blocks, 4, 8, 4, 4), dtype=torch.int32)
    if case.layout.activation == "q8_0":
        a = Activations("q8_0", case.m, case.k, q, torch.empty((octets, blocks, 4, 8, 2)), torch.empty((octets, blocks, 4, 8, 2)))
    else:
        sums = torch.empty((octets, blocks, 3, 8, 4), dtype=torch.int32)
        a = Activations("q8_k", case.m, case.k, q, torch.empty((octets, blocks, 8)), sums)
    rows = case.n * (1 + case.fused)
    tiles = torch.empty((-(-rows // 16), blocks, case.layout.record), dtype=torch.int32)
    new = torch.bfloat16
    more = {"bias": torch.empty(rows, dtype=new), "residual": torch.empty((case.m, case.n), dtype=new)} if case.fused else {}
    return a, QuantWeight(case.format, case.n, case.k, case.fused, tiles), more


def multiplied(row: Arch, case: Case, *, constant_w: bool = True, config: QuantConfig | None = None, module: Any = quant_gemv) -> list[Code]:
    """What `quant_gemv` launches."""
    a, w, more = operands(case)
    config = config or case.config(row)
    return compiled(row, lambda: module.quant_gemv(a, w, out=torch.bfloat16, constant_w=constant_w, config=config, arch=row, **more))


def unpacked(row: Arch, case: Case, module: Any = quant_gemm) -> Code:
    """What `dequantize` launches."""
    _, w, _ = operands(case)
    (code,) = compiled(row, lambda: module.dequantize(w, torch.bfloat16, arch=row))
    return code


def changed(folder: Path, name: str, old: str, new: str) -> ModuleType:
    """`quant_gemv` with a piece of the text of one of its modules replaced, beside copies of the others."""
    mark, found = f"changed{next(_number)}_", None
    for other in _MODULES:
        text = (_HERE / f"{other}.py").read_text()
        if other == name:
            assert text.count(old) == 1, text.count(old)
            text = text.replace(old, new)
        for one in _MODULES:
            text = text.replace(f"from lanewise.kernels.gpu.{one} import", f"from {mark}{one} import")
        path = folder / f"{mark}{other}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = found
        spec.loader.exec_module(found)
    assert found is not None
    return found
