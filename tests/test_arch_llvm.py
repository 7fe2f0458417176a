"""The AMD and NVIDIA rows against an independent witness: the LLVM inside Triton 3.6, asked offline for every target."""

import re
import subprocess
import sys

import pytest

from lanewise.arch import _FEATURES, TARGETS

if sys.platform != "linux":
    pytest.skip("Triton, whose LLVM is the witness, is only built for Linux", allow_module_level=True)

import triton
import triton.language as tl
from triton._C.libtriton import amd, llvm
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

llvm.init_targets()
AMD = [row for row in TARGETS.values() if row.vendor == "amd"]
GPUS = [row for row in TARGETS.values() if row.is_gpu]
IU8, I8 = "v_dot4_i32_iu8 v0, v1, v2, v3 neg_lo:[1,1,0]", "v_dot4_i32_i8 v0, v1, v2, v3"
WMMA = (
    "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]",  # gfx11
    "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]",  # gfx12
)
# A kernel that touches all of its LDS, so that LLVM counts it.
LDS = """target triple = "amdgcn-amd-amdhsa"
@lds = internal addrspace(3) global [{size} x i8] poison, align 16
define amdgpu_kernel void @k(i32 %i) {{
  %p = getelementptr i8, ptr addrspace(3) @lds, i32 %i
  store volatile i8 1, ptr addrspace(3) %p
  ret void
}}
"""


@triton.jit
def _double(x, size: tl.constexpr):
    offsets = tl.arange(0, size)
    tl.store(x + offsets, tl.load(x + offsets) * 2)


@triton.jit
def _dot(x, w, y, m: tl.constexpr, k: tl.constexpr):
    rows, depth = tl.arange(0, m), tl.arange(0, k)
    a = tl.load(x + rows[:, None] * k + depth[None, :])
    b = tl.load(w + depth[:, None] * m + rows[None, :])
    tl.store(y + rows[:, None] * m + rows[None, :], tl.dot(a, b))


def assembled(instruction, target):
    """The bytes of one instruction, or None where LLVM has no such instruction on the target."""
    code = amd.assemble_amdgcn(f".text\n{instruction}\n", target, "")
    return code or None


def compiled(target, features="", size=16):
    return llvm.translate_to_asm(LDS.format(size=size), "amdgcn-amd-amdhsa", target, features, [], False, False)


@pytest.mark.parametrize("row", AMD, ids=str)
def test_a_row_has_exactly_the_dot_instructions_that_llvm_assembles(row):
    dot4 = IU8.split()[0] if assembled(IU8, row.name) else I8.split()[0] if assembled(I8, row.name) else None
    assert row.dot4 == dot4
    assert row.dot2_f16 == (assembled("v_dot2_f32_f16 v0, v1, v2, v3", row.name) is not None)
    assert row.dot2_bf16 == (assembled("v_dot2_f32_bf16 v0, v1, v2, v3", row.name) is not None)


def test_the_old_dot4_spelling_is_the_unsigned_one_where_iu8_exists():
    unsigned = assembled("v_dot4_i32_iu8 v0, v1, v2, v3", "gfx1100")
    assert assembled(I8, "gfx1100") == unsigned
    assert assembled(IU8, "gfx1100") != unsigned


@pytest.mark.parametrize("row", AMD, ids=str)
def test_a_row_has_exactly_the_matrix_unit_that_llvm_assembles(row):
    mfma = assembled("v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]", row.name)
    wmma = any(assembled(w, row.name) for w in WMMA)
    assert row.matrix == ("mfma" if mfma else "wmma" if wmma else None)


@pytest.mark.parametrize("row", AMD, ids=str)
def test_a_row_has_the_wave_that_llvm_compiles_for(row):
    (wave,) = re.findall(r"\.wavefront_size: *(\d+)", compiled(row.name))
    assert row.wave == int(wave)


@pytest.mark.parametrize("row", AMD, ids=str)
def test_a_row_takes_exactly_the_features_that_llvm_keeps_in_the_target_id(row):
    kept = []
    for feature in ("sramecc", "xnack"):
        (target,) = re.findall(r"amdhsa\.target: *'?([^'\s]+)", compiled(row.name, f"+{feature}"))
        kept += [feature] if target.endswith(f"{row.name}:{feature}+") else []
    assert _FEATURES.get(row.name, ()) == tuple(kept)


def test_a_workgroup_can_have_all_of_a_rows_lds_and_not_a_byte_more():
    # LLVM ends the process when a kernel asks for too much: one child for each question.
    script = "\n".join(
        [
            "import os, sys",
            "from triton._C.libtriton import llvm",
            "llvm.init_targets()",
            f"IR = {LDS!r}",
            "for asked in sys.argv[1:]:",
            "    name, size = asked.split(':')",
            "    child = os.fork()",
            "    if not child:",
            "        llvm.translate_to_asm(IR.format(size=size), 'amdgcn-amd-amdhsa', name, '', [], False, False)",
            "        os._exit(0)",
            "    print(asked, 'fits' if os.waitpid(child, 0)[1] == 0 else 'refused', flush=True)",
        ]
    )
    asked = [f"{row.name}:{row.lds + more}" for row in AMD for more in (0, 1)]
    done = subprocess.run([sys.executable, "-c", script, *asked], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == [f"{a} {'refused' if i % 2 else 'fits'}" for i, a in enumerate(asked)]


def asm(source, row):
    """What Triton compiles a kernel to for a row, by stage; empty where it refuses the target."""
    target = GPUTarget("hip", row.name, row.wave) if row.vendor == "amd" else GPUTarget("cuda", int(row.name.removeprefix("sm_")), row.wave)
    try:
        return triton.compile(source, target=target).asm
    except RuntimeError:
        return {}


@pytest.mark.parametrize("row", GPUS, ids=str)
def test_triton_compiles_for_exactly_the_rows_that_say_so(monkeypatch, tmp_path, row):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = asm(ASTSource(_double, {"x": "*fp32", "size": "constexpr"}, constexprs={"size": 128}), row)
    assert row.triton == (len(made.get("hsaco") or made.get("cubin") or b"") > 0)


@pytest.mark.parametrize("row", [row for row in GPUS if row.matrix and row.triton], ids=str)
def test_triton_dot_reaches_the_rows_matrix_unit_except_where_it_cannot(monkeypatch, tmp_path, row):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    signature = {"x": "*fp16", "w": "*fp16", "y": "*fp32", "m": "constexpr", "k": "constexpr"}
    made = asm(ASTSource(_dot, signature, constexprs={"m": 64, "k": 32}), row)
    text = made.get("amdgcn") or made["ptx"]
    unit = {"mfma": "v_mfma", "wmma": "v_wmma", "mma": "mma.sync", "wgmma": "wgmma.mma", "tcgen05": "tcgen05.mma"}[row.matrix]
    assert (unit in text) == row.dot_by_matrix


def printed(row, body, declared=""):
    """The assembly of a kernel on a pointer p."""
    ir = f"{declared}\ndefine amdgpu_kernel void @f(ptr addrspace(1) %p) #0 {{\n{body}\n ret void }}\n"
    return llvm.translate_to_asm(
        f'{ir}attributes #0 = {{ "amdgpu-flat-work-group-size"="1,{row.wave}" }}', "amdgcn-amd-amdhsa", row.name, "", [], False, False
    )


@pytest.mark.parametrize("row", AMD, ids=str)
def test_a_row_s_registers_give_the_occupancy_that_llvm_computes(row):
    for count in (10, 38, 45, 58, 62, 70, 80, 94, 100, 126, 140, 160, 200, 250):
        loads = "\n".join(f" %v{i} = load volatile float, ptr addrspace(1) %p" for i in range(count))
        text = printed(row, loads + "\n" + "\n".join(f" store volatile float %v{i}, ptr addrspace(1) %p" for i in range(count)))
        (vgprs,), (occupancy,) = re.findall(r"\.vgpr_count: +(\d+)", text), re.findall(r"; Occupancy: (\d+)", text)
        assert row.registers.occupancy(int(vgprs)) == int(occupancy), vgprs


@pytest.mark.parametrize("row", [row for row in AMD if row.dot4], ids=str)
def test_llvm_waits_behind_a_dot_as_long_as_the_row_says(row):
    name, sides = ("sudot4", "i1 true, ") if row.dot4.endswith("_iu8") else ("sdot4", "")
    kinds = f"{sides.replace(' true', '')}i32, {sides.replace(' true', '')}i32, i32, i1"
    call = f"call i32 @llvm.amdgcn.{name}({sides}i32 %a, {sides}i32 %b, i32 0, i1 false)"
    for use in (" %d = xor i32 %c, %b\n store volatile i32 %d, ptr addrspace(1) %p", " store volatile i32 %c, ptr addrspace(1) %p"):
        loads = "".join(f" %{x} = load volatile i32, ptr addrspace(1) %p\n" for x in "ab")
        text = printed(row, f"{loads} %c = {call}\n{use}", f"declare i32 @llvm.amdgcn.{name}({kinds})")
        _, following = text[text.index("v_dot4") :].split("\n")[:2]
        assert (following.split() == ["s_nop", str(row.dot_wait - 1)]) == (row.dot_wait > 0), following


def test_the_witness_can_refuse(capfd):
    assert assembled("v_no_such_instruction v0", "gfx1100") is None
    assert "error" in capfd.readouterr().err
