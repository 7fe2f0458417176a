"""What each CPU row of `arch` means to the emitter: LLVM's name for it, its 4-way dot product, and the tile that fits its registers."""

from dataclasses import dataclass, replace

from lanewise import settings
from lanewise.arch import TARGETS, Arch, cpu_flags, host
from lanewise.errors import UnknownTargetError

__all__ = ["ISAS", "Isa", "runnable", "selected"]


@dataclass(frozen=True, slots=True)
class Isa:
    """One instruction set that CPU kernels are emitted for.

    name:     the row of `arch.TARGETS`
    triple:   LLVM's target triple; cpu and features: what LLVM may use
    dot:      how `dots.dot4` multiplies: "vnni512", "vnni256", "maddubs256", "maddubs128", "usdot", "sdot" or "portable"
    unsigned: whether 8-bit weights are multiplied as unsigned bytes (stored with 128 added) or as signed ones
    tokens, panels: rows of x and panels of w whose accumulators fit the registers together
    f16, fma: whether there are instructions that convert float16, and that multiply and add with one rounding
    bf16:     whether a bf16 dot instruction is there
    """

    name: str
    triple: str
    cpu: str
    features: str
    dot: str
    unsigned: bool
    tokens: int
    panels: int
    f16: bool = True
    fma: bool = True
    bf16: bool = False

    @property
    def arch(self) -> Arch:
        return TARGETS[self.name]


_LINUX_X86, _LINUX_ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
# LLVM tunes x86-64-v4 for 256-bit vectors, as early AVX-512 processors clocked down on wider ones; those with VNNI do not.
_WIDE = "-prefer-256-bit"
ISAS: dict[str, Isa] = {
    isa.name: isa
    for isa in (
        Isa("x86-64-v4+vnni+bf16", _LINUX_X86, "x86-64-v4", f"{_WIDE},+avx512vnni,+avx512bf16", "vnni512", True, 6, 2, bf16=True),
        Isa("x86-64-v4+vnni", _LINUX_X86, "x86-64-v4", f"{_WIDE},+avx512vnni", "vnni512", True, 6, 2),
        Isa("x86-64-v4", _LINUX_X86, "x86-64-v4", _WIDE, "maddubs256", False, 4, 1),
        Isa("x86-64-v3+avxvnni", _LINUX_X86, "x86-64-v3", "+avxvnni", "vnni256", True, 2, 1),
        Isa("x86-64-v3", _LINUX_X86, "x86-64-v3", "", "maddubs256", False, 2, 1),
        Isa("x86-64-v2", _LINUX_X86, "x86-64-v2", "", "maddubs128", False, 1, 1, f16=False, fma=False),
        Isa("x86-64", _LINUX_X86, "x86-64", "", "portable", False, 1, 1, f16=False, fma=False),
        Isa("aarch64+dotprod+i8mm", _LINUX_ARM, "generic", "+neon,+dotprod,+i8mm", "usdot", True, 4, 1),
        Isa("aarch64+dotprod", _LINUX_ARM, "generic", "+neon,+dotprod", "sdot", False, 4, 1),
        Isa("aarch64", _LINUX_ARM, "generic", "+neon", "portable", False, 1, 1),
    )
}


def runnable() -> tuple[Isa, ...]:
    """The instruction sets that the host's processor runs, best first: its own row and every one below it.

    The 256-bit VNNI body runs in its AVX-512 encoding where the processor has that one and not AVX-VNNI's.
    """
    best = host()
    rows = [isa for isa in ISAS.values() if isa.arch.vendor == best.vendor]
    rows = rows[[isa.name for isa in rows].index(best.name) :]
    if "avx_vnni" in cpu_flags():
        return tuple(rows)
    encoded = [replace(isa, features="+avx512vl,+avx512vnni,+prefer-256-bit") if isa.dot == "vnni256" else isa for isa in rows]
    return tuple(isa for isa in encoded if isa.dot != "vnni256" or "avx512_vnni" in cpu_flags())


def selected() -> Isa:
    """The instruction set to emit for: the host's best, or LANEWISE_CPU_ISA. Raises UnknownTargetError for one that the host does not run."""
    rows = runnable()
    forced = settings.get("CPU_ISA")
    if forced is None:
        return rows[0]
    for isa in rows:
        if isa.name == forced:
            return isa
    raise UnknownTargetError(f"LANEWISE_CPU_ISA is {forced!r}; this processor runs {', '.join(isa.name for isa in rows)}")
