"""The machine code that a process says that it ran is compiled again: what a real run wrote is found, and anything else is not."""

import copy
import json
from collections import Counter

import numpy as np
import pytest
from support.bundles import OPS, good_command, witnessed_again
from support.small import SMALL

from lanewise import launched, witness
from lanewise.backends import backend_for
from lanewise.bench import gpu_code, random_model
from lanewise.bench.manifest import digest
from lanewise.bench.model import _batches
from lanewise.bench.process import common
from lanewise.engine.witness import watching
from lanewise.evidence.recompile import check_recompiled
from lanewise.models import spec_of

ISA = "x86-64-v2"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """What a run of a small model says of itself."""
    path = tmp_path_factory.mktemp("run") / "witness"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANEWISE_WITNESS", str(path))
        patch.setenv("LANEWISE_CPU_ISA", ISA)
        with random_model(SMALL, "F32") as file:
            runner = backend_for("cpu").lower(spec_of(file), file, threads=1)
            runner.allocate(2, 16)
            watcher = watching(runner, "cpu")
            for batch in _batches(np.array([5, 6, 7], np.int32), 8, every=False):
                runner.step(batch)
            watcher.close()
            runner.close()
    (process,) = common("a", path.read_text())
    return process


@pytest.fixture(scope="module")
def kernel():
    """A kernel for sm_90, as Triton compiles it here."""
    triton = pytest.importorskip("triton")
    from support import gpu_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {"x": "*bf16", "y": "*bf16", "n": "i32", "SIZE": "constexpr", "TWICE": "constexpr"}
    source = ASTSource(gpu_kernel.scaled, signature, {(3,): 128, (4,): True}, {(0,): [["tt.divisibility", 16]]})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2})


def bundle(process, **fields):
    made = good_command()
    for arm in made["arms"].values():
        arm["witness"] = [{**copy.deepcopy(process), **fields}]
    witnessed_again(made)
    return made


def found(manifest):
    return {(reason.code, reason.where) for reason in check_recompiled(manifest)}


def both(code, field):
    return {(code, f"arms.{name}.witness[0].{field}") for name in "ab"}


def test_what_a_run_of_a_model_wrote_is_what_its_kernels_compile_to(model):
    assert (model["isa"], set(model["compiler"])) == (ISA, {"llvmlite", "llvm"})
    assert {"matmul_F32", "embed_F32", "attend_64"} <= set(model["kernels"])
    assert found(bundle(model)) == set()


@pytest.mark.parametrize(
    "change",
    [
        lambda one: {"code": digest(b"other code")},
        lambda one: {"kernels": one["kernels"][1:]},
        lambda one: {"kernels": [name.replace("F32", "F16") for name in one["kernels"]]},
        lambda one: {"kernels": [name.replace("attend_64", "attend_80") for name in one["kernels"]]},
        lambda one: {"isa": "x86-64-v3"},
    ],
    ids=["code", "a kernel gone", "another format", "another head", "another instruction set"],
)
def test_code_kernels_or_an_instruction_set_that_were_not_run_are_refused_with_every_hash_made_again(model, change):
    assert found(bundle(model, **change(model))) == both("artifact", "code")


def test_another_compiler_and_kernels_that_are_none_can_say_nothing_about_the_code(model):
    other = {"compiler": {**model["compiler"], "llvm": "1.0"}, "code": digest(b"other code")}
    assert found(bundle(model, **other)) == both("recompile", "code")
    assert found(bundle(model, isa="x86-64-v9")) == both("recompile", "kernels")


def test_a_process_that_compiled_nothing_has_nothing_to_be_compiled_again(model):
    assert found(bundle(model, isa=None, code=None)) == set()


def test_the_kernels_of_a_process_of_ops_are_compiled_again_where_no_gpu_is(kernel, monkeypatch, tmp_path):
    for module in (gpu_code, witness):
        monkeypatch.setattr(module, "HOME", "support.")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    foreign = copy.copy(kernel)
    foreign.src = copy.copy(kernel.src)
    foreign.src.fn = copy.copy(kernel.src.fn)
    foreign.src.fn.__module__ = "somebody.elses"
    line = witness._of_ops(Counter(skinny=2), [foreign, kernel])
    assert (line["isa"], line["compiled"]) == ("sm_90", json.loads(json.dumps([launched.described(kernel)])))
    (process,) = common("a", json.dumps(line))
    assert found(bundle(process)) == set()
    assert found(bundle(process, code=digest(b"other code"))) == both("artifact", "code")
    other = copy.deepcopy(process["compiled"])
    other[0]["constants"][0][1] = 256
    assert found(bundle(process, compiled=other)) == both("artifact", "code")
    assert found(bundle(process, compiler={"triton": "2.0.0"})) == both("recompile", "code")
    assert found(bundle(process, isa="sm_90, sm_89")) == both("recompile", "isa")
    assert found(bundle(process, compiled=OPS["compiled"])) == both("recompile", "compiled")


def test_a_process_of_ops_without_triton_still_says_what_ran(monkeypatch):
    monkeypatch.setattr(witness, "recorded", lambda: (_ for _ in ()).throw(ImportError("no triton")))
    with witness.ExitStack() as until:
        assert witness._launching(until) == []
    line = witness._of_ops(Counter(blas=1), [])
    assert (line["isa"], line["code"], line["compiler"], line["compiled"]) == (None, None, None, [])
