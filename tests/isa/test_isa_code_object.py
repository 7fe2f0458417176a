"""Code objects of kernels that Triton compiled, held to the text that it printed and to a disassembler of the system."""

import contextlib
import functools
import sys
from dataclasses import replace

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

import torch
import triton
import triton.language as tl

from lanewise.arch import TARGETS
from lanewise.errors import AssemblyError
from lanewise.isa import elf, objdump
from lanewise.isa.code_object import code_object
from lanewise.isa.launches import taken

ROWS = [row for row in TARGETS.values() if row.vendor == "amd" and row.triton]


@triton.jit
def _sum(x, w, y, k, scale, size: tl.constexpr):
    total = 0.0
    for start in range(0, k, size):
        at = start + tl.arange(0, size)
        total += tl.sum(tl.load(x + at, mask=at < k, other=0.0) * tl.load(w + at, mask=at < k, other=0.0).to(tl.float32))
    tl.store(y + tl.program_id(1), total * scale)


@functools.cache
def launch(row):
    with taken(row) as launches:
        _sum[(1, 3)](torch.ones(1000), torch.ones(1000, dtype=torch.float16), torch.ones(3), 1000, 0.5, size=512)
    return launches[0]


@functools.cache
def made(row):
    one = launch(row)
    return code_object(one.text, one.binary, row, shared=one.shared, warps=one.warps)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_text_assembled_again_is_the_object_byte_for_byte(row):
    code = made(row)
    assert code.kernel == "_sum"
    assert [one.pc for one in code.instructions] == sorted({one.pc for one in code.instructions})
    assert code.instructions[0].pc == 0
    assert code.instructions[-1].mnemonic == "s_endpgm"
    assert code.instructions[-1].pc == len(code.code) - 4


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_metadata_and_descriptor_say_how_a_launch_is_set_up(row):
    code, d = made(row), made(row).descriptor
    named = [(a.kind, a.offset, a.size) for a in code.arguments]
    assert named[:5] == [(kind, 8 * i, 8) for i, kind in enumerate(["global_buffer"] * 3)] + [("by_value", 24, 4), ("by_value", 28, 4)]
    assert named[5:] == [("global_buffer", 32, 8), ("global_buffer", 40, 8)]  # Triton's own
    assert (d.wave, code.metadata[".wavefront_size"], d.kernargs) == (row.wave, row.wave, 48)
    assert (d.scratch, code.scratch, code.spills) == (0, 0, 0)
    assert d.workgroup_ids[1]
    assert d.user_sgprs >= 2
    assert d.float_mode == 0xF0  # rounds to nearest and keeps denormals
    assert 0 < code.vgprs <= 256
    assert code.shared > 0


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_instructions_have_lines_of_this_file_and_branches_labels_of_theirs(row):
    code = made(row)
    here = {one.source[1] for one in code.instructions if one.source and one.source[0] == "test_isa_code_object.py"}
    assert len(here) >= 3
    branches = [one.operands[0] for one in code.instructions if one.mnemonic.startswith(("s_branch", "s_cbranch"))]
    assert branches
    assert set(branches) <= set(code.labels)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_disassembler_of_the_system_reads_what_the_text_says(row):
    if why := objdump.compared(made(row)):
        pytest.skip(why)


def test_a_text_that_is_not_the_objects_is_refused():
    row, one = TARGETS["gfx1100"], launch(TARGETS["gfx1100"])
    changed = one.text.replace("v_mov_b32_e32 v1, 0\n", "v_mov_b32_e32 v1, 1\n").replace("v_add_f32_e32", "v_sub_f32_e32", 1)
    with pytest.raises(AssemblyError, match=r"_sum: the code that the text gives \(\d+ bytes\) differs"):
        code_object(changed, one.binary, row)
    with pytest.raises(AssemblyError, match="the descriptor"):
        code_object(one.text.replace(".amdhsa_float_denorm_mode_32 3", ".amdhsa_float_denorm_mode_32 0"), one.binary, row)
    with pytest.raises(AssemblyError, match="the assembler refuses the text"):
        code_object(one.text, one.binary, TARGETS["gfx942"])
    with pytest.raises(AssemblyError, match="metadata of _sum; the text is of other"):
        code_object(one.text.replace("_sum", "other"), one.binary, row)


@pytest.mark.parametrize("name", ["gfx942", "gfx1100"])
def test_a_workgroup_has_as_many_waves_as_the_kernel_was_compiled_for_and_never_more(name):
    one = launch(TARGETS[name])
    assert code_object(one.text, one.binary, one.row).warps == one.warps == 4
    assert code_object(one.text, one.binary, one.row, warps=2).warps == 2
    for waves in (0, 5):
        with pytest.raises(AssemblyError, match=f"a workgroup of {waves} waves; it is compiled for at most 4 of {one.row.wave} lanes"):
            code_object(one.text, one.binary, one.row, warps=waves)


def test_a_disassembly_that_differs_is_an_error_and_no_disassembler_a_reason(monkeypatch):
    code = made(TARGETS["gfx1100"])
    at = next(i for i, one in enumerate(code.instructions) if one.mnemonic.startswith("v_add"))
    other = [replace(one, text="v_sub_f32_e32 v1, v1, v1") if i == at else one for i, one in enumerate(code.instructions)]
    if objdump.disassembled(code)[0]:
        with pytest.raises(AssemblyError, match="the text has 'v_sub_f32_e32 v1, v1, v1' and llvm-objdump"):
            objdump.compared(replace(code, instructions=tuple(other)))
    monkeypatch.setattr(objdump, "_programs", lambda: (("/old/llvm-objdump", 14),))
    assert objdump.compared(code) == "/old/llvm-objdump is of LLVM 14; 19 or later is wanted"
    monkeypatch.setattr(objdump, "_programs", lambda: ())
    assert "no llvm-objdump on the path" in objdump.compared(code)


def test_a_damaged_object_is_refused_in_words_and_never_crashes():
    one = launch(TARGETS["gfx942"])
    for size in (0, 5, 63, 64, 700, len(one.binary) - 1):
        with pytest.raises(AssemblyError):
            code_object(one.text, one.binary[:size], TARGETS["gfx942"])
    for at in range(64):
        broken = bytearray(one.binary)
        broken[at] ^= 0x5A
        with contextlib.suppress(AssemblyError):
            elf.read(bytes(broken))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x05", 5), (b"\xff", -1), (b"\xc0", None), (b"\xc3", True), (b"\xa2ab", "ab"), (b"\xd9\x02ab", "ab"), (b"\xcd\x01\x00", 256),
        (b"\xd1\xff\x00", -256), (b"\x92\x01\x02", [1, 2]), (b"\xdc\x00\x01\x07", [7]), (b"\x81\xa1a\x01", {"a": 1}),
        (b"\xde\x00\x01\xa1a\x01", {"a": 1}),
    ],
)  # fmt: skip
def test_metadata_are_read_as_msgpack_says(data, value):
    assert elf.unpacked(data) == value
    for cut in range(len(data)):
        with pytest.raises(AssemblyError, match="metadata"):
            elf.unpacked(data[:cut])


@pytest.mark.parametrize("data", [b"\xc1", b"\x91" * 20 + b"\x01", b"\x01\x01", b"\xdd\xff\xff\xff\xff"])
def test_metadata_that_are_not_ours_are_refused(data):
    with pytest.raises(AssemblyError, match="metadata"):
        elf.unpacked(data)
