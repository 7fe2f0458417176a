"""`lanewise tune --format` on a GPU that is none: what is tried where, what is kept, and the table that `choose_quant` reads."""

import json

import pytest
import torch
from click.testing import CliRunner
from support import gpu
from support.gpu_bundles import NAME, ROW
from test_bench_cuda import compiled

from lanewise.bench import tune, tune_quant
from lanewise.bench.tune import TunePlan, write_table
from lanewise.bench.tune_quant import Quantized
from lanewise.bench.tune_subject import TuneProblem
from lanewise.cli import app
from lanewise.errors import FormatError, LanewiseError, ShapeError
from lanewise.formats import FORMATS
from lanewise.kernels.gpu import table as tables
from lanewise.kernels.gpu.quant_config import QuantConfig, candidates
from lanewise.kernels.gpu.quant_expand import expand
from lanewise.kernels.gpu.quant_layout import LAYOUTS
from lanewise.kernels.gpu.quant_table import QUANT, choose_quant

FAST, SLOW, WRONG, BROKEN = (QuantConfig("tiles", warps, 1, 8) for warps in (8, 4, 2, 1))
WIDE = QuantConfig("tiles", 8, 1, 16)
HUGE = QuantConfig("tiles", 8, 4, 32)
COST = {FAST: 4e-6, SLOW: 9e-6, WRONG: 2e-6, WIDE: 3e-6, HUGE: 1e-6}
SHAPE = (32, 512)


@pytest.fixture(autouse=True)
def _card(monkeypatch):
    """Configurations whose times are known; weights in front of BLAS take 7 us."""
    gpu.install(monkeypatch, [compiled()])
    gpu.keep_time(monkeypatch)
    monkeypatch.setattr("lanewise.bench.shapes._POOL", 64)

    def kernel(x, w, *, out, constant_w, config, arch):
        assert (constant_w, arch, out) == (True, ROW, torch.bfloat16)
        if config == BROKEN:
            raise RuntimeError("out of resource: registers")
        operands = gpu._definition("quant_gemv", x, w)
        y = gpu._product("quant_gemv", *operands, COST[config])
        if config == WRONG and gpu.LOG.capturing:
            gpu._WRITES[-1] = (y, 2 * operands[0], operands[1])
        return y

    def linear(x, w, plain=torch.nn.functional.linear):
        return gpu._product("quant_gemm", x, w, 7e-6) if gpu.LOG.capturing else plain(x, w)

    monkeypatch.setattr(tune_quant, "quant_gemv", kernel)
    monkeypatch.setattr(tune_quant, "act_quant", lambda x, kind, arch: x)
    monkeypatch.setattr(tune_quant, "dequantize", lambda w, dtype, arch: expand(w, dtype))
    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    monkeypatch.setattr(tune, "compile_all", lambda wanted, row, processes, progress: [])
    monkeypatch.setattr(tune_quant, "candidates", lambda row, fmt, m, n, k: (FAST, SLOW, *((WIDE, HUGE) if m > 8 else ()), QuantConfig("blas")))


def tuned(**options):
    return tune.tune(TunePlan(**{"shapes": (SHAPE,), "rows": (1,), "dtypes": ("bf16",), "formats": ("Q4_K",), **options}))


def test_the_fastest_cut_of_each_format_and_m_is_kept_beside_blas_on_weights_expanded_at_every_call():
    table, notes = tuned(formats=("Q4_K", "Q8_0"), rows=(1, 16))
    assert notes == []
    assert table.kind is QUANT
    assert [(row.name, row.m, row.config) for row in table.rows] == [(f, m, WIDE if m > 8 else FAST) for f in ("Q4_K", "Q8_0") for m in (1, 16)]
    assert all(row.seconds < row.blas_seconds for row in table.rows)


def test_where_expanding_is_faster_the_table_says_blas(monkeypatch):
    monkeypatch.setitem(COST, FAST, 2e-5)
    monkeypatch.setitem(COST, SLOW, 2e-5)
    (row,) = tuned()[0].rows
    assert (row.config, row.seconds) == (QuantConfig("blas"), row.blas_seconds)


def test_a_wrong_result_is_not_kept_and_what_cannot_run_is_said(monkeypatch):
    monkeypatch.setattr(tune_quant, "candidates", lambda *problem: (WRONG, FAST, BROKEN, QuantConfig("blas")))
    monkeypatch.setattr(tune._Tuner, "_compiled", lambda self, chosen: None)
    table, notes = tuned()
    assert table.rows[0].config == FAST
    assert any("gives a wrong result" in note for note in notes)
    assert f"Q4_K m=1 32x512: {BROKEN}: RuntimeError: out of resource: registers" in notes


def test_all_cuts_are_tried_at_one_token_and_at_the_next_m_and_the_best_with_every_number_of_tokens_at_others():
    one = Quantized(None, ROW, ("Q4_K",), (1, 4, 16), "bf16")
    alone, first, more = (TuneProblem("Q4_K", m, *SHAPE) for m in (1, 4, 16))
    assert (one.explored(alone), one.explored(first), one.explored(more)) == ([FAST, SLOW], [FAST, SLOW], [])
    assert one.rest(more, {alone: {SLOW: 1.0}, first: {FAST: 1.0, SLOW: 2.0}}) == [FAST, SLOW, WIDE]
    assert one.rest(more, {first: {SLOW: 2.0}}) == [SLOW]
    assert one.rest(more, {}) == [FAST, SLOW, WIDE, HUGE]


def test_candidates_are_those_of_the_kernels_without_blas_and_few_are_compiled_for_prompts(monkeypatch):
    monkeypatch.setattr(tune_quant, "candidates", candidates)
    one = Quantized(None, ROW, tuple(LAYOUTS), (1, 512), "bf16")
    first, prompt = (TuneProblem("Q4_K", m, 4096, 14336) for m in (1, 512))
    tried = one.explored(first)
    assert tried == list(candidates(ROW, *first)[:-1])
    rest = one.rest(prompt, {first: {config: float(place) for place, config in enumerate(tried)}})
    assert {tune_quant._cut(config) for config in rest} == {tune_quant._cut(config) for config in tried[:4]}
    assert {config.tokens for config in rest} == {8, 16, 32, 64}


def test_one_x_serves_every_m_so_that_rows_are_drawn_once():
    one = Quantized(gpu.Gpu(0), ROW, ("Q6_K",), (1, 4), "bf16")
    weights = one.weights("Q6_K", *SHAPE)
    assert sum(w.nbytes for w in weights) >= 4 * gpu.CACHE
    assert len({w.tiles.data_ptr() for w in weights}) == len(weights)
    few, many = (one.x(TuneProblem("Q6_K", m, *SHAPE)) for m in (1, 4))
    assert torch.equal(few, many[:1])
    stand_in = one.stand_ins(TuneProblem("Q6_K", 4, *SHAPE))
    assert (stand_in[0].shape, stand_in[1].tiles.shape) == (many.shape, weights[0].tiles.shape)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [({"formats": ("F16",)}, FormatError, "F16 is not quantized"), ({"formats": ("Q9",)}, FormatError, "has no layout for GPUs"),
     ({"shapes": ((4, 100),)}, FormatError, "Q4_K"), ({"dtypes": ("bf16", "f16")}, ShapeError, "with x of one"),
     ({"rows": (0,)}, ShapeError, "it is 1 to 65536"), ({"rows": (70000,)}, ShapeError, "it is 1 to 65536")],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_refused(options, error, words):
    with pytest.raises(error) as refused:
        tuned(**options)
    assert words in str(refused.value)


def test_weights_that_do_not_fit_are_said_before_anything_is_compiled(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1000, 1000))
    nbytes = 32 * FORMATS["Q4_K"].row_bytes(512)
    monkeypatch.setattr(tune, "compile_all", lambda *given: pytest.fail("compiled"))
    with pytest.raises(LanewiseError, match=f"1 copy of 32x512 weights need {nbytes} bytes, and the GPU has 1000 left"):
        tuned()


def test_a_written_table_is_what_the_next_choice_reads_and_linear_has_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    words = ["tune", "--format", "q4_k", "--shapes", "32x512", "--m", "1", "--write", "--out", str(tmp_path / "table.json")]
    ran = CliRunner().invoke(app, words)
    assert (ran.exit_code, f"Q4_K  1  32x512  {FAST}" in ran.stdout) == (0, True)
    assert {path.name for path in tmp_path.glob("*.json")} == {"quant-nvidia-h200.json", "table.json"}
    chosen = choose_quant(ROW, "Q4_K", 1, *SHAPE, NAME)
    assert (chosen.config, chosen.source.partition(",")[0]) == (FAST, "user table")
    assert "user table" not in tables.choose(ROW, "bf16", 1, *SHAPE, NAME).source
    tables.forget()


def test_the_command_line_takes_all_formats_at_once_and_prints_rows_as_json(monkeypatch):
    plans, plain = [], tune.tune
    monkeypatch.setattr(tune, "tune", lambda plan, progress: plans.append(plan) or plain(TunePlan((SHAPE,), (1,), ("bf16",), formats=("Q6_K",))))
    ran = CliRunner().invoke(app, ["tune", "--format", "all", "--shapes", "64x1024", "--m", "1,8", "--json"])
    assert [(plan.formats, plan.dtypes, plan.rows) for plan in plans] == [(tuple(LAYOUTS), ("bf16",), (1, 8))]
    assert [(row["format"], row["config"]["warps"]) for row in json.loads(ran.stdout)["rows"]] == [("Q6_K", 8)]


def test_a_table_in_a_file_is_the_table_that_was_measured(tmp_path):
    table, _ = tuned()
    write_table(table, tmp_path / "one.json")
    assert tables.read(tmp_path / "one.json", QUANT) == table


def test_a_table_that_is_there_keeps_its_rows_of_other_problems(tmp_path):
    path = tmp_path / "table.json"
    words = ["tune", "--format", "Q4_K", "--shapes", "32x512", "--add", "--out", str(path)]
    for more in (["--m", "1,4"], ["--m", "16"], ["--m", "4"]):
        assert CliRunner().invoke(app, [*words, *more]).exit_code == 0
    assert [row.m for row in tables.read(path, QUANT).rows] == [1, 16, 4]
    path.write_text(path.read_text().replace('"triton": "', '"triton": "0'))
    ran = CliRunner().invoke(app, [*words, "--m", "1"])
    assert (ran.exit_code, "is a table of something else: triton 0" in ran.stderr, f"{FAST}" in ran.stdout) == (2, True, True)
    path.write_text("no table")
    assert "is no table of configurations" in CliRunner().invoke(app, [*words, "--m", "1"]).stderr


@pytest.mark.parametrize("name", ["", "Q4_K,", "all,Q4_K"])
def test_a_name_of_no_format_does_not_tune_something_else(name):
    ran = CliRunner().invoke(app, ["tune", "--format", name])
    assert (ran.exit_code, "has no layout for GPUs" in ran.stderr) == (2, True)
