"""Every kernel of quantized weights, compiled for every target without a GPU, and what its machine code must hold.

That a kernel compiles says nothing about its numbers; those are proven in Triton's interpreter and on cards (`lanewise.prove`).
"""

import functools
import os
import re
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from support.gpu_launch import Code
from support.quant_launch import Case, changed, multiplied, unpacked

from lanewise import dispatch
from lanewise.arch import TARGETS
from lanewise.contract import Problem
from lanewise.kernels.gpu import quant_gemv
from lanewise.kernels.gpu.laid_out import laid_out
from lanewise.kernels.gpu.quant_config import QuantConfig
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_threads import THREADS

GPUS = [row for row in TARGETS.values() if row.is_gpu]
ROWS = [row for row in GPUS if row.triton]
EVERY = [TARGETS[name] for name in ("gfx1100", "gfx942", "sm_90")]  # of these every format
FAMILIES = list({(row.vendor, row.dot4, row.wave, row.mma16, row.pdl): row for row in (*ROWS, *EVERY)}.values())  # a row of each kind of kernel
WORD_DOTS = 32  # a lane's words of a tile, eight units of four
LANE_BYTES = 512  # of the sums of a warp's 32 lanes, for one token (eight of a matrix unit's)

PLAIN, HALVES, FLOATS = Case("Q4_K", 1), Case("Q6_K", 1), Case("Q8_0", 1)
RAGGED = Case("Q4_K", 2, 1000, 2304, fused=True)  # two tiles a strand, blocks and rows that are not there
TIGHT = Case("Q2_K", 4, 1000, 2304)  # what takes the most registers of lanes
MANY = [Case("Q4_K", 8), Case("Q6_K", 32, 1000, 2304)]


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """Triton's cache of this run of the tests; workers share it."""
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "triton"))
        yield


def cases(row):
    found = [PLAIN]
    if row in FAMILIES:
        found += [HALVES, FLOATS, RAGGED]
    if row in EVERY:
        found += [Case(fmt, 1) for fmt in LAYOUTS if fmt not in {case.format for case in found}]
        found += MANY if row.mma16 else [TIGHT] if row.wave == 32 else []  # wave64 has twice the registers
    return found


def kernel(row, case):
    """Which one a case takes."""
    return "_tiles" if not row.mma16 else "one" if case.m == 1 and not case.layout.scale.startswith("half") else "octets"


@functools.cache
def built(row):
    made = {case: multiplied(row, case) for case in cases(row)}
    assert all([code.name for code in codes] == [kernel(row, case)] for case, codes in made.items())
    return {case: code for case, (code,) in made.items()}


def wrong(row, what):
    """What is wrong with each case of a target."""
    return {str(case): found for case, code in built(row).items() if (found := what(case, code))}


def narrow(case: Case, code: Code) -> str:
    """What is wrong with how quants and scales are read, and by lanes x: 16 bytes a load, and no more than what cannot be is read otherwise."""
    if code.row.mma16:
        return streamed(case, code)
    loads, (loaded, used), tokens = code.loads(), case.tiles(code.row), case.config(code.row).tokens
    wanted, others = loaded * case.vectors + used * 4 * tokens, 10 * used * tokens + loaded
    # behind the sums come bias and residual; what PTX reads twice, ptxas does not
    few = case.fused or code.row.vendor == "nvidia" or len(loads) <= wanted + others
    return "" if sum(loads) == wanted and few else f"{sum(loads)} of {len(loads)} loads are wide, for {wanted} and {others} others"


def streamed(case: Case, code: Code) -> str:
    """The same of what the matrix unit takes: a tile's words past the cache of x, and of one token the words of a lane's own scales."""
    layout, octets, alone = case.layout, case.config(code.row).tokens // 8, code.name == "one"
    tiles = -(-case.k // 256 // case.config(code.row).warps)
    wanted = tiles * (layout.quants + layout.high + layout.scales * (not alone))
    others = tiles * (2 * layout.scales + 6) if alone else tiles * (layout.tail // 8 + 16 * octets)
    loads = re.findall(r"\bld\.global([\w.:]*) ", code.text)
    found = sum(one == ".L1::no_allocate.v4.b32" for one in loads)
    few = case.fused or len(loads) <= wanted + others
    return "" if found == wanted and few else f"{found} of {len(loads)} loads are wide, for {wanted} and {others} others"


def misdotted(case: Case, code: Code) -> str:
    """What is wrong with how bytes are multiplied: each word of a tile once a token, and nothing but scales and minima beside it."""
    row, config, (_, used) = code.row, case.config(code.row), case.tiles(code.row)
    if row.mma16:
        # of one token two groups of 16 are two columns of the unit
        shape, dots = ("m16n8k16", 16) if case.layout.group == 16 and code.name != "one" else ("m16n8k32", 8)
        found, wanted = code.count(rf"mma\.sync\.aligned\.{shape}\.row\.col\.s32\.s8\.s8\.s32"), dots * used * config.tokens // 8
        return "" if (found, code.text.count("mma.sync")) == (wanted, wanted) else f"{found} mma, for {wanted}"
    name = row.dot4 or "v_dot4"
    found, wanted = code.count(rf"(@\S+ )?{name}\b"), WORD_DOTS * used * config.tokens * (row.dot4 is not None)
    unsigned = "_iu8" in name and code.text.count("neg_lo:[1,1,0]") != found
    if (found, code.text.count("v_dot4"), unsigned) != (wanted, wanted * (row.vendor == "amd"), False):
        return f"{found} dots, for {wanted}" + ", and some are unsigned" * unsigned
    if row.vendor == "nvidia" or row.dot4 is None:
        return ""
    scaled = {"bytes": 32, "bytes+min": 36, "nibbles+min": 40}.get(case.layout.scale, 0) * used * config.tokens
    fast = len(re.findall(r"\bv_(?:mul|mad)_[iu]32_[iu]24", code.text))
    slow = len(re.findall(r"\bv_(?:mul_lo|mul_hi|mad_u64|mad_i64)_\w+", code.text))
    return "" if abs(fast - scaled) <= 16 and slow <= 8 else f"{fast} multiplications of 24 bits, for {scaled}, and {slow} of 32"


def unwaited(case: Case, code: Code) -> str:
    """What is wrong with what stands behind dots; empty where nothing is."""
    groups = [group for group in code.groups() if any(one.startswith("v_dot4") for one in group)]
    if sum(one.startswith("v_dot4") for group in groups for one in group) != code.count("v_dot4"):
        return "a dot outside of a group"
    return "" if all(group[-1] == "s_nop" for group in groups) else "a group of dots that nothing waits for"


def shared(case: Case, code: Code) -> str:
    """What passes between lanes before everything is multiplied, and memory beyond that of the last sums."""
    config = case.config(code.row)
    before, _, _ = code.text.rpartition("v_dot4" if code.row.vendor == "amd" else "mma.sync" if code.row.mma16 else "dp4a")
    early = re.findall(r"\bds_\w+|\bv_permlane|_dpp\b|\b(?:st|ld)\.shared|\bshfl\.", before)
    return "" if code.shared <= LANE_BYTES * config.warps and not early else f"{code.shared} bytes, {len(early)} early"


def before_the_wait(code: Code) -> set[int | None]:
    """Loads from memory in front of the wait for the kernel before, by PTX and by machine code; None where there is not one wait and one release."""
    found = set()
    for text, wait, release, load in (
        (code.text, "griddepcontrol.wait", "griddepcontrol.launch_dependents", "ld.global"),
        (code.machine(), "ACQBULK", "PREEXIT", " LDG."),
    ):
        if text:
            once = text.count(wait) == text.count(release) == 1
            before, _, behind = text.partition(wait)
            found.add(before.count(load) if once and load in behind else None)
    return found


@pytest.mark.parametrize("row", GPUS, ids=str)
def test_dispatch_accepts_exactly_the_targets_that_the_kernel_compiles_for(row):
    problem = Problem("quant_linear", row, 1, 4096, 2048, "bf16", format="Q4_K", torch=True)
    verdicts = {v.kernel.name: v for v in dispatch.explain(problem)}
    assert (verdicts["quant_gemv"].chosen, verdicts["quant_gemm"].refusal is None) == (row.triton, row.triton)
    if not row.triton:
        for call in (multiplied, unpacked):
            with pytest.raises(RuntimeError, match=r"PassManager|target|arch"):
                call(row, PLAIN)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_nothing_spills_and_only_the_last_sums_pass_through_shared_memory(row):
    assert (wrong(row, lambda case, code: code.spilled()), wrong(row, shared)) == ({}, {})


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_quants_and_scales_are_read_16_bytes_a_lane(row):
    assert wrong(row, narrow) == {}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_each_word_is_multiplied_once_a_token_by_the_target_s_own_instruction(row):
    assert wrong(row, misdotted) == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row.dot4 and row.vendor == "amd" and row.wave == quant_gemv._WAITING_WAVE], ids=str)
def test_where_a_dot_must_be_waited_for_every_group_of_dots_ends_in_a_wait(row):
    assert wrong(row, unwaited) == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row.mma16], ids=str)
def test_tiles_lie_as_the_matrix_unit_s_assembly_expects(row):
    assert all(laid_out(code.ttgir, THREADS) for code in built(row).values())


@pytest.mark.parametrize("row", [row for row in ROWS if row.vendor == "nvidia"], ids=str)
def test_every_kernel_waits_for_the_one_before_exactly_where_kernels_may_start_early(row):
    codes = [*built(row).values()]
    if row in FAMILIES:
        codes += [unpacked(row, PLAIN), *multiplied(row, PLAIN, config=QuantConfig("tiles" if row.mma16 else "dots", 4, 1, 8, 2))]
        assert [code.name for code in codes[-2:]] == ["one" if row.mma16 else "_tiles", "_combine"]
    for code in codes:
        found = tuple(code.count(rf"griddepcontrol\.{what}") for what in ("launch_dependents", "wait"))
        assert (code.late, found) == (row.pdl, (1, 1) if row.pdl else (0, 0)), code.name
    if row.pdl and row in FAMILIES:
        assert [before_the_wait(codes[i]) for i in (-3, -1)] == [{0}, {0}]


@pytest.mark.parametrize("row", [row for row in ROWS if row.pdl], ids=str)
def test_only_a_constant_w_is_read_before_the_wait(row):
    for case in (PLAIN, HALVES) if row in FAMILIES else (PLAIN,):
        code = built(row)[case]
        held = min(case.config(row).ahead, case.tiles(row)[0])
        layout = case.layout
        each = layout.quants + layout.high + 2 * layout.scales + 1  # of a tile: its vectors, and the words of a lane's rows
        assert before_the_wait(code) == {held * each}, str(case)
    if row in FAMILIES:
        (late,) = multiplied(row, PLAIN, constant_w=False)
        assert before_the_wait(late) == {0}


@pytest.mark.parametrize("row", FAMILIES, ids=str)
def test_weights_are_unpacked_without_a_detour(row):
    for case in (PLAIN, *([Case("IQ4_NL", 1, 1000, 2080)] if row in EVERY else [])):
        code = unpacked(row, case)
        assert (code.spilled(), code.shared, sum(code.loads())) == ({}, 0, case.vectors), str(case)


def replaced(folder, target, name, old, new, case=PLAIN, **more):
    (code,) = multiplied(TARGETS[target], case, module=changed(folder, name, old, new), **more)
    return code


QUANTS = "w_at + (v * 128 + lane * 4 + element)"
WIDE = "held = held + four(at[0] + (BLOCK * RECORD + v * 128), inside, WHOLE, False, DOT)"
FOUR = "held = held + (word(at[0] + (BLOCK * RECORD + v * 128), inside, WHOLE),) * 4"


@pytest.mark.parametrize(
    ("target", "name", "old", "new"),
    [("gfx1100", "quant_codes", QUANTS, QUANTS.replace("element", "(3 - element)")), ("sm_90", "quant_one", WIDE, FOUR)],
)
def test_narrow_loads_are_noticed(tmp_path, target, name, old, new):
    assert narrow(PLAIN, replaced(tmp_path, target, name, old, new))


@pytest.mark.parametrize(
    ("name", "target", "old", "new", "words"),
    [
        ("quant_dots", "gfx1100", "0 neg_lo:[1,1,0]", "0", "32 dots, for 32, and some are unsigned"),
        ("quant_gemv", "gfx942", "if arch.dot4 is None:", "if True:", "0 dots, for 32"),
        ("quant_gemv", "sm_75", "if arch.dot4 is None:", "if True:", "0 dots, for 32"),
        ("quant_dots", "gfx1030", 'if DOT != "dp4a":', 'if DOT == "":', "multiplications of 24 bits, for 36, and"),
        (
            "quant_one",
            "sm_80",
            "            first = _added(first, low, tl.where(g == 2 * i,",
            "            if i > 0:\n                first = _added(first, low, tl.where(g == 2 * i,",
            " mma, for 8",
        ),
    ],
)
def test_bytes_that_are_multiplied_otherwise_are_noticed(tmp_path, name, target, old, new, words):
    code = replaced(tmp_path, target, name, old, new)
    assert words in misdotted(PLAIN, code)


def test_a_dot_that_nothing_waits_for_is_noticed(tmp_path):
    assert unwaited(PLAIN, replaced(tmp_path, "gfx942", "quant_dots", r", 0\ns_nop 2", ", 0")) == "a group of dots that nothing waits for"


@pytest.mark.parametrize(
    ("target", "name", "old", "new"),
    [
        ("gfx1100", "quant_dots", "_loaded(x_at + 128 * i, inside, WHOLE)", "tl.flip(_loaded(x_at + 128 * i, inside, WHOLE), 0)"),
        ("sm_90", "quant_one", "(word(at[1] + BLOCK * 8, inside, WHOLE),)", "(tl.flip(word(at[1] + BLOCK * 8, inside, WHOLE), 0),)"),
    ],
)
def test_what_passes_between_lanes_before_the_last_sums_is_noticed(tmp_path, target, name, old, new):
    assert "early" in shared(PLAIN, replaced(tmp_path, target, name, old, new))


def test_tiles_that_lie_otherwise_are_noticed():
    (code,), (dots,) = multiplied(TARGETS["sm_80"], PLAIN), multiplied(TARGETS["sm_75"], PLAIN)
    other = code.ttgir.replace("sizePerThread = [1], ", "sizePerThread = [2], ")
    found = [laid_out(text, THREADS) for text in (code.ttgir, other, dots.ttgir)]
    assert found == [True, False, False]  # nothing of dots is for the matrix unit


def test_w_that_is_read_before_the_wait_without_a_promise_is_noticed(tmp_path):
    code = replaced(tmp_path, "sm_90", "quant_gemv", '"EARLY": pdl and constant_w', '"EARLY": pdl', constant_w=False)
    assert code.machine()
    assert before_the_wait(code).isdisjoint({0, None})


def test_x_that_is_read_before_the_wait_is_noticed(tmp_path):
    late = "    if PDL and EARLY:\n        gdc_wait()\n"
    code = replaced(
        tmp_path, "sm_90", "quant_one", late, "    early = tl.load(xd)\n" + late + "    held = held[:-1] + (held[-1] + early.to(tl.int32),)\n"
    )
    assert before_the_wait(code) == {early + 1 for early in before_the_wait(built(TARGETS["sm_90"])[PLAIN])}


def test_several_tokens_whose_loads_all_come_first_spill_which_is_noticed(tmp_path):
    code = replaced(tmp_path, "gfx1100", "quant_gemv", "if PARTS > 1:", "if PARTS > 9:", TIGHT)
    assert code.spilled()


@pytest.mark.parametrize("case", [Case("Q4_1", 5, 40, 512, fused=True), Case("Q4_K", 1, 40, 512, fused=True)], ids=str)
def test_a_gate_s_product_is_rounded_before_the_residual_is_added(case):
    """bfloat16 has products and sums of its own there, and one that rounds once for both."""
    (code,) = multiplied(TARGETS["sm_90"], case)
    assert (code.count(r"fma\.rn\.bf16"), code.count(r"cvt\.rn\.bf16") > 0) == (0, True)


WARPS = [QuantConfig("tiles", 8, 2, 32), QuantConfig("tiles", 4, 3, 16), QuantConfig("tiles", 8, 2, 8, registers=128)]


def of_more_than_two(code: Code) -> list[str]:
    """Sums of floats over more than two elements: in which order they are added, a layout decides."""
    return [shape for shape in re.findall(r"\}\) : \(tensor<([0-9x]+)xf32,", code.ttgir) if not shape.startswith("2x")]


@pytest.mark.parametrize("config", WARPS, ids=str)
@pytest.mark.parametrize("case", [Case("Q8_0", 512, 40, 2048, fused=True), Case("Q4_K", 1, 40, 2048)], ids=str)
def test_warps_are_added_two_at_a_time_so_that_no_layout_decides_in_which_order(case, config):
    (code,) = multiplied(TARGETS["sm_90"], case, config=config)
    assert (len(re.findall(r"\}\) : \(tensor<2x", code.ttgir)) > 0, of_more_than_two(code)) == (True, [])


def test_a_sum_over_eight_warps_at_once_is_noticed(tmp_path):
    whole = "    return tl.reshape(tl.sum(tl.reshape(total, (W, REST)), 0), (REST,))\n"
    text = (Path(quant_gemv.__file__).parent / "quant_threads.py").read_text()
    old = text[
        text.index("    if W == 8:\n") : text.index("    return tl.reshape(total, (REST,))\n") + len("    return tl.reshape(total, (REST,))\n")
    ]
    code = replaced(tmp_path, "sm_90", "quant_threads", old, whole, config=WARPS[2])
    assert of_more_than_two(code)
