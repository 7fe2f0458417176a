"""The matrix units on small integers, held in registers as AMD's layouts say, written here as loops: whatever rounds, these products are exact."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from lanewise.arch import TARGETS
from lanewise.emulator import matrix as unit
from lanewise.errors import EmulatorLimitError

WAVES = 2
# name, targets, (m, k, blocks), bits of an element
MFMA = [
    ("v_mfma_f32_16x16x16f16", "gfx908", 16, 16, 1, "f16"),
    ("v_mfma_f32_32x32x8f16", "gfx90a", 32, 8, 1, "f16"),
    ("v_mfma_f32_16x16x16_f16", "gfx942", 16, 16, 1, "f16"),
    ("v_mfma_f32_32x32x8_f16", "gfx942", 32, 8, 1, "f16"),
    ("v_mfma_f32_16x16x32_f16", "gfx950", 16, 32, 1, "f16"),
    ("v_mfma_f32_32x32x16_f16", "gfx950", 32, 16, 1, "f16"),
    ("v_mfma_f32_4x4x4_16b_f16", "gfx942", 4, 4, 16, "f16"),
    ("v_mfma_f32_32x32x4_2b_f16", "gfx942", 32, 4, 2, "f16"),
    ("v_mfma_f32_16x16x4_4b_f16", "gfx942", 16, 4, 4, "f16"),
    ("v_mfma_f32_16x16x8bf16", "gfx908", 16, 8, 1, "bf16"),
    ("v_mfma_f32_32x32x4bf16", "gfx908", 32, 4, 1, "bf16"),
    ("v_mfma_f32_16x16x16bf16_1k", "gfx90a", 16, 16, 1, "bf16"),
    ("v_mfma_f32_32x32x8bf16_1k", "gfx90a", 32, 8, 1, "bf16"),
    ("v_mfma_f32_16x16x32_bf16", "gfx950", 16, 32, 1, "bf16"),
    ("v_mfma_f32_16x16x4f32", "gfx90a", 16, 4, 1, "f32"),
    ("v_mfma_f32_32x32x2_f32", "gfx942", 32, 2, 1, "f32"),
    ("v_mfma_f32_16x16x8_xf32", "gfx942", 16, 8, 1, "f32"),
    ("v_mfma_i32_16x16x16i8", "gfx908", 16, 16, 1, "i8"),
    ("v_mfma_i32_32x32x8i8", "gfx908", 32, 8, 1, "i8"),
    ("v_mfma_i32_16x16x32_i8", "gfx942", 16, 32, 1, "i8"),
    ("v_mfma_i32_32x32x16_i8", "gfx942", 32, 16, 1, "i8"),
    ("v_mfma_i32_16x16x64_i8", "gfx950", 16, 64, 1, "i8"),
    ("v_mfma_i32_32x32x32_i8", "gfx950", 32, 32, 1, "i8"),
]
WMMA = [
    (f"v_wmma_{result}_16x16x16_{kind}", target, 16, 16, 1, kind)
    for target in ("gfx1100", "gfx1151", "gfx1200", "gfx1201")
    for result, kind in (("f32", "f16"), ("f32", "bf16"), ("i32", "iu8"), ("i32", "iu4"))
] + [("v_wmma_i32_16x16x32_iu4", "gfx1200", 16, 32, 1, "iu4")]  # fmt: skip
CASES = [pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in MFMA + WMMA]
BITS = {"f16": 16, "bf16": 16, "f32": 32, "i8": 8, "iu8": 8, "iu4": 4}


def place_in(target, lane, element, m, k, blocks):
    """(block, row, k) of an element that a lane holds of a, or of b with a column for the row."""
    if target.startswith("gfx11"):
        return 0, lane % 16, element
    if target.startswith("gfx12"):
        return 0, lane % 16, k // 2 * (lane // 16) + element
    slices = 64 // m // blocks
    return lane // (m * slices), lane % m, lane // m % slices * (k // slices) + element


def place_out(target, lane, register, m, blocks):
    """(block, row, column) of a result."""
    if target.startswith("gfx11"):
        return 0, 2 * register + lane // 16, lane % 16
    if target.startswith("gfx12"):
        return 0, register + 8 * (lane // 16), lane % 16
    if m == 4:
        return lane // 4, register, lane % 4
    if m == 16:
        return register // 4, 4 * (lane // 16) + register % 4, lane % 16
    return register // 16, 4 * (lane // 32) + register % 4 + 8 * (register % 16 // 4), lane % 32


def encoded(value, kind):
    if kind == "f16":
        return int(np.float16(value).view(np.uint16))
    if kind in ("f32", "bf16"):
        return int(np.float32(value).view(np.uint32)) >> (16 if kind == "bf16" else 0)
    return int(value) & (1 << BITS[kind]) - 1


def registers(matrix, target, m, k, blocks, kind, lanes):
    """uint32 [registers, waves, lanes] of matrix[waves, blocks, m, k]."""
    held = k if target.startswith("gfx11") else k // 2 if target.startswith("gfx12") else k * m * blocks // 64
    each = 32 // BITS[kind]
    found = np.zeros((held // each, WAVES, lanes), np.uint32)
    for wave in range(WAVES):
        for lane in range(lanes):
            for element in range(held):
                block, row, column = place_in(target, lane, element, m, k, blocks)
                value = encoded(matrix[wave, block, row, column], kind)
                found[element // each, wave, lane] |= np.uint32(value << BITS[kind] * (element % each))
    return found


def product(name, target, m, k, blocks, kind, signed=(True, True), low=-4):
    """What is wrong with d = a @ b + c of integers from `low` on; empty where nothing is."""
    row, rng = TARGETS[target], np.random.default_rng(5)
    lanes, whole = row.wave, "_i32_" in name
    a, b = (rng.integers(low if sign else 0, 5 + 3 * (not sign), (WAVES, blocks, m, k)) for sign in signed)
    c = rng.integers(-9, 9, (WAVES, blocks, m, m))
    count = 8 if lanes == 32 else m * m * blocks // 64
    wanted, addend = (np.zeros((count, WAVES, lanes), np.int64) for _ in range(2))
    exact = a @ b.swapaxes(-1, -2) + c
    for register in range(count):
        for lane in range(lanes):
            block, i, j = place_out(target, lane, register, m, blocks)
            wanted[register, :, lane], addend[register, :, lane] = exact[:, block, i, j], c[:, block, i, j]
    dtype = np.int32 if whole else np.float32
    given = [registers(one, target, m, k, blocks, kind, lanes) for one in (a, b)]
    more = {"negative": ([*signed, False], [False] * 3)} if kind.startswith("iu") else {}
    found = unit.matrix(name, row)(*given, addend.astype(dtype).view(np.uint32), **more).view(dtype)
    return "" if (found == wanted).all() else f"{int((found != wanted).sum())} of {wanted.size}"


@pytest.mark.parametrize(("name", "target", "m", "k", "blocks", "kind"), CASES)
def test_products_of_integers_are_exact_where_amds_layout_has_them(name, target, m, k, blocks, kind):
    assert product(name, target, m, k, blocks, kind) == ""


@pytest.mark.parametrize("signed", [(False, False), (True, False), (False, True)])
def test_bytes_are_signed_only_where_neg_lo_says_so(signed):
    assert product("v_wmma_i32_16x16x16_iu8", "gfx1100", 16, 16, 1, "iu8", signed) == ""
    assert product("v_wmma_i32_16x16x16_iu4", "gfx1200", 16, 16, 1, "iu4", signed) == ""


@pytest.mark.parametrize(("target", "other"), [("gfx1100", "gfx1200"), ("gfx1200", "gfx1100")])
def test_the_rows_of_the_other_generation_are_noticed(target, other, monkeypatch):
    name = "v_wmma_f32_16x16x16_f16"
    mine, its = (unit.shape(name, TARGETS[one]) for one in (target, other))
    monkeypatch.setattr(unit, "shape", lambda name, row: replace(mine, split=its.split, order=its.order))
    assert product(name, target, 16, 16, 1, "f16")


def test_known_places_of_a_result():
    """Of AMD's matrix instruction calculator: row and column of a register of a lane."""
    known = {
        ("v_mfma_f32_32x32x8_f16", "gfx942"): {(0, 0): (0, 0), (3, 5): (3, 5), (4, 5): (8, 5), (15, 63): (31, 31)},
        ("v_mfma_f32_16x16x16_f16", "gfx942"): {(2, 37): (10, 5)},
        ("v_wmma_f32_16x16x16_f16", "gfx1100"): {(3, 20): (7, 4)},
        ("v_wmma_f32_16x16x16_f16", "gfx1200"): {(3, 20): (11, 4)},
    }
    for (name, target), places in known.items():
        shape = unit.shape(name, TARGETS[target])
        assert {at: divmod(int(shape.places()[at]), shape.n) for at in places} == places


def test_denormals_of_16_bits_are_nothing_to_the_matrix_unit_of_mi200_alone():
    ones, small = np.full((2, 1, 64), 0x3C003C00, np.uint32), np.full((2, 1, 64), 0x00010001, np.uint32)
    none = np.zeros((4, 1, 64), np.uint32)
    found = {name: unit.matrix("v_mfma_f32_16x16x16f16", TARGETS[name])(ones, small, none).view(np.float32)[0, 0, 0] for name in ("gfx908", "gfx90a")}
    assert found == {"gfx908": 16 * 2.0**-24, "gfx90a": 0.0}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("v_mfma_f64_4x4x4_4b_f64", "gfx942"),
        ("v_smfmac_f32_16x16x32_f16", "gfx942"),
        ("v_wmma_f32_16x16x16_f16", "gfx942"),
        ("v_wmma_f16_16x16x16_f16", "gfx1100"),
        ("v_wmma_f32_16x16x32_f16", "gfx1250"),
    ],
)
def test_what_the_rule_does_not_cover_is_refused(name, target):
    with pytest.raises(EmulatorLimitError, match=name):
        unit.matrix(name, TARGETS[target])


@pytest.mark.parametrize(("name", "formats"), [("v_mfma_f32_16x16x128_f8f6f4", (0, 4)), ("v_mfma_f32_16x16x16_f16", (1, 0))])
def test_formats_that_have_no_rule_are_refused(name, formats):
    with pytest.raises(EmulatorLimitError, match="cbsz"):
        unit.matrix(name, TARGETS["gfx950"], formats)


@pytest.mark.parametrize(
    ("name", "target", "m", "k", "formats", "left", "right"),
    [
        ("v_wmma_f32_16x16x16_fp8_bf8", "gfx1200", 16, 16, (0, 0), torch.float8_e4m3fn, torch.float8_e5m2),
        ("v_mfma_f32_32x32x16_bf8_fp8", "gfx942", 32, 16, (0, 0), torch.float8_e5m2fnuz, torch.float8_e4m3fnuz),
        ("v_mfma_f32_16x16x32_fp8_fp8", "gfx950", 16, 32, (0, 0), torch.float8_e4m3fn, torch.float8_e4m3fn),
        ("v_mfma_f32_16x16x128_f8f6f4", "gfx950", 16, 128, (1, 0), torch.float8_e5m2, torch.float8_e4m3fn),
    ],
)
def test_products_of_floats_of_8_bits(name, target, m, k, formats, left, right):
    lanes, rng = TARGETS[target].wave, np.random.default_rng(0)
    groups = lanes // m
    a, b = (torch.from_numpy(rng.integers(-4, 5, (m, k)).astype(np.float32)).to(kind) for kind in (left, right))

    def laid_out(one):
        raw = one.view(torch.uint8).numpy().reshape(m, groups, k // groups // 4, 4)
        return np.ascontiguousarray(raw.transpose(2, 1, 0, 3)).view(np.uint32).reshape(k // groups // 4, 1, lanes)

    none = np.zeros((m * m // lanes, 1, lanes), np.uint32)
    found = unit.matrix(name, TARGETS[target], formats)(laid_out(a), laid_out(b), none).view(np.float32)[:, 0]
    assert (found == (a.double() @ b.double().t()).numpy().ravel()[unit.shape(name, TARGETS[target]).places()]).all()


def test_products_of_float64_lie_in_rows_four_apart_and_round_once_for_each_k():
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((16, 4)), rng.standard_normal((4, 16)), rng.standard_normal((16, 16))
    given = [np.ascontiguousarray(one).view(np.uint32).reshape(1, 64, 2).transpose(2, 0, 1) for one in (a.T, b)]
    rows, columns = 4 * np.arange(4)[:, None] + np.arange(64) // 16, np.arange(64) % 16
    addend = np.ascontiguousarray(c[rows, columns]).view(np.uint32).reshape(4, 64, 2).transpose(0, 2, 1).reshape(8, 1, 64)
    found = unit.matrix("v_mfma_f64_16x16x4_f64", TARGETS["gfx942"])(*given, addend)
    both = np.ascontiguousarray(found.reshape(4, 2, 64).transpose(0, 2, 1)).view(np.float64)[..., 0]
    want = c[rows, columns]
    for k in range(4):
        want = np.array([[float(Fraction(a[i, k]) * Fraction(b[k, j]) + Fraction(w)) for i, j, w in zip(*three, strict=True)]
                         for three in zip(rows, np.broadcast_to(columns, rows.shape), want, strict=True)])  # fmt: skip
    assert (both == want).all()


def test_signs_of_floats_are_refused():
    run = unit.matrix("v_wmma_f32_16x16x16_f16", TARGETS["gfx1100"])
    zeros = np.zeros((8, 1, 32), np.uint32)
    with pytest.raises(EmulatorLimitError, match="neg_lo"):
        run(zeros, zeros, zeros, negative=([True, False, False], [False] * 3))
