"""The text that the emulator runs against the bytes that a card would: decoded by tinygrad's tables, where those are right, they name the same."""

import os
import re
import struct
import sys
from dataclasses import replace

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)
pytest.importorskip("tinygrad.renderer.amd")

from support.quant_launch import Case, multiplied
from tinygrad.renderer.amd import decode_inst

from lanewise.arch import TARGETS

# Of buffer instructions RDNA's tables have nothing; each is as long as this.
TABLES = {"gfx1100": ("rdna3", 8), "gfx1200": ("rdna4", 12), "gfx942": ("cdna", 8), "gfx950": ("cdna", 8)}
CASE = Case("Q4_K", 2, 1000, 2304, fused=True)


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """Triton's cache of this run of the tests; workers share it."""
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "triton"))
        yield


def text_section(binary):
    """The machine code of an ELF file."""
    start, size, count, names = struct.unpack_from("<Q", binary, 40)[0], *struct.unpack_from("<HHH", binary, 58)
    headers = [struct.unpack_from("<IIQQQQ", binary, start + size * number) for number in range(count)]
    strings = headers[names][4]
    (found,) = [one for one in headers if binary[strings + one[0] :].startswith(b".text\0")]
    return binary[found[4] : found[4] + found[5]]


def plain(name):
    return re.sub(r"(_e32|_e64|_dpp|_sdwa)+$", "", name.lower())


def printed(text):
    """Mnemonics in order, each with the one beside it of a pair."""
    body = text.split("@function")[1].split(".rodata")[0]
    found = [re.findall(r"(?:^\s*|:: )([a-z]\w+(?![\w:])|\.p2align\t\d+)", line) for line in body.splitlines()]
    return [[plain(name) for name in names] for names in found if names]


def disagreements(code, table, buffer):
    """[(byte, printed, decoded)], and how many instructions were decoded."""
    data, at, wrong, decoded = text_section(code.binary), 0, [], 0
    for names in printed(code.text):
        if names[0].startswith(".p2align"):
            boundary = 1 << int(names[0].split()[1])
            at += -at % boundary
            continue
        if names[0].startswith("buffer_"):
            at += buffer
            continue
        try:
            one = decode_inst(data[at : at + 16], table)
        except (ValueError, KeyError) as error:
            return [*wrong, (at, names, str(error))], decoded
        found = [plain(getattr(one, field).name) for field in (("opx", "opy") if hasattr(one, "opx") else ("op",))]
        if found != names:
            wrong.append((at, names, found))
        decoded += 1
        at += one.size()
    return wrong, decoded


@pytest.mark.parametrize("target", TABLES)
def test_the_bytes_decode_to_the_instructions_of_the_text(target):
    (code,) = multiplied(TARGETS[target], CASE)
    wrong, decoded = disagreements(code, *TABLES[target])
    assert wrong == []
    assert decoded > len(printed(code.text)) // 2


def test_another_instruction_in_the_bytes_is_noticed():
    (code,) = multiplied(TARGETS["gfx1100"], CASE)
    name = next(names[0] for names in printed(code.text) if names[0] == "v_add_f32")
    changed = replace(code, text=code.text.replace(f"\t{name}_e32", "\tv_sub_f32_e32", 1))
    assert [(names, found) for _, names, found in disagreements(changed, *TABLES["gfx1100"])[0]] == [(["v_sub_f32"], ["v_add_f32"])]
