"""One frozen row per target: how wide a wave is, how much LDS a workgroup has, which dot and matrix families exist.

Code asks a row for a property (`arch.wave`, `arch.dot4`) and never for a name. A name that is not in the table is refused.

>>> parse("gfx942:sramecc+:xnack-").wave
64
>>> parse("gfx1100").dot4
'v_dot4_i32_iu8'
"""

import functools
import platform
from dataclasses import dataclass, replace
from pathlib import Path

from lanewise.errors import UnknownTargetError

__all__ = ["TARGETS", "Arch", "Registers", "cpu_flags", "host", "nvidia", "of_gpu", "parse", "x86_level"]


@dataclass(frozen=True, slots=True)
class Arch:
    """One target.

    name:    what compilers call it
    vendor:  "amd", "nvidia", "x86" or "arm"; "other" for a GPU of somebody else
    wave:    lanes that run in lockstep (32 or 64); 1 on a CPU; 0 where nobody has said
    lds:     bytes of LDS / shared memory one workgroup can have; 0 on a CPU
    vector:  bytes of one vector register of one lane's program: 4 on a GPU, 16..64 on a CPU
    dot4:    the instruction that a 4-way int8 dot into int32 is made of, or None. GPUs and Arm multiply signed by signed; x86 unsigned by
             signed, and pmaddubsw only in pairs, into int16 that saturates
    dot2_f16, dot2_bf16: a 2-way dot of that type into float32
    matrix:  the matrix unit's family ("wmma", "mfma", "mma", "wgmma", "tcgen05", "i8mm"), or None
    triton:  whether Triton 3.6 compiles for it
    mma16:   whether warps multiply 16 x 16 by 16 x 8 of fp16 and bf16 out of registers (mma.sync m16n8k16: PTX ISA, sm_80 and later)
    pdl:     whether a kernel can start before the one in front of it has ended (programmatic dependent launch, CUDA C++ programming guide)
    keeps_half: whether a 16-bit result leaves the upper half of its register as it was, and does not clear it (AMD)
    store_counter: whether stores of a wave are counted apart from its loads (`vscnt`), and split_waits: every kind of access apart (AMD)
    packed_ids: whether a lane's x, y and z in its workgroup begin in one register and not in three (AMD)
    ids_in_ttmp: whether a workgroup's number begins in trap temporaries and not behind the registers that the driver fills (AMD)
    features: what a `name:feature+` suffix asked for, as written
    """

    name: str
    vendor: str
    wave: int
    lds: int
    vector: int
    dot4: str | None
    dot2_f16: bool = False
    dot2_bf16: bool = False
    matrix: str | None = None
    triton: bool = False
    mma16: bool = False
    pdl: bool = False
    keeps_half: bool = False
    store_counter: bool = False
    split_waits: bool = False
    packed_ids: bool = False
    ids_in_ttmp: bool = False
    features: tuple[str, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.vendor in ("amd", "nvidia")

    @property
    def wmma_repeats_k(self) -> bool:
        """Whether both halves of a wave hold all of k for the matrix unit: RDNA3's do, and RDNA4's one half of it each (AMD's ISA guides, WMMA)."""
        return self.matrix == "wmma" and self.name.startswith("gfx11")

    @property
    def matrix_flushes(self) -> bool:
        """Whether the matrix unit takes and gives denormals of 16 bits as zero: that of MI200 alone (PyTorch's notes on numerical accuracy)."""
        return self.name == "gfx90a"

    @property
    def negative_zero_is_nan(self) -> bool:
        """Whether floats of 8 bits have one zero, no infinity and another bias: those of MI300 alone (AMD's CDNA3 ISA guide, "FP8 and BF8")."""
        return self.name == "gfx942"

    @property
    def emulated(self) -> bool:
        """Whether the proof runs the target's machine code; that of others stops at what the emulator does not know."""
        return self.name in _EMULATED

    @property
    def registers(self) -> "Registers | None":
        """How many waves a SIMD holds at once, of AMD's GPUs."""
        return _REGISTERS.get(self.name)

    @property
    def dot_wait(self) -> int:
        """Wait states between a 4-way or 2-way dot and whoever else touches its result, where hardware does not wait (LLVM, GCNHazardRecognizer)."""
        return _DOT_WAIT.get(self.name, 0)

    @property
    def dot_by_matrix(self) -> bool:
        """Whether Triton's own `dot` reaches the matrix unit: Triton 3.6 has no layout for the first tensor cores, nor picks gfx1250's."""
        return self.triton and self.matrix is not None and self.name not in ("sm_70", "sm_75", "gfx1250")

    def __str__(self) -> str:
        return ":".join((self.name, *self.features))


@dataclass(frozen=True, slots=True)
class Registers:
    """Of a SIMD of AMD.

    vgprs:    registers of a lane that its waves share; step: how many at a time a wave gets of them
    waves:    most at once
    simds:    how many share the LDS that one workgroup can have
    apart:    whether the matrix unit has as many registers again beside these
    """

    vgprs: int
    step: int
    waves: int
    simds: int
    apart: bool = False

    def occupancy(self, vgprs: int, agprs: int = 0) -> int:
        """Waves that fit by their registers; 0 where not one does.

        >>> TARGETS["gfx1100"].registers.occupancy(98)
        12
        """
        used = max(vgprs, agprs) if self.apart else vgprs
        return min(self.waves, self.vgprs // (-(-max(used, 1) // self.step) * self.step))


def _amd(
    name: str, wave: int, dot4: str | None, *, f16: bool = True, bf16: bool = False, matrix: str | None = None, lds: int = 64, triton: bool = True
) -> Arch:
    row = Arch(name, "amd", wave, lds * 1024, 4, dot4, f16, bf16, matrix, triton)
    # What begins where and is counted how: LLVM's AMDGPU usage guide (initial kernel state, memory model), AMD's ISA guides (data hazards, 16 bits).
    major = int(name.removeprefix("gfx")[:-2])
    packed = major >= 11 or name in ("gfx90a", "gfx942", "gfx950")
    return replace(row, keeps_half=major >= 10, store_counter=major in (10, 11), split_waits=major >= 12, packed_ids=packed, ids_in_ttmp=major >= 12)


def _nvidia(name: str, lds: int, matrix: str) -> Arch:
    capability = int(name.removeprefix("sm_"))
    return Arch(name, "nvidia", 32, lds * 1024, 4, "dp4a", matrix=matrix, triton=True, mma16=capability >= 80, pdl=capability >= 90)


def _cpu(name: str, vendor: str, vector: int, dot4: str | None, *, bf16: bool = False, matrix: str | None = None) -> Arch:
    return Arch(name, vendor, 1, 0, vector, dot4, dot2_bf16=bf16, matrix=matrix)


# Instruction availability, wave and LDS: asked of Triton 3.6's own LLVM (tests/test_arch_llvm.py). gfx11 and later have only the
# iu8 form, whose operands are unsigned unless neg_lo says otherwise; LLVM takes the old v_dot4_i32_i8 there too, and encodes it
# as the unsigned one. Triton compiles for sm_70 and sm_75 without their matrix units.
# Shared memory per block: CUDA C++ programming guide, technical specifications.
_ROWS = (
    _amd("gfx900", 64, None, f16=False, triton=False),
    _amd("gfx906", 64, "v_dot4_i32_i8", triton=False),
    _amd("gfx908", 64, "v_dot4_i32_i8", matrix="mfma"),
    _amd("gfx90a", 64, "v_dot4_i32_i8", matrix="mfma"),
    _amd("gfx942", 64, "v_dot4_i32_i8", matrix="mfma"),
    _amd("gfx950", 64, "v_dot4_i32_i8", matrix="mfma", bf16=True, lds=160),
    _amd("gfx1010", 32, None, f16=False),
    _amd("gfx1030", 32, "v_dot4_i32_i8"),
    *(_amd(f"gfx{n}", 32, "v_dot4_i32_iu8", matrix="wmma", bf16=True) for n in (1100, 1101, 1102, 1103, 1150, 1151, 1200, 1201)),
    # gfx1250 keeps the integer dot and drops both floating-point ones.
    _amd("gfx1250", 32, "v_dot4_i32_iu8", matrix="wmma", f16=False, lds=320),
    _nvidia("sm_70", 96, "mma"),
    _nvidia("sm_75", 64, "mma"),
    _nvidia("sm_80", 163, "mma"),
    _nvidia("sm_86", 99, "mma"),
    _nvidia("sm_87", 163, "mma"),
    _nvidia("sm_89", 99, "mma"),
    _nvidia("sm_90", 227, "wgmma"),
    _nvidia("sm_100", 227, "tcgen05"),
    _nvidia("sm_103", 227, "tcgen05"),
    _nvidia("sm_120", 99, "mma"),
    # x86-64 psABI levels; the +suffix rows are a level and the dot instruction that some of its processors add.
    _cpu("x86-64", "x86", 16, None),
    _cpu("x86-64-v2", "x86", 16, "pmaddubsw"),
    _cpu("x86-64-v3", "x86", 32, "vpmaddubsw"),
    _cpu("x86-64-v3+avxvnni", "x86", 32, "vpdpbusd"),
    _cpu("x86-64-v4", "x86", 64, "vpmaddubsw"),
    _cpu("x86-64-v4+vnni", "x86", 64, "vpdpbusd"),
    _cpu("x86-64-v4+vnni+bf16", "x86", 64, "vpdpbusd", bf16=True),
    _cpu("aarch64", "arm", 16, None),
    _cpu("aarch64+dotprod", "arm", 16, "sdot"),
    _cpu("aarch64+dotprod+i8mm", "arm", 16, "sdot", matrix="i8mm"),
)
# Registers and waves: what LLVM computes its "Occupancy" by, held to it in tests/test_arch_llvm.py.
_REGISTERS = {
    **dict.fromkeys(("gfx900", "gfx906"), Registers(256, 4, 10, 4)),
    "gfx908": Registers(256, 4, 10, 4, apart=True),
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), Registers(512, 8, 8, 4)),
    "gfx1010": Registers(1024, 8, 20, 2),
    **dict.fromkeys(("gfx1030", "gfx1102", "gfx1103", "gfx1150", "gfx1250"), Registers(1024, 16, 16, 2)),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"), Registers(1536, 24, 16, 2)),
}
_EMULATED = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201")
_DOT_WAIT = dict.fromkeys(("gfx90a", "gfx942", "gfx950"), 3)
TARGETS: dict[str, Arch] = {row.name: row for row in _ROWS}
# What each AMD processor can be asked to switch (LLVM's AMDGPU usage guide, target ID).
_FEATURES = {
    "gfx900": ("xnack",),
    "gfx1010": ("xnack",),
    "gfx1250": ("sramecc",),
    **dict.fromkeys(("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"), ("sramecc", "xnack")),
}


def parse(name: str) -> Arch:
    """The row for a target name, with AMD's feature suffixes kept. Raises UnknownTargetError, saying what is known."""
    base, *features = name.split(":")
    row = TARGETS.get(base)
    if row is None:
        raise UnknownTargetError(f"unknown target {name!r}; known targets: {', '.join(TARGETS)}")
    allowed = _FEATURES.get(base, ())
    for feature in features:
        if feature[:-1] not in allowed or feature[-1:] not in ("+", "-"):
            known = ", ".join(f"{f}+ or {f}-" for f in allowed) or "no features"
            raise UnknownTargetError(f"target {name!r}: unknown feature {feature!r}; {base} takes {known}")
    if len({f[:-1] for f in features}) != len(features):
        raise UnknownTargetError(f"target {name!r} names a feature twice")
    return replace(row, features=tuple(features)) if features else row


def nvidia(major: int, minor: int) -> str:
    """What compilers call a compute capability."""
    return f"sm_{major}{minor}"


@functools.cache
def of_gpu(name: str) -> Arch:
    """The row of a GPU as its driver names it. One that the table does not have gets a row that promises nothing: no dot, no Triton.

    >>> str(of_gpu("gfx942:sramecc+:xnack-")), of_gpu("sm_90").triton, of_gpu("gfx1300").triton
    ('gfx942:sramecc+:xnack-', True, False)
    """
    base, *features = name.split(":")
    row = TARGETS.get(base)
    if row is None or not row.is_gpu:
        vendor = "amd" if base.startswith("gfx") else "nvidia" if base.startswith("sm_") else "other"
        row = Arch(base, vendor, 0, 0, 4, None)
    return replace(row, features=tuple(features)) if features else row


@functools.cache
def host() -> Arch:
    """The row of the processor that this process runs on: the highest whose instructions it all has."""
    machine = platform.machine().lower()
    flags = cpu_flags()
    if machine in ("aarch64", "arm64"):
        return TARGETS["aarch64" + ("+dotprod" + ("+i8mm" if "i8mm" in flags else "") if "asimddp" in flags else "")]
    if machine not in ("x86_64", "amd64"):
        raise UnknownTargetError(f"this processor is {machine!r}; Lanewise knows x86_64 and aarch64")
    return TARGETS[x86_level(flags)]


def x86_level(flags: frozenset[str]) -> str:
    """The x86-64 row for /proc/cpuinfo flags (x86-64 psABI, micro-architecture levels)."""
    v2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
    v3 = v2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
    v4 = v3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    if v4 <= flags:
        vnni = "avx512_vnni" in flags
        return "x86-64-v4" + ("+vnni" if vnni else "") + ("+bf16" if vnni and "avx512_bf16" in flags else "")
    if v3 <= flags:
        return "x86-64-v3" + ("+avxvnni" if "avx_vnni" in flags else "")
    return "x86-64-v2" if v2 <= flags else "x86-64"


def cpu_flags() -> frozenset[str]:
    """What the system says that this processor has: the flags of /proc/cpuinfo, empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux: the baseline of the architecture is always true
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
