"""Bundles of experts on a GPU: good ones hold, and each way to mislead about what ran, or about which experts were read, is refused."""

import copy
import json

import pytest
import torch
from support.bundles import written
from support.gpu_bundles import Made, good_gpu

from lanewise import arch
from lanewise.bench import gpu_code, stats
from lanewise.bench.gpu_compile import wanted
from lanewise.bench.problem import Call
from lanewise.evidence import open_bundle, verify
from lanewise.evidence.gpu_quant import check_grouped
from lanewise.evidence.recompile import check_recompiled
from lanewise.kernels.gpu.quant_layout import LAYOUTS

triton = pytest.importorskip("triton")

from lanewise.isa.launches import standing_in  # noqa: E402 - needs triton
from lanewise.kernels.gpu.grouped import grouped  # noqa: E402
from lanewise.kernels.gpu.grouped_config import default  # noqa: E402
from lanewise.kernels.gpu.quant_pack import QuantWeight  # noqa: E402

ROW = arch.parse("sm_90")
CALL, PROMPT = (Call("grouped_linear", m, 32, 1024, "Q4_K", "bf16", experts=8, top=2) for m in (1, 40))


def launched(call, early, ordered, **more):
    """Descriptions of what a call would compile for a card that is not here."""
    tiles = torch.empty(call.experts, -(-call.n // 16), -(-call.k // 256), LAYOUTS[call.fmt].record, dtype=torch.int32)
    x, ids = torch.zeros(call.m, call.k, dtype=torch.bfloat16), torch.zeros(call.m, call.top, dtype=torch.int32)
    config = default(ROW, call.pairs, call.experts, call.k).cut
    named = {"out": torch.bfloat16, "constant_w": True, "ids_ready": early, "ordered": ordered, "config": config, "arch": ROW} | more
    with standing_in(ROW), wanted() as kernels:
        grouped(x, QuantWeight(call.fmt, call.n, call.k, False, tiles), ids, **named)
    return json.loads(json.dumps(kernels))


EARLY, LATE, ORDERED = launched(CALL, True, False), launched(CALL, False, False), launched(PROMPT, True, True)
BLAS = Made("blas", "blas", "blas", "0")
GROUPED, WAITING = Made("grouped", "grouped_quant", "gpu", "1", EARLY), Made("late", "grouped_quant", "gpu", "1", LATE)
ARMS = {
    "grouped,blas": (CALL, (GROUPED, BLAS)),
    "late,blas": (CALL, (WAITING, BLAS)),
    "grouped,late": (CALL, (GROUPED, WAITING)),
    "prefill": (PROMPT, (GROUPED._replace(compiled=ORDERED), BLAS)),
}
GOOD = good_gpu(call=CALL, made=ARMS["grouped,blas"][1])
# Where a format has no kernel that quantizes x itself, another kernel does it in front.
APART = Call("grouped_linear", 1, 32, 1024, "Q8_0", "bf16", experts=8, top=2)
IN_FRONT = good_gpu(call=APART, made=(GROUPED._replace(compiled=launched(APART, True, False)), BLAS))


def codes(tmp_path, manifest):
    return {reason.code for reason in verify(open_bundle(written(tmp_path / "run", manifest)))}


@pytest.mark.parametrize(("call", "made"), ARMS.values(), ids=ARMS)
def test_good_bundles_of_all_arms_hold(tmp_path, call, made):
    assert codes(tmp_path, good_gpu(call=call, made=made)) == set()


@pytest.mark.parametrize("fmt", list(LAYOUTS))
@pytest.mark.parametrize("ordered", [False, True])
def test_what_every_format_launches_is_what_the_verifier_expects_of_it_alone(fmt, ordered):
    call = Call("grouped_linear", 4, 40, 2048, fmt, "bf16", experts=16, top=4)
    compiled, arm = launched(call, True, ordered), {"label": "grouped", "witness": {"kernel": "grouped_quant"}}
    assert list(check_grouped("compiled", compiled, call.facts(), arm)) == []
    for other in (name for name in LAYOUTS if name != fmt):
        assert list(check_grouped("compiled", compiled, call.facts() | {"format": other}, arm))


def constant(m, kernel, name, value):
    one = m["arms"]["a"]["spec"]["compiled"][kernel]
    place = list(one["signature"]).index(name)
    one["constants"] = [[path, value if path == [place] else old] for path, old in one["constants"]]


def another_formats_codes(m):
    constant(m, -1, "CODE", "u5")


def a_shorter_k(m):
    constant(m, -1, "TILES", 0)


def fewer_tiles_than_k_has(m):
    constant(m, -1, "W", 1)


def a_fused_gate(m):
    constant(m, -1, "GATED", True)


def the_routers_weights(m):
    constant(m, -1, "WEIGHTED", True)


def a_row_for_each_pair(m):
    constant(m, -1, "OWN", True)


def pairs_in_order_whose_rows_are_not(m):
    constant(m, -1, "ORDERED", True)
    constant(m, -1, "EARLY", False)


def rows_in_order_whose_pairs_are_not(m):
    constant(m, 0, "ROWS", True)


def ids_that_were_waited_for(m):
    constant(m, -1, "EARLY", False)


def ids_that_were_not(m):
    m["arms"]["a"]["label"] = "late"


def another_activation(m):
    constant(m, 0, "SMALL", False)


def x_that_was_quantized_before(m):
    del m["arms"]["a"]["spec"]["compiled"][0]


def a_wide_result(m):
    m["arms"]["a"]["spec"]["compiled"][-1]["signature"]["y"] = "*fp32"


def another_ops_arm(m):
    m["arms"]["a"]["label"] = "quant"


def a_switch_that_was_not_thrown(m):
    m["arms"]["a"]["spec"]["switch"] = "0"


def no_description(m):
    m["arms"]["a"]["spec"]["compiled"][-1]["constants"] = [[[99], 1]]


WITNESS = (
    another_formats_codes, a_shorter_k, fewer_tiles_than_k_has, a_fused_gate, the_routers_weights, a_row_for_each_pair,
    pairs_in_order_whose_rows_are_not, rows_in_order_whose_pairs_are_not, ids_that_were_waited_for, ids_that_were_not, another_activation,
    x_that_was_quantized_before, a_wide_result, another_ops_arm, a_switch_that_was_not_thrown, no_description,
)  # fmt: skip

OF_TWO = (pairs_in_order_whose_rows_are_not, rows_in_order_whose_pairs_are_not, another_activation, x_that_was_quantized_before)


@pytest.mark.parametrize("change", WITNESS, ids=[change.__name__ for change in WITNESS])
def test_each_way_to_mislead_about_what_ran_is_refused_by_its_name(tmp_path, change):
    manifest = copy.deepcopy(IN_FRONT if change in OF_TWO else GOOD)
    change(manifest)
    assert "witness" in codes(tmp_path, {**manifest, "figures": stats.figures(manifest)})


@pytest.mark.parametrize(("field", "value"), [("active", 1), ("active", 8), ("experts", 16), ("top", 1), ("bytes", 1 << 20), ("operations", 1 << 20)])
def test_another_number_of_experts_than_was_read_is_refused(tmp_path, field, value):
    manifest = copy.deepcopy(GOOD)
    manifest["problem"][field] = value
    assert {"problem", "command"} & codes(tmp_path, {**manifest, "figures": stats.figures(manifest)})


def test_a_graph_that_leaves_out_calls_of_a_rotation_is_refused_and_so_are_more_experts_than_are_read(tmp_path):
    manifest = copy.deepcopy(GOOD)
    manifest["plan"]["buffers_bytes"] = 8 * 32 * 576 * 7  # seven times all experts of a copy, in which each call reads two
    assert "residency" in codes(tmp_path, {**manifest, "figures": stats.figures(manifest)})


def test_more_tokens_and_experts_than_are_drawn_are_no_problem_to_refuse(tmp_path):
    manifest = copy.deepcopy(GOOD)
    manifest["problem"] |= {"experts": 10**12}
    assert "problem" in codes(tmp_path, {**manifest, "figures": GOOD["figures"]})


def test_inputs_and_kernels_are_made_again_where_no_gpu_is(monkeypatch, tmp_path):
    manifest = good_gpu(call=CALL, made=ARMS["grouped,blas"][1])
    manifest["versions"]["triton"] = triton.__version__
    manifest["arms"]["a"]["artifact"] = gpu_code.compiled_again(EARLY, ROW)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # so that they really are
    assert check_recompiled(manifest) == []
    manifest["arms"]["a"]["artifact"] = "0" * 64
    manifest["inputs"]["sha256"]["ids"] = "0" * 64
    assert [reason.code for reason in check_recompiled(manifest)] == ["artifact", "inputs"]
