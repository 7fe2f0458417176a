"""`lanewise emulate`: a case on a target, what it did, and refusals."""

import json
import re
import sys
from dataclasses import replace

import pytest

if sys.platform != "linux":
    pytest.skip("Triton is only built for Linux", allow_module_level=True)

from cli_fakes import lanewise


@pytest.mark.parametrize("words", ["skinny --m 1 --n 33 --k 264", "quant_gemv --n 17 --k 512 --fused", "quant_gemm --format Q8_0 --n 16 --k 256",
                                   "grouped_quant --m 2 --n 16 --k 256", "act_quant --m 3 --k 512"])  # fmt: skip
def test_every_kernel_runs_and_is_right(words):
    done = lanewise("emulate", *words.split(), "--target", "gfx1100", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problem"] == ""
    assert found["worst"] <= 1
    assert found["launches"][0]["instructions"] == sum(found["launches"][0]["mnemonics"].values()) > 0
    stores = [one for one in found["accesses"] if one["stores"] and one["buffer"] != "LDS"]
    assert stores
    assert all(one["source"] for one in stores)


def test_what_is_printed_says_what_moved_and_how_right_it_is(tmp_path):
    trace = tmp_path / "trace.jsonl"
    done = lanewise("emulate", "skinny", "--target", "gfx942", "--n", "33", "--k", "264", "--schedule", "reversed", "--trace", str(trace))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("m=1 k=264 n=33 bf16 on gfx942, reversed")
    for words in ("workgroups of", "lanes.py", "of it used", "read ", "right: the worst error is"):
        assert words in done.stdout
    assert all("pc" in json.loads(line) for line in trace.read_text().splitlines())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bla -t gfx1100", "no kernel is called 'bla'"),
        ("skinny -t gfx906", "gfx906 is none of them"),
        ("skinny -t sm_90", "sm_90 is none of them"),
        ("skinny -t gfx1100 --m 40", "up to 16 tokens"),
        ("skinny -t gfx1100 --n 0", "sizes are 1 or more"),
        ("skinny -t gfx1100 --dtype f32", "skinny multiplies bf16 and f16"),
        ("quant_gemv -t gfx1100 --k 100", "no multiple"),
        ("quant_gemv -t gfx1100 --format Q9", "no such format"),
        ("skinny -t gfx1100 --schedule sideways", "no schedule is 'sideways'"),
        ("skinny", "target"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(words, message):
    done = lanewise("emulate", *words.split())
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_element_is_traced_to_who_stored_it(monkeypatch):
    """A reduction that leaves a step out: the line is the one in which lanes met last."""
    from lanewise.emulator import tensors
    from lanewise.isa.code_object import code_object

    def wrong(launch):
        code = code_object(launch.text, launch.binary, launch.row, shared=launch.shared, warps=launch.warps)
        at = next(one.index for one in code.instructions if one.mnemonic == "v_add_f32_dpp")
        changed = replace(code.instructions[at], mnemonic="v_sub_f32_dpp")
        return replace(code, instructions=(*code.instructions[:at], changed, *code.instructions[at + 1 :]), text=f"{code.text}; changed")

    monkeypatch.setattr(tensors, "_code", wrong)
    done = lanewise("emulate", "skinny", "--target", "gfx942", "--n", "9", "--k", "520", "--bare")
    assert done.exit_code == 1
    assert "WRONG" in done.stdout
    assert re.search(
        r"y\[0, \d\] was stored at lanes\.py:\d+ by workgroup \d+, wave \d+, lane \d+; its value came from other lanes at \w+\.py:\d+", done.stdout
    )
