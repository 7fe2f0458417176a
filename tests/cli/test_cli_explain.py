"""`lanewise explain` and `lanewise targets`: the choice, every refusal in words, and no level without a record."""

import pytest
from cli_fakes import lanewise, read

from lanewise import arch, dispatch
from lanewise.cli import targets
from lanewise.contract import Guard, Kernel
from lanewise.kernels.gpu.quant_config import default
from lanewise.kernels.gpu.table import choose


@pytest.fixture
def paired(monkeypatch):
    """A kernel in front of the reference that takes an even n only."""
    monkeypatch.setattr(dispatch, "_REGISTRY", {op: list(row) for op, row in dispatch._REGISTRY.items()})
    even = Guard("n_even", lambda p: p.n % 2 == 0, "each wave stores two columns")
    return dispatch.register(Kernel("paired", "linear", run=print, guards=(even,), body="cpu"), before="cpu_linear")


def test_the_choice_and_the_refusals_are_printed_in_order(paired):
    done = lanewise("explain", "linear", "--arch", "x86-64-v3", "--m", "1", "--n", "3", "--k", "64")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "linear m=1 n=3 k=64 f32 on x86-64-v3",
        "  skinny refuses (gpu): x86-64-v3 is no GPU of AMD or NVIDIA; the kernel is written for theirs",
        "  blas refuses (torch): operands are numpy arrays; this kernel takes torch tensors",
        "  paired refuses (n_even): each wave stores two columns",
        "  cpu_linear (cpu) runs",
        "  reference_linear (reference) would accept, but comes later",
    ]


def test_json_says_the_same(paired):
    answer = read(lanewise("explain", "linear", "--arch", "x86-64-v3", "--n", "3", "--k", "64", "--json"))
    sizes = {"op": "linear", "arch": "x86-64-v3", "m": 1, "n": 3, "k": 64, "dtype": "f32", "format": None}
    assert answer["problem"] == {**sizes, "out": "f32", "fused": [], "grad": False, "torch": False, "card": None}
    assert answer["chosen"] == "cpu_linear"
    assert answer["kernels"][2] == {
        "name": "paired",
        "body": "cpu",
        "accepts": False,
        "guard": "n_even",
        "why": "each wave stores two columns",
        "note": None,
    }
    assert answer["kernels"][4] == {"name": "reference_linear", "body": "reference", "accepts": True, "guard": None, "why": None, "note": None}


def test_a_kernel_for_gpus_says_how_it_would_run_and_where_that_is_from():
    done = lanewise("explain", "linear", "--arch", "gfx1100", "--m", "1", "--n", "50257", "--k", "1024", "--dtype", "bf16")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "linear m=1 n=50257 k=1024 bf16 on gfx1100"
    choice = choose(arch.parse("gfx1100"), "bf16", 1, 50257, 1024)
    assert lines[1] == f"  skinny (gpu) runs: {choice.config} ({choice.source})"
    assert lines[2] == "  blas (blas) would accept, but comes later"
    assert [line.split()[:2] for line in lines[3:]] == [["cpu_linear", "refuses"], ["reference_linear", "refuses"]]


def test_what_a_call_wants_besides_the_product_is_part_of_the_problem():
    more = ("--out", "f32", "--fused", "norm, gated", "--grad", "--card", "a card")
    done = lanewise("explain", "linear", "--arch", "gfx942", "--n", "8", "--k", "8", "--dtype", "f16", *more)
    lines = done.stdout.splitlines()
    assert lines[0] == "linear m=1 n=8 k=8 f16 out=f32 fused=norm,gated with gradient on gfx942 (a card)"
    assert lines[1:3] == ["  skinny refuses (gradient): a gradient is wanted; the kernel has no backward", "  blas (blas) runs"]
    problem = read(lanewise("explain", "linear", "--arch", "gfx942", "--dtype", "f16", *more, "--json"))["problem"]
    assert (problem["out"], problem["fused"], problem["grad"], problem["torch"], problem["card"]) == ("f32", ["norm", "gated"], True, True, "a card")


def test_on_a_cpu_it_is_about_numpy_arrays_unless_tensors_are_meant():
    assert read(lanewise("explain", "linear", "--json"))["chosen"] == "cpu_linear"
    done = lanewise("explain", "linear", "--arch", "x86-64-v3", "--torch", "--n", "8", "--k", "8")
    assert done.stdout.splitlines()[0] == "linear m=1 n=8 k=8 f32 of torch tensors on x86-64-v3"
    assert "blas (blas) runs" in done.stdout
    assert "reference_linear refuses (numpy): operands are torch tensors" in done.stdout


def test_of_quantized_weights_it_says_which_kernel_and_how_and_every_refusal(monkeypatch):
    asked = (
        "explain",
        "quant_linear",
        "--arch",
        "sm_90",
        "--format",
        "Q4_K",
        "--m",
        "1",
        "--n",
        "256",
        "--k",
        "512",
    )  # far from what the shipped table has
    lines = lanewise(*asked).stdout.splitlines()
    config = default(arch.parse("sm_90"), "Q4_K", 1, 256, 512)
    assert lines[:4] == [
        "quant_linear m=1 n=256 k=512 f32 format=Q4_K on sm_90",
        f"  quant_gemv (gpu) runs: {config} (default for wave32)",
        "  quant_gemm (gpu) would accept, but comes later",
        "  quant_blas (blas) would accept, but comes later",
    ]
    assert [line.split()[:2] for line in lines[4:]] == [["cpu_quant_linear", "refuses"], ["reference_quant_linear", "refuses"]]
    monkeypatch.setenv("LANEWISE_QUANT_GEMV", "0")
    assert "  quant_gemm (gpu) runs" in lanewise(*asked).stdout.splitlines()


def test_without_a_kernel_the_exit_code_is_1_and_every_refusal_is_there():
    done = lanewise("explain", "quant_linear", "--arch", "gfx942:xnack-", "--format", "q4_k", "--k", "100", "--json")
    assert done.exit_code == 1
    answer = read(done)
    assert (answer["chosen"], answer["problem"]["arch"], answer["problem"]["format"]) == (None, "gfx942:xnack-", "Q4_K")
    assert all(kernel["why"] for kernel in answer["kernels"])
    assert lanewise("explain", "linear", "--dtype", "bf16", "--arch", "x86-64").exit_code == 1


def test_an_op_without_kernels_says_so(monkeypatch):
    monkeypatch.setitem(dispatch._REGISTRY, "linear", [])
    done = lanewise("explain", "linear")
    assert done.exit_code == 1
    assert "no kernel is registered for this op" in done.stdout


def test_a_switch_takes_a_kernel_out(monkeypatch):
    monkeypatch.setenv("LANEWISE_REFERENCE", "0")
    monkeypatch.setenv("LANEWISE_CPU_KERNELS", "0")
    done = lanewise("explain", "linear")
    assert done.exit_code == 1
    assert "LANEWISE_CPU_KERNELS has switched it off" in done.stdout
    assert "LANEWISE_REFERENCE has switched it off" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("conv",), "unknown op 'conv'; known ops: linear"),
        (("linear", "--arch", "gfx9"), "unknown target 'gfx9'; known targets: gfx900"),
        (("linear", "--arch", ""), "unknown target ''"),
        (("linear", "--dtype", "fp8"), "unknown dtype 'fp8'"),
        (("quant_linear", "--format", "Q9"), "unknown format 'Q9'"),
        (("linear", "--n", "-1"), "sizes are not negative"),
        (("linear", "--out", "int4"), "unknown dtype 'int4'"),
        (("linear", "--fused", "norm,wings"), "unknown fused part 'wings'; known parts: norm, bias, gated, residual"),
    ],
)
def test_a_problem_that_cannot_be_is_the_users_mistake(args, words):
    done = lanewise("explain", *args)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


def test_targets_shows_every_row_and_marks_this_machine():
    lines = lanewise("targets").stdout.splitlines()
    names = [line.split()[0] for line in lines[1 : 1 + len(arch.TARGETS)]]
    assert names == list(arch.TARGETS)
    assert [line.split()[0] for line in lines if "(this machine)" in line] == [arch.host().name]
    assert max(map(len, lines[: 1 + len(arch.TARGETS)])) < 120


def test_no_target_has_a_level_without_a_record(monkeypatch):
    rows = read(lanewise("targets", "--json"))
    assert {row["name"]: row["level"] for row in rows if row["level"] != "none yet"} == {"sm_90": "measured"}
    assert [row["name"] for row in rows if row["host"]] == [arch.host().name]
    assert {row["name"]: row["wave"] for row in rows} == {row.name: row.wave for row in arch.TARGETS.values()}
    monkeypatch.setattr(targets, "_measured", frozenset)
    assert targets.level("sm_90") == "none yet"


def test_the_table_is_readable_on_a_processor_without_a_row(monkeypatch):
    arch.host.cache_clear()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    try:
        assert "(this machine)" not in lanewise("targets").stdout
    finally:
        arch.host.cache_clear()
