"""Bundles of packed weights on a GPU: good ones hold, and each way to mislead about what ran is refused by its name."""

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
from lanewise.evidence.gpu_quant import check_quantized
from lanewise.evidence.recompile import check_recompiled
from lanewise.kernels.gpu.quant_layout import LAYOUTS

triton = pytest.importorskip("triton")

from lanewise.isa.launches import standing_in  # noqa: E402 - needs triton
from lanewise.kernels.gpu.act_quant import act_quant  # noqa: E402
from lanewise.kernels.gpu.quant_config import QuantConfig, default  # noqa: E402
from lanewise.kernels.gpu.quant_gemm import dequantize  # noqa: E402
from lanewise.kernels.gpu.quant_gemv import quant_gemv  # noqa: E402
from lanewise.kernels.gpu.quant_pack import QuantWeight, pack  # noqa: E402

ROW = arch.parse("sm_90")
CALL, PROMPT = Call("quant_linear", 1, 32, 1024, "Q4_K", "bf16"), Call("quant_linear", 64, 32, 1024, "Q4_K", "bf16")
BLAS = Made("blas", "blas", "blas", "0")


def launched(config, m=1, w=None):
    """Descriptions of what a call would compile for a card that is not here."""
    w = w or pack(torch.from_numpy(CALL.inputs(0)["w"]), "Q4_K")
    x = torch.zeros(m, w.k, dtype=torch.bfloat16)
    with standing_in(ROW), wanted() as kernels:
        if config is None:
            dequantize(w, x.dtype, arch=ROW)
        else:
            quant_gemv(act_quant(x, w.layout.activation, arch=ROW), w, out=x.dtype, constant_w=True, config=config, arch=ROW)
    return json.loads(json.dumps(kernels))


WHOLE, SPLIT = launched(QuantConfig("tiles", 4, 1, 8)), launched(QuantConfig("tiles", 2, 1, 8, 2))
EIGHT = launched(QuantConfig("tiles", 4, 1, 8), 3)
DEQUANTIZE = launched(None)
QUANT = Made("quant", "quant_gemv", "gpu", "1", WHOLE)
ARMS = {
    "quant,blas": (CALL, (QUANT, BLAS)),
    "split,blas": (CALL, (QUANT._replace(compiled=SPLIT), BLAS)),
    "quantized,blas": (CALL, (Made("quantized", "quant_gemv", "gpu", "1", WHOLE[1:]), BLAS)),
    "quant,quantized": (CALL, (QUANT, Made("quantized", "quant_gemv", "gpu", "1", WHOLE[1:]))),
    "quant,expand": (CALL, (QUANT, Made("expand", "quant_blas", "blas", "0"))),
    "prefill": (PROMPT, (Made("quant", "quant_gemm", "gpu", "1", DEQUANTIZE), BLAS)),
}
GOOD = good_gpu(call=CALL, made=ARMS["quant,blas"][1])


def codes(tmp_path, manifest):
    return {reason.code for reason in verify(open_bundle(written(tmp_path / "run", manifest)))}


@pytest.mark.parametrize(("call", "made"), ARMS.values(), ids=ARMS)
def test_good_bundles_of_all_arms_hold(tmp_path, call, made):
    assert codes(tmp_path, good_gpu(call=call, made=made)) == set()


@pytest.mark.parametrize("fmt", list(LAYOUTS))
@pytest.mark.parametrize(("m", "n", "k"), [(1, 40, 14336), (8, 4096, 1024), (32, 40, 4096), (3, 24, 768)])
def test_what_every_format_launches_by_default_is_what_the_verifier_expects(fmt, m, n, k):
    config = default(ROW, fmt, m, n, k)
    compiled = launched(config, m, QuantWeight(fmt, n, k, False, torch.empty(-(-n // 16), -(-k // 256), LAYOUTS[fmt].record, dtype=torch.int32)))
    arm = {"label": "quant", "witness": {"kernel": "quant_gemv"}}
    problem = Call("quant_linear", m, n, k, fmt, "bf16").facts()
    assert list(check_quantized("compiled", compiled, problem, arm)) == []
    for other in (name for name in LAYOUTS if name != fmt):
        assert list(check_quantized("compiled", compiled, problem | {"format": other}, arm))


def tiles_of(m):
    return m["arms"]["a"]["spec"]["compiled"][1]


def constant(m, name, value):
    one = tiles_of(m)
    place = list(one["signature"]).index(name)
    one["constants"] = [[path, value if path == [place] else old] for path, old in one["constants"]]


def another_formats_codes(m):
    constant(m, "CODE", "u5")


def another_formats_record(m):
    constant(m, "RECORD", 576)


def another_group(m):
    constant(m, "GROUP", 16)


def a_shorter_k(m):
    constant(m, "TILES", 0)


def fewer_tiles_than_k_has(m):
    constant(m, "W", 1)


def a_fused_part(m):
    constant(m, "GATED", True)


def a_wide_result(m):
    tiles_of(m)["signature"]["y"] = "*fp32"


def another_x(m):
    m["arms"]["a"]["spec"]["compiled"][0]["signature"]["x"] = "*fp16"


def x_that_was_quantized_before(m):
    del m["arms"]["a"]["spec"]["compiled"][0]


def x_that_is_quantized_though_it_should_have_been(m):
    m["arms"]["a"]["label"] = "quantized"


def parts_that_nobody_adds(m):
    m["arms"]["a"]["spec"]["compiled"] = copy.deepcopy(SPLIT[:2])


def weights_that_were_expanded(m):
    m["arms"]["a"]["spec"]["compiled"] = copy.deepcopy(DEQUANTIZE)


def a_kernel_of_linear(m):
    m["arms"]["a"]["label"] = "skinny"


def another_way(m):
    m["arms"]["a"]["spec"]["kernels"] = ["quant_gemm"]
    m["arms"]["a"]["witness"]["kernel"] = "quant_gemm"


def the_expanding_kernel_as_blas(m):
    m["arms"]["b"]["spec"]["kernels"] = ["quant_blas"]
    m["arms"]["b"]["witness"]["kernel"] = "quant_blas"


def a_switch_that_was_not_thrown(m):
    m["arms"]["a"]["spec"]["switch"] = "0"


def another_activation(m):
    one = m["arms"]["a"]["spec"]["compiled"][0]
    place = list(one["signature"]).index("SMALL")
    one["constants"] = [[path, True if path == [place] else old] for path, old in one["constants"]]


def no_description(m):
    tiles_of(m)["constants"] = [[[99], 1]]


WITNESS = (
    another_formats_codes, another_formats_record, another_group, a_shorter_k, fewer_tiles_than_k_has,
    a_fused_part, a_wide_result, another_x, x_that_was_quantized_before,
    x_that_is_quantized_though_it_should_have_been, parts_that_nobody_adds, weights_that_were_expanded, a_kernel_of_linear, another_way,
    the_expanding_kernel_as_blas, a_switch_that_was_not_thrown, another_activation, no_description,
)  # fmt: skip


@pytest.mark.parametrize("change", WITNESS, ids=[change.__name__ for change in WITNESS])
def test_each_way_to_mislead_about_packed_weights_is_refused_by_its_name(tmp_path, change):
    manifest = copy.deepcopy(GOOD)
    change(manifest)
    assert "witness" in codes(tmp_path, {**manifest, "figures": stats.figures(manifest)})


def test_another_type_or_format_in_the_problem_is_refused(tmp_path):
    for field, value, code in (("dtype", "f16", "witness"), ("format", "Q5_K", "problem"), ("dtype", "f32", "problem")):
        manifest = copy.deepcopy(GOOD)
        manifest["problem"][field] = value
        assert code in codes(tmp_path / field / value, {**manifest, "figures": stats.figures(manifest)})


def test_the_source_that_expands_is_part_of_what_ran(tmp_path):
    call, made = ARMS["quant,expand"]
    manifest = good_gpu(call=call, made=made)
    manifest["arms"]["b"]["artifact"] = GOOD["arms"]["b"]["artifact"]
    assert codes(tmp_path, manifest) == {"artifact"}


def test_two_arms_that_run_one_kernel_differ_in_what_was_compiled(tmp_path):
    call, made = ARMS["quant,quantized"]
    manifest = good_gpu(call=call, made=(made[0], made[1]._replace(compiled=WHOLE)))
    assert {"switch", "witness"} <= codes(tmp_path, manifest)


def test_the_kernels_are_compiled_again_where_no_gpu_is(monkeypatch, tmp_path):
    manifest = good_gpu(call=PROMPT, made=ARMS["prefill"][1])
    manifest["versions"]["triton"] = triton.__version__
    manifest["arms"]["a"]["artifact"] = gpu_code.compiled_again(DEQUANTIZE, ROW)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # so that they really are
    assert check_recompiled(manifest) == []
    manifest["arms"]["a"]["artifact"] = "0" * 64
    assert [reason.code for reason in check_recompiled(manifest)] == ["artifact"]


@pytest.mark.parametrize(("name", "value"), [("PARTS", 10**6), ("AHEAD", 17), ("W", 16), ("STRANDS", 9), ("PARTS", -1)])
def test_a_quantized_kernel_whose_compiling_would_not_end_is_not_compiled(monkeypatch, name, value):
    monkeypatch.setattr("lanewise.evidence.recompile.compiled_again", lambda *given: pytest.fail("compiled"))
    manifest = copy.deepcopy(GOOD)
    manifest["arms"]["a"]["spec"]["compiled"] = copy.deepcopy(EIGHT)
    manifest["versions"]["triton"] = triton.__version__
    constant(manifest, name, value)
    (reason,) = check_recompiled(manifest)
    assert (reason.code, f"{name} of a kernel is {value}" in reason.found) == ("recompile", True)


def test_many_tokens_that_meet_many_tiles_are_not_compiled(monkeypatch):
    monkeypatch.setattr("lanewise.evidence.recompile.compiled_again", lambda *given: pytest.fail("compiled"))
    manifest = copy.deepcopy(GOOD)
    manifest["arms"]["a"]["spec"]["compiled"] = copy.deepcopy(EIGHT)
    manifest["versions"]["triton"] = triton.__version__
    constant(manifest, "PARTS", 8)
    constant(manifest, "AHEAD", 16)
    (reason,) = check_recompiled(manifest)
    assert "1024 tokens and tiles in one program" in reason.found
