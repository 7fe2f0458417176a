"""The GPU's quantization of activations, case by case against the definition in numpy: `python -m support.act_quant WHAT`, in tests/.

kernel: every case, in Triton's interpreter; cuda: every case, on a card; mutants: wrong kernels, in the interpreter. Triton reads TRITON_INTERPRET
when it is imported, so this is a process of its own. It writes a JSON object: of every case what is wrong, of every mutant what was noticed.
"""

import importlib.util
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lanewise.arch import TARGETS
from lanewise.formats.activations import SLACK, ZERO_BELOW, quantize_q8_0, quantize_q8_k
from lanewise.kernels.gpu import act_quant, chain
from lanewise.kernels.gpu import device as devices
from lanewise.oracle import rms_norm, rms_norm_bound
from lanewise.prove import interpreter
from lanewise.prove.memory import Guarded

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
KINDS = {"q8_0": quantize_q8_0, "q8_k": quantize_q8_k}
WAVES = {32: TARGETS["sm_90"], 64: TARGETS["gfx942"]}
F32 = np.float32
# Rows of whole numbers, whose squares are added up without rounding: the largest, and the root of mean + eps.
WHOLE = {"whole": (11, 8), "sixths": (8, 6)}

CLASSES = ("normal", "zeros", "spike", "ties", "beside ties", "subnormal", "huge", "broken", "uneven")


@dataclass(frozen=True)
class Case:
    """x[m,k]: of `rows`, a class of input, or "all": a row of each; stride: of rows, -1 for k; offset: of x from an aligned address, in elements;
    norm: the type of its weight; many: as if x had many blocks; of rows in WHOLE eps is chosen so that the norm's root is one of those."""

    kind: str
    m: int
    k: int
    dtype: str = "f32"
    rows: str = "normal"
    stride: int = -1
    offset: int = 0
    norm: str = ""
    eps: float = 1e-6
    wave: int = 32
    many: bool = False

    def __str__(self) -> str:
        shown = [f"{name}={value}" for name, value in vars(self).items() if value != Case.__dataclass_fields__[name].default]
        return " ".join(shown)


def _row(kind: str, k: int, rng: np.random.Generator) -> np.ndarray:
    """float32[k] of one class."""
    groups = k // 32
    x = rng.standard_normal(k).astype(F32)
    if kind == "zeros":
        x = np.where(rng.integers(0, 2, k) == 1, F32(0), F32(-0.0))
    elif kind == "spike":
        x[:] = 0
        x[k * 2 // 3] = -5
    elif kind == "ties":
        x = (rng.integers(-127, 127, k) + 0.5).astype(F32)
        x[::32] = 127
    elif kind == "beside ties":  # where 1/d, or x/d, would give another q
        x = ((rng.integers(-127, 127, k) + 0.5) * (1.7 / 127)).astype(F32)
        x = np.nextafter(x, rng.choice([-np.inf, np.inf], k).astype(F32))
        x[::32] = 1.7
    elif kind == "subnormal":  # by groups: nothing else, beside the threshold, just below it
        x = (rng.uniform(-1, 1, k) * 2.0**-126).astype(F32)
        x[32::96] = ZERO_BELOW
        x[64::96] = np.nextafter(F32(ZERO_BELOW), F32(0))
    elif kind == "huge":  # d beyond what fp16 holds, up to the largest float32
        sizes = np.resize([60000 * 127.0, 1e20, float(np.finfo(F32).max)], groups)
        x = (rng.uniform(-1, 1, (groups, 32)) * sizes[:, None]).astype(F32).reshape(k)
        x[::32] = sizes
    elif kind == "broken":
        odd = np.array([0x7FC00000, 0x7F800000, 0xFF800000, 0xFFC00001], np.uint32).view(F32)
        x[7 : k // 2 : 32] = np.resize(odd, len(x[7 : k // 2 : 32]))
    elif kind == "uneven":
        x *= np.repeat(2.0 ** rng.integers(-110, 110, groups), 32).astype(F32)
    elif kind in WHOLE:
        x = rng.integers(-WHOLE[kind][0], WHOLE[kind][0] + 1, k).astype(F32)
    return x


def _x(case: Case) -> np.ndarray:
    rng = np.random.default_rng(case.k + case.m)
    with np.errstate(all="ignore"):
        kinds = CLASSES if case.rows == "all" else (case.rows,) * case.m
        rows = [_row(kind, case.k, rng) for kind in kinds]
        if case.rows in WHOLE:  # one eps for all
            rows = [rng.permutation(rows[0]) * (-1) ** i for i in range(case.m)]
    x, most = np.array(rows, F32).reshape(case.m, case.k), F32(torch.finfo(TYPES[case.dtype]).max)
    return np.where(np.isfinite(x), x.clip(-most, most), x)


def cases() -> Iterator[Case]:
    for dtype in TYPES:
        for kind in KINDS:
            yield Case(kind, len(CLASSES), 512, dtype, "all", many=dtype == "f16", wave=64 if dtype == "bf16" else 32)
    for m in range(18):
        for kind in ("q8_0", "q8_k")[m % 2 :][: 1 + (m < 4)] if m < 17 else KINDS:
            yield Case(kind, m, 32 if kind == "q8_0" else 256)
    for k in (64, 96, 224, 256, 288, 1280):
        yield Case("q8_0", 2, k)
    yield Case("q8_0", 1, 8192, many=True)
    yield Case("q8_k", 1, 8192)
    for stride in (0, 1, 40, 288, 289, 301):
        yield Case("q8_0", 3, 288, "bf16", stride=stride, offset=stride % 2)
    yield Case("q8_k", 3, 256, "f16", stride=257, offset=3)
    for wave in WAVES:
        yield Case("q8_0", 3, 2336, rows="uneven", many=True, wave=wave)
        yield Case("q8_k", 2, 2560, rows="uneven", many=True, wave=wave)
        yield Case("q8_0", 2, 288, rows="broken", wave=wave)
    for dtype in TYPES:
        yield Case("q8_0", 3, 288, dtype, "whole", norm=dtype)
        yield Case("q8_k", 2, 4352, dtype, "whole", norm="f32")
        yield Case("q8_0", 2, 288, dtype, "sixths", norm=dtype)
        yield Case("q8_0", 3, 1056, dtype, norm=dtype)
        yield Case("q8_k", 1, 4352, dtype, norm="bf16")
    yield Case("q8_0", 2, 288, "bf16", "zeros", norm="bf16")
    yield Case("q8_0", 2, 288, "bf16", "zeros", norm="bf16", eps=0.0)
    yield Case("q8_0", 2, 288, "f32", "broken", norm="f32")
    yield Case("q8_0", 2, 288, "f32", "huge", norm="f32")


def wrong(case: Case, module=act_quant, device: str = "cpu") -> str:
    """What is wrong with what a module makes of a case; empty where nothing is."""
    x = Guarded((case.m, case.k), (case.k if case.stride < 0 else case.stride, 1), TYPES[case.dtype], torch.device(device), case.offset)
    for row, values in zip(x.tensor, _x(case), strict=True):  # one after the other: rows may share elements
        row.copy_(torch.from_numpy(values))
    x.seal()
    norm, eps = None, case.eps
    if case.norm:
        norm = torch.from_numpy(np.random.default_rng(1).uniform(0.5, 2, case.k).astype(F32)).to(device, TYPES[case.norm])
        if case.rows in WHOLE:
            square, mean = WHOLE[case.rows][1] ** 2, x.tensor[0].cpu().float().square().sum() / case.k
            eps = float(square - mean)
            assert float(mean + torch.tensor(eps)) == square
    with _guarded(module, case.many) as made:
        a = module.act_quant(
            x.tensor, case.kind, norm=norm, eps=eps, arch=WAVES[case.wave] if device == "cpu" else devices.row(devices.named(x.tensor.device)[0])
        )
        found = [text for one in made for text in (one.overrun(),) if text]
    if x.broken():
        found.append(f"x: {x.broken()}")
    a = module.Activations(a.kind, a.m, a.k, a.q.cpu(), a.d.cpu(), a.sums.cpu())
    if norm is not None and case.rows == "normal":
        found += _beyond_the_bound(x.tensor.cpu(), norm.cpu(), eps, a, module, case)
    else:
        wide = x.tensor if norm is None else chain._normed(x.tensor, norm, eps)
        found += _not_the_definition(wide.cpu().float().numpy(), a, module)
    return "; ".join(found)


@contextmanager
def _guarded(module, many: bool) -> Iterator[list[Guarded]]:
    made: list[Guarded] = []

    def new(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        made.append(Guarded(shape, [int(np.prod(shape[i + 1 :])) for i in range(len(shape))], torch.float32, device))
        return made[-1].tensor.view(dtype)

    before = module._new, module._MANY
    module._new, module._MANY = new, 1 if many else before[1]
    try:
        yield made
    finally:
        module._new, module._MANY = before


def _places(m: int, k: int) -> tuple[np.ndarray, ...]:
    """(token, block, u, p, c, j) of every element, each [m, k]."""
    token, column = np.indices((m, k))
    return token, column // 256, column // 32 % 8, column // 16 % 2, column // 4 % 4, column % 4


def _not_the_definition(x: np.ndarray, a, module) -> Iterator[str]:
    """Where q, d and sums are not the bits that the definition gives, each at its place; and where `plain` does not give them back in order."""
    m, k = x.shape
    blocks = -(-k // 256)
    with np.errstate(all="ignore"):
        want = KINDS[a.kind](x)
        sums = want.sums if a.kind == "q8_k" else want.d * want.q.reshape(m, k // 32, 32).sum(-1, dtype=np.int32).astype(F32)
    if a.kind == "q8_0":
        sums[~np.isfinite(want.d)] = 0
    token, block, u, p, c, j = _places(m, k)
    octets = -(-m // 8)
    untouched = torch.tensor(0x7FC5D5D5, dtype=torch.int32).numpy()

    def laid(*inner: int) -> np.ndarray:
        """int32[octets, blocks, *inner], where a token's own places (inner's axis of 8) are 0 and what nobody may write is as it was."""
        bits = np.full((octets, blocks, *inner), untouched)
        of_token = np.moveaxis(bits, 2 + inner.index(8), 1)
        for t in range(m):
            of_token[t // 8, t % 8] = 0
        return bits

    words = laid(4, 8, 4, 4)
    q = words.view(np.int8).reshape(octets, blocks, 4, 8, 4, 4, 4)
    q[token // 8, block, u // 2, token % 8, c, u % 2 * 2 + p, j] = want.q
    if a.q.dtype != torch.int32 or a.q.shape != words.shape or not np.array_equal(a.q.numpy(), words):
        yield "q"
    if a.kind == "q8_0":
        t, b, unit = (one[:, ::32] for one in (token, block, u))
        for name, got, values in (("d", a.d, want.d), ("sums", a.sums, sums)):
            bits = laid(4, 8, 2)
            bits[t // 8, b, unit // 2, t % 8, unit % 2] = values.view(np.int32)
            if got.dtype != torch.float32 or got.shape != bits.shape or not np.array_equal(got.view(torch.int32).numpy(), bits):
                yield name
    else:
        bits = laid(8)
        t, b = token[:, ::256], block[:, ::256]
        bits[t // 8, b, t % 8] = want.d.view(np.int32)
        if a.d.dtype != torch.float32 or a.d.shape != bits.shape or not np.array_equal(a.d.view(torch.int32).numpy(), bits):
            yield "d"
        bits = laid(3, 8, 4)
        halves = bits.view(np.int16).reshape(octets, blocks, 3, 8, 8)
        of = want.sums.reshape(m, blocks, 16)
        for t in range(m):
            halves[t // 8, :, 0, t % 8] = of[t].reshape(blocks, 8, 2).sum(-1)
            halves[t // 8, :, 1:, t % 8] = of[t].reshape(blocks, 2, 8)
        if a.sums.dtype != torch.int32 or a.sums.shape != bits.shape or not np.array_equal(a.sums.numpy(), bits):
            yield "sums"
    for name, got, values in zip(("q", "d", "sums"), module.plain(a), (want.q, want.d, sums), strict=True):
        if got.shape != values.shape or got.numpy().dtype != values.dtype or got.contiguous().numpy().tobytes() != values.tobytes():
            yield f"plain {name}"


def _beyond_the_bound(x: torch.Tensor, norm: torch.Tensor, eps: float, a, module, case: Case) -> Iterator[str]:
    """Where d * q is further from RMSNorm(x) than float32 sums in any order, one rounding to x's type, and half a step explain."""
    q, d, sums = module.plain(a)
    wide = np.repeat(d.numpy().astype(np.float64), case.k // d.shape[1], axis=1)
    given = x.float().numpy(), norm.float().numpy(), eps
    off = np.abs(wide * q.numpy() - rms_norm(*given)) - rms_norm_bound(*given, case.dtype) - wide / 2 * (1 + SLACK)
    if not (off <= 0).all():
        yield f"d * q is {off.max()} beyond its bound"
    total = q.numpy().astype(np.int32).reshape(case.m, -1, 32 if a.kind == "q8_0" else 16).sum(-1)
    if not np.array_equal(sums.numpy(), d.numpy() * total.astype(F32) if a.kind == "q8_0" else total):
        yield "sums"


# Each is wrong in one way: a text of the module, and what stands in its place.
MUTANTS = {
    "the inverse is that of d": ("tl.div_rn(127.0, amax)", "(1.0 / tl.div_rn(amax, 127.0))"),
    "halves go up": (
        "(product + _ROUND).to(tl.int32, bitcast=True) - _ROUND_BITS",
        "tl.floor(product + 0.5).to(tl.int32)",
    ),
    "the product is cut": ("(product + _ROUND).to(tl.int32, bitcast=True) - _ROUND_BITS", "product.to(tl.int32)"),
    "Inf is a number": ("most >= _INF_BITS", "most > _INF_BITS"),
    "tiny groups have a scale": ("most < _ZERO_BELOW_BITS", "most == 0"),
    "the threshold is one float higher": ("most < _ZERO_BELOW_BITS", "most <= _ZERO_BELOW_BITS"),
    "codes of a broken group are not zero": ("word = tl.where(none, 0, ", "word = tl.where(most < _ZERO_BELOW_BITS, 0, "),
    "the sum of a broken group is NaN": ("tl.where(none, 0.0, scale * thirty_two.to(tl.float32))", "scale * thirty_two.to(tl.float32)"),
    "sums of a broken group are not zero": ("sixteen = tl.where(none, 0, ", "sixteen = tl.where(most == 0, 0, "),
    "a column too many is read": ("mask=columns < k,", "mask=columns <= k,"),
    "blocks that are not there have scales": ("once = inside & (c == 0)", "once = (block <= blocks) & (c == 0)"),
    "rows are taken as packed": ("x.stride(0) if x.shape[0] > 1 else 0", "k"),
    "a token has another's place": ("(token & 7).to(tl.int32)", "(token & 3).to(tl.int32)"),
    "sums of 16 stand in another order": ("(u & 3) * 2 + p)", "(u & 3) + 4 * p)"),
    "words stand in the order of columns": ("(u & 1) * 2 + p)", "(u & 1) + 2 * p)"),
    "the normalised x is not rounded": ("weight).to(tile.dtype)", "weight)"),
    "the normalised x is rounded before its weight": (
        "(value * tl.rsqrt(mean + eps) * weight)",
        "((value * tl.rsqrt(mean + eps)).to(tile.dtype).to(tl.float32) * weight)",
    ),
    "the norm has no eps": ("mean + eps", "mean"),
    "the norm is that of a program's own columns": ("first + start, k, WHOLE", "columns, k, WHOLE"),
    "zeros behind the end are normalised": ("tl.where(columns < k, normed, tile)", "normed"),
}


def changed(folder: Path, *texts: tuple[str, str]):
    """The module with pieces of text replaced, each (old, new)."""
    text = Path(act_quant.__file__).read_text()
    for old, new in texts:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in it"
        text = text.replace(old, new)
    path = folder / f"changed_{abs(hash(texts))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _few(norm: bool) -> list[Case]:
    """Enough to notice every mutant that is, or is not, about the norm; the smallest first."""
    found = [case for case in cases() if norm == bool(case.norm) and (case.rows != "normal" or case.stride >= 0)]
    return sorted(found, key=lambda case: case.m * case.k)


def main() -> None:
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    (what,) = sys.argv[1:]
    assert interpreter.on() == (what != "cuda")
    if interpreter.on():
        interpreter.mend()
    if what in ("kernel", "cuda"):
        found = {str(case): wrong(case, device="cuda" if what == "cuda" else "cpu") for case in cases()}
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = {name: _noticed(changed(Path(folder), texts), "normalised" in name or "the norm" in name) for name, texts in MUTANTS.items()}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


def _noticed(module, norm: bool) -> str:
    """The first case that a mutant gets wrong, and how; empty where none is."""
    return next((f"{case}: {text}" for case in _few(norm) if (text := wrong(case, module))), "")


if __name__ == "__main__":
    main()
