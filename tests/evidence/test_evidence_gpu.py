"""Bundles of a GPU: a good one holds, each way to mislead is refused by its name, and no changed leaf slips past everything but the seal."""

import copy
import json
import re

import pytest
import test_evidence_leaves as leaves
from support.bundles import changed, good, written
from support.gpu_bundles import COMPILED, good_gpu

from lanewise import launched
from lanewise.bench import gpu_code, stats
from lanewise.bench import manifest as schema
from lanewise.bench.manifest import digest
from lanewise.errors import EvidenceError
from lanewise.evidence import open_bundle, verify
from lanewise.evidence.page import page
from lanewise.evidence.recompile import check_recompiled

GOOD = good_gpu()
SEAL = leaves.sealed(GOOD)

# (path, codes of which one is given), asked before the table of the leaves of a CPU's bundle.
FITTING = [
    (r"machine\.last_level_cache", {"machine", "residency"}),
    (r"machine\.gpu\.(row|capability\[\d\]|l2)", {"machine"}),
    (r"plan\.threads", {"machine"}),
    (r"plan\.rule\.alone", {"plan"}),
    (r"problem\.(dtype|bytes|operations)", {"problem"}),
    (r"arms\.b\.artifact", {"artifact"}),
    (r"arms\..\.spec\.(device|body|isa|kernels.*|switch)", {"witness"}),
    (r"arms\..\.spec\.calls", {"repeats", "residency", "witness"}),
    (r"versions\.(torch|cuda|cublas)", {"artifact"}),
    (r"rounds\[\d+\]\.(samples|control)\[\d\]\.repeats", {"repeats"}),
    (r"figures\.[ab]\.of_int8", {leaves.UNREADABLE}),
    (r"rounds\[\d+\]\.(before|after)\.gpu\.throttle\[0\]", {"left-out-kept"}),
]
# Beyond those of a CPU's bundle: what only another run, or compiling again, contradicts.
SEALED_ONLY = [
    r"machine\.(flags|usable_cores)x?",
    r"machine\.gpu\.(name|multiprocessors|memory|driver)",
    r"arms\.a\.(artifact|output)",  # two bodies round in their own ways; * compiled again with --repo
    r"arms\.b\.output",
    r"arms\.a\.spec\.compiled\[.*",  # *
    r"plan\.rule\.(busy|clock)",  # a stricter rule
    r"rounds\[\d+\]\.(before|after)\.(neighbours.*)",  # a busy host is no reason on a GPU
    r"rounds\[\d+\]\.(before|after)\.gpu\.(clock_mhz|memory_clock_mhz|temperature|power)",
]


def codes(tmp_path, manifest):
    return {reason.code for reason in verify(open_bundle(written(tmp_path / "run", manifest)))}


def forged(change):
    manifest = copy.deepcopy(GOOD)
    change(manifest)
    return {**manifest, "figures": stats.figures(manifest)}


def test_a_good_bundle_holds_and_so_does_one_whose_host_was_busy(tmp_path):
    for manifest in (GOOD, good_gpu(busy=(1, 2))):
        assert schema.complaints(manifest) == []
        assert codes(tmp_path, manifest) == set()
        assert manifest["figures"]["left_out"] == 0


def test_a_neighbour_and_a_gpu_that_was_held_down_leave_a_round_out(tmp_path):
    manifest = good_gpu(neighbour=(2,), slow=(4,))
    left = [one["left_out"] for one in manifest["rounds"]]
    assert (left[2], left[4]) == ("another process computed on the GPU", "the GPU was slowed down: power cap")
    assert manifest["figures"]["left_out"] == 2
    assert codes(tmp_path, manifest) == set()


def test_its_shares_are_of_the_read_bandwidth_and_of_the_float_peak():
    one = GOOD["figures"]["a"]
    assert one["of_int8"] is None
    assert one["of_float"] == pytest.approx(one["operations_per_second"] / (2 * stats.peak(GOOD["rounds"], "float", "macs")), rel=0)
    assert "of_float" not in good()["figures"]["a"]


def test_show_names_the_card_and_the_float_peak(tmp_path):
    shown = page(open_bundle(written(tmp_path, GOOD)))
    assert "NVIDIA H200" in shown
    assert "of float" in shown


def a_neighbour_kept(m):
    m["rounds"][3]["after"]["gpu"]["processes"] = [{"pid": 5, "memory": None}]


def a_held_down_gpu_kept(m):
    m["rounds"][3]["before"]["gpu"]["throttle"] = ["hardware heat"]


def readings_dropped(m):
    del m["rounds"][3]["before"]["gpu"]


def readings_hidden(m):
    m["rounds"][3]["before"]["gpu"]["processes"] = None


def no_rule_about_neighbours(m):
    del m["plan"]["rule"]["alone"]


def another_target(m):
    m["machine"]["gpu"]["row"] = "sm_80"


def another_targets_code(m):
    for arm in m["arms"].values():
        arm["spec"]["isa"] = arm["witness"]["isa"] = "sm_80"


def a_card_of_another_vendor(m):
    m["machine"]["gpu"]["name"] = "AMD Instinct MI300X"


def a_small_l2(m):
    m["machine"]["gpu"]["l2"] //= 2


def the_cpus_cache(m):
    m["machine"]["last_level_cache"] //= 8


def blas_twice(m):
    m["arms"]["a"] |= {name: m["arms"]["b"][name] for name in ("spec", "witness", "artifact")}


def a_switch_that_was_not_thrown(m):
    m["arms"]["b"]["spec"]["switch"] = "1"


def kernels_kept_secret(m):
    del m["arms"]["a"]["spec"]["compiled"]


def something_more_in_the_spec(m):
    m["arms"]["a"]["spec"]["trick"] = 1


def other_libraries(m):
    m["versions"]["cublas"] = "12.0"


def half_a_graph(m):
    m["rounds"][3]["samples"][0]["repeats"] += 1


def fewer_replays_than_samples(m):
    m["arms"]["a"]["witness"]["calls"] -= m["arms"]["a"]["spec"]["calls"]


def graphs_without_whole_rotations(m):
    for arm in m["arms"].values():
        arm["spec"]["calls"] = 40


def more_memory_than_the_card_has(m):
    m["machine"]["gpu"]["memory"] = 1000


def a_small_probe(m):
    for one in m["rounds"]:
        one["probes"]["read"]["bytes"] //= 2


def an_easy_peak(m):
    for one in m["rounds"]:
        one["probes"]["float"]["macs"] //= 2


def a_cpu_with_a_card(m):
    del m["machine"]["gpu"]


def another_device(m):
    m["command"][m["command"].index("cuda")] = "cuda:1"


def kernel_of(m):
    return m["arms"]["a"]["spec"]["compiled"][0]


def another_kernels_code(m):
    kernel_of(m)["function"] = "lanewise.kernels.gpu.lanes:_combine"


def two_kernels_for_one(m):
    m["arms"]["a"]["spec"]["compiled"] *= 2


def half_a_product(m):
    kernel_of(m)["constants"][2] = [[5], True]


def a_fused_part(m):
    kernel_of(m)["constants"][3] = [[6], True]


def another_types_code(m):
    kernel_of(m)["signature"] |= {"x": "*fp16", "w": "*fp16"}


def a_wide_result(m):
    kernel_of(m)["signature"]["y"] = "*fp32"


def a_shorter_k(m):
    kernel_of(m)["constants"][1] = [[4], 32]


def no_description(m):
    kernel_of(m)["constants"] = [[[99], 1]]


WAYS = [
    *((change, "witness") for change in (another_kernels_code, two_kernels_for_one, half_a_product, a_fused_part, another_types_code, a_wide_result,
                                         a_shorter_k, no_description)),
    (a_neighbour_kept, "left-out-kept"), (a_held_down_gpu_kept, "left-out-kept"), (readings_dropped, "machine"), (readings_hidden, "machine"),
    (no_rule_about_neighbours, "plan"), (another_target, "machine"), (another_targets_code, "witness"), (a_card_of_another_vendor, "machine"),
    (a_small_l2, "machine"), (the_cpus_cache, "machine"), (blas_twice, "witness"), (a_switch_that_was_not_thrown, "witness"),
    (kernels_kept_secret, "witness"), (something_more_in_the_spec, "witness"), (other_libraries, "artifact"), (half_a_graph, "repeats"),
    (fewer_replays_than_samples, "witness"), (graphs_without_whole_rotations, "residency"), (more_memory_than_the_card_has, "residency"),
    (a_small_probe, "probe"), (an_easy_peak, "probe"), (a_cpu_with_a_card, "witness"), (another_device, "command"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "code"), WAYS, ids=[change.__name__ for change, _ in WAYS])
def test_each_way_to_mislead_with_a_gpu_is_refused_by_its_name(tmp_path, change, code):
    assert code in codes(tmp_path, forged(change))


@pytest.mark.parametrize(("path", "value"), leaves.leaves_of(GOOD))
def test_no_changed_leaf_of_a_gpus_bundle_slips(path, value):
    made = changed(GOOD, path, "power cap" if ".throttle[" in path else leaves.other(path, value))
    found = leaves.judged(made, SEAL)
    if found == {leaves.UNREADABLE}:
        assert leaves.UNREADABLE in fitting(path) or sealed_only(path)
        return
    assert "digest" in found
    if not sealed_only(path):
        assert found & fitting(path), found


def fitting(path):
    return next((right for row, right in FITTING if re.fullmatch(row, path)), leaves.fitting(path))


def sealed_only(path):
    strict = any(re.fullmatch(row, path) for row, _ in FITTING)
    return not strict and (any(re.fullmatch(row, path) for row in SEALED_ONLY) or leaves.sealed_only(GOOD, path))


def test_every_row_of_the_tables_is_about_a_leaf_of_a_gpus_bundle():
    there = [path for path, _ in leaves.paths(GOOD)]
    for row in (*(row for row, _ in FITTING), *SEALED_ONLY):
        assert any(re.fullmatch(row, path) for path in there), row


@pytest.fixture(scope="module")
def compiled():
    """A kernel for sm_90, as Triton compiles it here."""
    triton = pytest.importorskip("triton")
    from support import gpu_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {"x": "*bf16", "y": "*bf16", "n": "i32", "SIZE": "constexpr", "TWICE": "constexpr"}
    source = ASTSource(gpu_kernel.scaled, signature, {(3,): 256, (4,): True}, {(0,): [["tt.divisibility", 16]]})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2, "launch_pdl": True})


def measured_with(compiled):
    manifest = copy.deepcopy(GOOD)
    manifest["arms"]["a"]["spec"]["compiled"] = json.loads(json.dumps([launched.described(compiled)]))
    manifest["arms"]["a"]["artifact"] = launched.artifact([compiled])
    return manifest


def test_kernels_are_compiled_again_where_no_gpu_is_and_give_the_hash_that_was_measured(compiled, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_code, "HOME", "support.")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    manifest = measured_with(compiled)
    assert check_recompiled(manifest) == []
    for change in (
        lambda spec: spec["constants"].__setitem__(0, [[3], 128]),
        lambda spec: spec["options"].update(num_warps=4),
        lambda spec: spec["attributes"].clear(),
        lambda spec: spec["constants"].__setitem__(1, [[4], False]),
    ):
        other = copy.deepcopy(manifest)
        change(other["arms"]["a"]["spec"]["compiled"][0])
        assert [reason.code for reason in check_recompiled(other)] == ["artifact"]
    manifest["arms"]["a"]["artifact"] = digest(b"other")
    assert [reason.code for reason in check_recompiled(manifest)] == ["artifact"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        *((name, "is no kernel of lanewise.kernels.gpu") for name in ("os:system", "support.gpu_kernel:scaled", "lanewise.kernels.gpu.skinny:")),
        ("lanewise.kernels.gpu.config:Config", "is no compiled kernel here"),
        ("lanewise.kernels.gpu.nothing:here", "ModuleNotFoundError"),
    ],
)
def test_a_bundle_names_no_function_but_the_kernels_of_the_package(function, words):
    pytest.importorskip("triton")
    manifest = copy.deepcopy(GOOD)
    manifest["arms"]["a"]["spec"]["compiled"] = [{**COMPILED[0], "function": function}]
    (reason,) = check_recompiled(manifest)
    assert (reason.code, words in reason.found) == ("recompile", True)


@pytest.mark.parametrize(
    ("constant", "value"), [("M", 10**9), ("M", -1), ("AHEAD", 1 << 40), ("TILE", 1 << 20), ("ROWS", "x"), ("GROUPS", 17), ("num_warps", 64)]
)
def test_a_kernel_whose_compiling_would_not_end_is_not_compiled(monkeypatch, constant, value):
    monkeypatch.setattr("lanewise.evidence.recompile.compiled_again", lambda *given: pytest.fail("compiled"))
    monkeypatch.setattr("lanewise.evidence.recompile.metadata.version", lambda name: GOOD["versions"]["triton"])
    manifest = copy.deepcopy(GOOD)
    one = kernel_of(manifest)
    if constant == "num_warps":
        one["options"][constant] = value
    else:
        one["signature"] |= {constant: "constexpr"}
        one["constants"].append([[list(one["signature"]).index(constant)], value])
    (reason,) = check_recompiled(manifest)
    assert (reason.code, f"{constant} of a kernel is {value}" in reason.found) == ("recompile", True)


def test_another_triton_cannot_say_anything_about_the_code(compiled):
    manifest = measured_with(compiled)
    manifest["versions"]["triton"] = "2.0.0"
    (reason,) = check_recompiled(manifest)
    assert (reason.code, reason.found) == ("recompile", "triton 2.0.0 there and 3.6.0 here")


def test_the_hash_knows_no_path_no_line_and_no_debugger(compiled):
    code = compiled.asm["ptx"]
    moved = code.replace(".loc\t1 ", ".loc\t2 ").replace("gpu_kernel.py", "elsewhere.py").replace(".version 8", ".version 9")
    assert moved != code
    assert launched.plain(moved) == launched.plain(code)
    assert "gpu_kernel" not in launched.plain(code)
    assert launched.plain(code.replace("st.global", "st.shared")) != launched.plain(code)


def test_a_constant_that_is_no_constant_is_refused():
    with pytest.raises(EvidenceError, match="nothing that a kernel is compiled with"):
        gpu_code._again({"type": "no type"})
