"""`lanewise tune --format --experts` on a GPU that is none: what is tried and kept, and the table that dispatch of grouped_linear reads."""

import pytest
import torch
from click.testing import CliRunner
from support import gpu
from support.gpu_bundles import NAME, ROW
from test_bench_cuda import compiled

from lanewise import arch
from lanewise.bench import tune, tune_grouped
from lanewise.bench.tune import TunePlan
from lanewise.bench.tune_grouped import Experts
from lanewise.bench.tune_subject import TuneProblem
from lanewise.cli import app
from lanewise.contract import Problem
from lanewise.errors import DeviceError, ShapeError
from lanewise.kernels.gpu import experts as dispatching
from lanewise.kernels.gpu import table as tables
from lanewise.kernels.gpu.grouped_config import GroupedConfig, candidates, default
from lanewise.kernels.gpu.grouped_table import GROUPED, GroupedRow, choose_grouped
from lanewise.kernels.gpu.quant_expand import expand

FAST, SLOW, WRONG = (GroupedConfig("tiles", warps, 1) for warps in (4, 2, 1))
ORDERED = GroupedConfig("tiles", 4, 1, ordered=True)
COST = {FAST: 4e-6, SLOW: 9e-6, WRONG: 2e-6, ORDERED: 3e-6}
SHAPE = (16, 512)


@pytest.fixture(autouse=True)
def _card(monkeypatch):
    """Configurations whose times are known; each expert takes 7 us in front of BLAS."""
    gpu.install(monkeypatch, [compiled()])
    gpu.keep_time(monkeypatch)
    monkeypatch.setattr("lanewise.bench.shapes._POOL", 64)

    def kernel(x, w, ids, *, out, constant_w, ids_ready, ordered, config, arch):
        assert (constant_w, ids_ready, arch, out) == (True, True, ROW, torch.bfloat16)
        one = next(known for known in COST if (known.cut, known.ordered) == (config, ordered))
        y = gpu._routed(x, w, ids, COST[one])
        if one == WRONG and gpu.LOG.capturing:
            of, operand, every = gpu._WRITES[-1]
            gpu._WRITES[-1] = (of, 2 * operand, every)
        return y

    def linear(x, w, plain=torch.nn.functional.linear):
        return gpu._product("quant_gemm", x, w, 7e-6) if gpu.LOG.capturing else plain(x, w)

    monkeypatch.setattr(tune_grouped, "grouped", kernel)
    monkeypatch.setattr(tune_grouped, "dequantize", lambda w, dtype, arch: expand(w, dtype))
    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    monkeypatch.setattr(tune, "compile_all", lambda wanted, row, processes, progress: [])
    monkeypatch.setattr(tune_grouped, "candidates", lambda row, pairs, k: (FAST, SLOW, *((ORDERED,) if pairs > 8 else ())))


def tuned(**options):
    given = {"shapes": (SHAPE,), "rows": (1,), "dtypes": ("bf16",), "formats": ("Q4_K",), "experts": 8, "top": 2}
    return tune.tune(TunePlan(**given | options))


def test_the_fastest_cut_is_kept_by_pairs_and_experts():
    table, notes = tuned(rows=(1, 6))
    assert (notes, table.kind) == ([], GROUPED)
    assert [(row.name, row.m, row.experts, row.config) for row in table.rows] == [
        ("Q4_K of 8 experts", m, 8, c) for m, c in ((2, FAST), (12, ORDERED))
    ]
    assert all(row.seconds < row.blas_seconds for row in table.rows)


def test_the_kernel_is_kept_where_blas_is_faster_for_dispatch_has_nothing_else(monkeypatch):
    for config in (FAST, SLOW):
        monkeypatch.setitem(COST, config, 1e-3)
    (row,) = tuned()[0].rows
    assert row.config in (FAST, SLOW)
    assert row.seconds > row.blas_seconds


def test_a_wrong_result_is_not_kept_and_where_there_is_no_other_it_is_said(monkeypatch):
    monkeypatch.setattr(tune_grouped, "candidates", lambda *problem: (WRONG, FAST))
    table, notes = tuned()
    assert table.rows[0].config == FAST
    assert any("gives a wrong result" in note for note in notes)
    monkeypatch.setattr(tune_grouped, "candidates", lambda *problem: (WRONG,))
    with pytest.raises(DeviceError, match="no configuration gives a right result, and nothing else runs it"):
        tuned()


@pytest.mark.parametrize("m", [1, 3, 40])
def test_between_two_reads_of_an_expert_lie_four_caches(m):
    one = Experts(gpu.Gpu(0), ROW, ("Q4_K",), (1, 3, 40), "bf16", 8, 2)
    turns = one.weights("Q4_K", *SHAPE)
    x = one.x(TuneProblem("Q4_K", m, *SHAPE))
    each = turns[0].weight.nbytes // 8
    reads = [(turn.weight.tiles.data_ptr(), int(e)) for turn in (*turns, *turns) for e in set(x.at(turn).flatten().tolist())]
    last = {}
    for place, read in enumerate(reads):
        assert read not in last or (place - last[read]) * each >= 4 * gpu.CACHE
        last[read] = place


def test_candidates_have_both_orders_where_either_may_pay_and_one_body(monkeypatch):
    few, many = candidates(ROW, 8, 2048), candidates(ROW, 128, 2048)
    assert not any(config.ordered for config in few)
    assert {config.ordered for config in many} == {True, False}
    assert default(ROW, 8, 128, 2048) in few
    assert default(ROW, 4096, 128, 2048) in many
    assert {config.body for config in candidates(arch.parse("gfx1100"), 128, 2048)} == {"dots"}
    assert all(config.ahead <= -(-8 // config.warps) for config in many)


def test_a_written_table_is_what_dispatch_reads_for_about_as_many_experts(monkeypatch, tmp_path):
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    words = ["tune", "--format", "q4_k", "--experts", "8", "--top", "2", "--shapes", "16x512", "--m", "1,6", "--write"]
    ran = CliRunner().invoke(app, words)
    assert (ran.exit_code, f"Q4_K of 8 experts  12  16x512  {ORDERED}" in ran.stdout) == (0, True), ran.output
    assert {path.name for path in tmp_path.glob("*.json")} == {"grouped-nvidia-h200.json"}
    chosen = choose_grouped(ROW, "Q4_K", 12, *SHAPE, 9, NAME)
    assert (chosen.config, chosen.source.partition(",")[0]) == (ORDERED, "user table")
    for other in (("Q4_K", 12, *SHAPE, 64), ("Q8_0", 12, *SHAPE, 8), ("Q4_K", 13, *SHAPE, 8), ("Q4_K", 12, 4096, 4096, 8)):
        assert "default" in choose_grouped(ROW, *other, NAME).source
    problem = Problem("grouped_linear", ROW, 2, *SHAPE, "bf16", "Q4_K", card=NAME, experts=8)
    assert dispatching._note(problem).startswith(f"{FAST} (user table, measured at m=2")
    tables.forget()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"experts": 0}, "experts=0"), ({"experts": True}, "experts=True"), ({"config": {"body": "tiles", "ordered": 1}}, "ordered=1"),
     ({"config": {"body": "tiles", "splits": 2}}, "splits"), ({"config": {"body": "tiles", "warps": 3}}, "warps=3"), ({"format": "F16"}, "F16")],
)  # fmt: skip
def test_a_row_that_is_none_is_refused(change, words):
    good = {
        "format": "Q4_K",
        "m": 8,
        "n": 16,
        "k": 256,
        "experts": 8,
        "config": {"body": "tiles", "ordered": True},
        "seconds": 1.0,
        "blas_seconds": 1.0,
    }
    assert isinstance(GROUPED.row(good), GroupedRow)
    with pytest.raises((ValueError, ShapeError), match=words):
        GROUPED.row(good | change)


def test_a_table_does_not_change_the_body_of_a_target():
    assert GROUPED.fits(GroupedConfig("tiles"), ROW, 1)
    assert not GROUPED.fits(GroupedConfig("dots"), ROW, 1)
    assert not GROUPED.fits(GroupedConfig("blas"), ROW, 1)
    assert GROUPED.fits(GroupedConfig("dots"), arch.parse("gfx1100"), 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"top": 9}, "experts=8, top=9"), ({"top": 0}, "top=0"), ({"formats": ()}, "of formats nothing"), ({"experts": 0}, "experts=0, top=2"),
     ({"experts": 1 << 24, "rows": (2,)}, "a routing is drawn of at most")],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_refused(options, words):
    with pytest.raises(ShapeError, match=words):
        tuned(**options)


@pytest.mark.parametrize("words", [["--top", "2", "--format", "Q4_K"], ["--experts", "8"]])
def test_experts_need_a_format_and_a_top_needs_experts(words):
    ran = CliRunner().invoke(app, ["tune", *words])
    assert (ran.exit_code, "--top says how many of --experts" in ran.stderr) == (2, True)
