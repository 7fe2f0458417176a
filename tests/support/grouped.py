"""Rows of experts in Triton's interpreter against the kernel of one expert, bit for bit: `python -m support.grouped WHAT`, in tests/.

kernel: every case; mutants: wrong kernels. Triton reads TRITON_INTERPRET when it is imported, so this is a process of its own. It writes a JSON
object: of every case what is wrong, of every mutant what was noticed.
"""

import importlib.util
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from lanewise.arch import TARGETS
from lanewise.formats import get
from lanewise.kernels.gpu import act_quant, grouped, quant_gemv
from lanewise.kernels.gpu.quant_config import QuantConfig
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack
from lanewise.oracle import quant_linear, quant_linear_bound
from lanewise.prove import interpreter
from lanewise.prove.memory import Guarded

ARCH = TARGETS["sm_90"]
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
FAR = 1 << 30  # an expert that no process has memory for


@dataclass(frozen=True)
class Case:
    """ids[tokens][top_k]; n rows of w (gated: of each half); own: x has a row for each pair; weights: their type; step: between ids in memory."""

    format: str
    k: int
    ids: tuple[tuple[int, ...], ...]
    n: int = 16
    experts: int = 3
    body: str = "tiles"
    ordered: bool = False
    own: bool = False
    gated: bool = False
    weights: str = ""
    dtype: str = "bf16"
    out: str = "bf16"
    warps: int = 2
    ahead: int = 2
    step: int = 1
    long: bool = False
    looped: bool = False  # as a long k, whose tiles are not written out

    def __str__(self) -> str:
        shown = [f"{name}={value}" for name, value in vars(self).items() if value != Case.__dataclass_fields__[name].default]
        return " ".join(shown)


TWICE = ((0, 2), (2, 2), (-1, FAR), (3, 0))  # an expert twice, one of nobody, and ids that are no expert's
MANY = ((1,), *((0,),) * 9, (5,), (1,))  # more rows of an expert than an octet has


def cases() -> Iterator[Case]:
    for ordered in (False, True):
        yield Case("Q4_K", 256, TWICE, gated=True, n=8, weights="f32", ordered=ordered, step=2)
        yield Case("Q8_0", 288, TWICE, own=True, out="f32", weights="bf16", body="dots", ordered=ordered, long=True)
    yield Case("Q6_K", 768, ((1, 0),), out="f32", dtype="f32", warps=2, ahead=8)
    for looped in (False, True):
        yield Case("Q6_K", 2304, ((1,),), out="f32", dtype="f16", warps=4, ahead=2, ordered=True, looped=looped)
    yield Case("Q4_0", 64, MANY, ordered=True, weights="bf16")
    yield Case("IQ4_XS", 256, ((2, 1),), body="dots", gated=True, n=9, weights="bf16")
    yield Case("Q4_K", 256, TWICE, experts=0)


def data(case: Case) -> tuple[np.ndarray, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(raw uint8[experts, rows, bytes], x, ids, weights)."""
    rng, form = np.random.default_rng(7), get(case.format)
    rows, (tokens, top) = case.n * (1 + case.gated), np.shape(case.ids)
    raw = np.zeros((case.experts, rows, form.row_bytes(case.k)), np.uint8)
    for one in raw:
        one[:] = form.quantize(rng.standard_normal((rows, case.k), np.float32))
    x = torch.from_numpy(rng.standard_normal((tokens, top, case.k) if case.own else (tokens, case.k), np.float32)).to(TYPES[case.dtype])
    ids = torch.zeros(tokens, top * case.step, dtype=torch.int64 if case.long else torch.int32)[:, :: case.step]
    ids.copy_(torch.tensor(case.ids))
    weights = torch.from_numpy(rng.uniform(0, 1, (top, tokens)).astype(np.float32)).to(TYPES[case.weights]).t() if case.weights else None
    return raw, x, ids, weights


def wrong(case: Case, module=grouped) -> str:
    """What is wrong with what a module makes of a case; empty where nothing is."""
    raw, x, ids, weights = data(case)
    w = pack(torch.from_numpy(raw), case.format, case.gated)
    # behind the experts in memory lies what would pass for another
    w = QuantWeight(w.format, w.n, w.k, w.gated, torch.cat((w.tiles, w.tiles[:1]))[: case.experts])
    config = QuantConfig(case.body, case.warps, case.ahead, 8 if case.body == "tiles" else 4)
    with guarded(module, act_quant) as made, looped(module, case.looped):
        y = module.grouped(x, w, ids, weights, out=TYPES[case.out], constant_w=False, ids_ready=False, ordered=case.ordered, config=config, arch=ARCH)
        found = [text for one in made for text in (one.overrun(),) if text]
    if y.shape != (*ids.shape, case.n) or y.dtype != TYPES[case.out]:
        return f"y is {y.dtype}{list(y.shape)}"
    want = expected(case, raw, x, ids, weights, config)
    differ = ~((y == want) | y.isnan() & want.isnan())
    if differ.any():
        found.append(f"{int(differ.sum())} of {y.numel()} elements differ, at first {torch.nonzero(differ)[0].tolist()}")
    if not case.gated and not case.weights and case.dtype == case.out:
        found += _beyond_the_bound(case, raw, x, y)
    return "; ".join(found)


def expected(case: Case, raw: np.ndarray, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor | None, config: QuantConfig) -> torch.Tensor:
    """The unfused chain, whose products are those of `quant_gemv` for one expert: gate, SiLU, their product and the weight round one by one."""
    flat, out = x.reshape(-1, case.k), TYPES[case.out]
    y = torch.full((*ids.shape, case.n), torch.nan, dtype=out)
    for e in {int(e) for e in ids.flatten()} & set(range(case.experts)):
        a = act_quant.act_quant(flat, get(case.format).activation, arch=ARCH)
        halves = np.split(raw[e], 2) if case.gated else (raw[e],)
        each = [
            quant_gemv.quant_gemv(a, pack(torch.from_numpy(half), case.format), out=out, constant_w=False, config=config, arch=ARCH)
            for half in halves
        ]
        rows = functional.silu(each[0]) * each[1] if case.gated else each[0]
        rows = rows.reshape(*ids.shape, case.n) if case.own else rows[:, None].expand(*ids.shape, case.n)
        y = torch.where((ids == e)[..., None], rows, y)
    return y if weights is None else (y.float() * weights[..., None].float()).to(out)


def _beyond_the_bound(case: Case, raw: np.ndarray, x: torch.Tensor, y: torch.Tensor) -> Iterator[str]:
    """Where y is further from the integer oracle than its bound."""
    for token, row in enumerate(case.ids):
        for slot, e in enumerate(row):
            if not 0 <= e < case.experts:
                continue
            given = x[token : token + 1].float().numpy(), raw[e], case.format
            off = np.abs(quant_linear(*given, integer=True) - y[token, slot].double().numpy())
            if not (off <= quant_linear_bound(*given, integer=True, out=case.out)).all():
                yield f"y[{token},{slot}] is outside its bound"


@contextmanager
def guarded(*modules) -> Iterator[list[Guarded]]:
    """What these modules make lies between guard bands, and is NaN until it is written."""
    made: list[Guarded] = []

    def new(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        poisoned = torch.float32 if dtype is torch.int32 else dtype
        made.append(Guarded(shape, [int(np.prod(shape[i + 1 :])) for i in range(len(shape))], poisoned, device))
        return made[-1].tensor.view(dtype)

    before = [module._new for module in modules]
    for module in modules:
        module._new = new
    try:
        yield made
    finally:
        for module, was in zip(modules, before, strict=True):
            module._new = was


@contextmanager
def looped(module, wanted: bool) -> Iterator[None]:
    """Tiles in a loop, however few they are."""
    before, module._UNROLLED = module._UNROLLED, 0 if wanted else module._UNROLLED
    try:
        yield
    finally:
        module._UNROLLED = before


def rows_taken() -> str:
    """What is wrong with act_quant of chosen rows: places that have one are as if x were those rows, and nothing is written to the others."""
    x = torch.randn(3, 288).bfloat16()
    rows = torch.tensor([2, -1, 0, 2, -1, -1, -1, 1, 1], dtype=torch.int32)
    there = rows >= 0
    for norm in (None, torch.rand(288)):
        with guarded(act_quant):
            got = act_quant.act_quant(x, "q8_0", rows=rows, norm=norm, arch=ARCH)
        want = act_quant.act_quant(x[rows.long().clamp(0)], "q8_0", norm=norm, arch=ARCH)
        poison = Guarded((1,), (1,), torch.float32, torch.device("cpu")).tensor.view(torch.int32)
        for one, other, axis in ((got.q, want.q, 3), (got.d, want.d, 3), (got.sums, want.sums, 3)):
            one, other = (t.view(torch.int32).movedim(axis, 1).flatten(0, 1)[: len(rows)] for t in (one, other))
            if not torch.equal(one[there], other[there]):
                return "a row has other bits"
            if not bool((one[~there] == poison).all()):
                return "a place without a row was written"
    return ""


OWN = Case("Q8_0", 32, ((0, 3), (1, 0)), own=True, body="dots", n=1, weights="f32", out="f32", step=2, warps=1, ahead=1)
SHARED = replace(OWN, body="tiles", own=False)
ORDERED = replace(SHARED, ordered=True)
# Each is wrong in one way: a text of the module, what stands in its place, and the case that notices.
MUTANTS = {
    "a row goes to the next expert": ("tl.where(known, expert, 0)", "tl.where(known, (expert + 1) % experts, 0)", OWN),
    "there is an expert more": ("(expert >= 0) & (expert < experts)", "(expert >= 0) & (expert <= experts)", OWN),
    "ids that are no expert's are the last's": ("(expert >= 0) & (expert < experts)", "(expert >= 0) & (expert <= experts)", ORDERED),
    "rows that are no expert's are numbers": ("rows = tl.where(known, ", "rows = tl.where(True, ", OWN),
    "all tokens of an octet are stored": ("there = first + r == row % 8", "there = first + r >= row % 8", SHARED),
    "every pair has its token's row": ("row = unit if OWN else unit // top", "row = unit // top", OWN),
    "a pair's weight is its token's first": ("pair % top * weights_col", "pair % top * 0", OWN),
    "ids stand side by side": ("(unit % top).to(tl.int64) * ids_col", "(unit % top).to(tl.int64)", OWN),
    "every octet has the first one's pairs": ("places + octet.to(tl.int64) * 8 + first + r).to", "places + first + r).to", ORDERED),
}


def changed(folder: Path, old: str, new: str):
    """The module with a piece of its text replaced."""
    text = Path(grouped.__file__).read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in it"
    text = text.replace(old, new)
    path = folder / f"changed_{abs(hash((old, new)))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    (what,) = sys.argv[1:]
    assert interpreter.on()
    interpreter.mend()
    if what == "kernel":
        found = {str(case): wrong(case) for case in cases()} | {"rows": rows_taken()}
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = {name: wrong(case, changed(Path(folder), *texts)) for name, (*texts, case) in MUTANTS.items()}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
