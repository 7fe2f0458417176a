"""`lanewise tune` and `bench sweep` on a GPU that is none: what is tried where, what is kept, and the table that `choose` reads."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from click.testing import CliRunner
from support import gpu
from support.gpu_bundles import NAME, ROW
from test_bench_cuda import compiled

from lanewise.bench import gpu_compile, tune
from lanewise.bench.sweep import SHAPES, calls_of, name_of, sweep
from lanewise.bench.tune import TunePlan, write_table
from lanewise.bench.tune_subject import TuneProblem
from lanewise.cli import app
from lanewise.errors import DeviceError, EvidenceError, LanewiseError
from lanewise.evidence import open_bundle
from lanewise.kernels.gpu import skinny as kernels
from lanewise.kernels.gpu import table as tables
from lanewise.kernels.gpu.config import BODIES, Config

FAST, SLOW, WRONG, BROKEN = (Config("lanes", rows, 256, 4) for rows in (2, 4, 8, 16))
MATRIX = Config("matrix", 16, 128, 4)
COST = {FAST: 4e-6, SLOW: 9e-6, WRONG: 3e-6, MATRIX: 5e-6}
SHAPE = (64, 256)


@pytest.fixture(autouse=True)
def _card(monkeypatch, request):
    """Configurations whose times are known; BLAS takes 6 us."""
    gpu.install(monkeypatch, [compiled()])
    if "sweep" not in request.node.name:  # those measure by the clock that also says when
        gpu.keep_time(monkeypatch)

    def skinny(x, w, *, constant_w, config, arch):
        assert constant_w
        assert arch == ROW
        if config == BROKEN:
            raise RuntimeError("out of resource: shared memory")
        y = gpu._product("skinny", x, w, COST[config])
        if config == WRONG and gpu.LOG.capturing:
            gpu._WRITES[-1] = (y, 2 * x, w)
        return y

    def linear(x, w, plain=torch.nn.functional.linear):
        return gpu._product("blas", x, w) if gpu.LOG.capturing else plain(x, w)

    monkeypatch.setattr(kernels, "skinny", skinny)
    monkeypatch.setattr(tune.torch.nn.functional, "linear", linear)
    monkeypatch.setattr(tune, "compile_all", lambda wanted, row, processes, progress: [])
    monkeypatch.setattr(tune, "candidates", lambda row, dtype, m, n, k: (FAST, SLOW, *((MATRIX,) if m > 1 else ()), Config("blas")))


def tuned(**options):
    return tune.tune(TunePlan(**{"shapes": (SHAPE,), "rows": (1, 2), "dtypes": ("bf16",), **options}))


def test_the_fastest_configuration_is_kept_beside_what_blas_took():
    table, notes = tuned()
    assert notes == []
    assert [(row.dtype, row.m, row.n, row.k, row.config) for row in table.rows] == [("bf16", m, *SHAPE, FAST) for m in (1, 2)]
    assert all(row.seconds < row.blas_seconds for row in table.rows)


def test_where_nothing_is_faster_the_table_says_blas(monkeypatch):
    monkeypatch.setitem(COST, FAST, 8e-6)
    (row,) = tuned(rows=(1,))[0].rows
    assert (row.config, row.seconds) == (Config("blas"), row.blas_seconds)


def test_the_fastest_is_not_kept_where_its_result_is_wrong(monkeypatch):
    monkeypatch.setattr(tune, "candidates", lambda *problem: (WRONG, FAST, Config("blas")))
    table, notes = tuned(rows=(1,))
    assert table.rows[0].config == FAST
    assert any("gives a wrong result" in note for note in notes)


def test_what_cannot_run_is_noted_and_left_out(monkeypatch):
    monkeypatch.setattr(tune, "candidates", lambda *problem: (BROKEN, FAST, Config("blas")))
    monkeypatch.setattr(tune._Tuner, "_compiled", lambda self, chosen: None)
    table, notes = tuned(rows=(1,))
    assert table.rows[0].config == FAST
    assert notes == [f"bf16 m=1 64x256: {BROKEN}: RuntimeError: out of resource: shared memory"]


def test_time_that_is_over_ends_the_search_and_is_said():
    _, notes = tuned(rows=(1,), seconds=1e-9)
    assert "bf16 m=1 64x256: 1e-09 s were over before every candidate was timed" in notes


def test_a_body_is_explored_where_it_is_likely_and_not_at_every_m():
    one = tune._Linear(TunePlan((SHAPE,), (1, 2, 3, 4, 16), ("bf16",)), None, ROW)
    explored = {m: one.explored(TuneProblem("bf16", m, *SHAPE)) for m in (1, 2, 3, 4, 16)}
    assert explored == {1: [FAST, SLOW], 2: [], 3: [], 4: [], 16: [MATRIX]}
    assert [tune._explorers(body, (1, 2, 4, 8, 16)) for body in BODIES] == [(1,), (1, 4), (8,), (16,), ()]


def test_the_other_type_and_the_m_between_try_what_was_best_elsewhere(monkeypatch):
    one = tune._Linear(TunePlan((SHAPE,), (2, 3, 4, 16), ("bf16", "f16")), None, ROW)
    monkeypatch.setattr(tune, "_SEEDED", 1)
    times = {TuneProblem("bf16", 2, *SHAPE): {FAST: 1, SLOW: 2}, TuneProblem("bf16", 16, *SHAPE): {FAST: 9, MATRIX: 5}}
    for dtype, m in (("bf16", 3), ("f16", 2), ("f16", 16)):
        assert one.rest(TuneProblem(dtype, m, *SHAPE), times) == [FAST, MATRIX]


def test_a_written_table_is_what_the_next_choice_reads(monkeypatch, tmp_path):
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    table, _ = tuned()
    assert tables.choose(ROW, "bf16", 1, *SHAPE, NAME).source != "user table"
    write_table(table, tables.user_path(NAME))
    chosen = tables.choose(ROW, "bf16", 1, *SHAPE, NAME)
    assert (chosen.config, chosen.source.partition(",")[0]) == (FAST, "user table")
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "another"))
    assert "user table" not in tables.choose(ROW, "bf16", 1, *SHAPE, NAME).source
    tables.forget()


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "file" / "table.json"
    path.parent.write_text("no folder")
    with pytest.raises(LanewiseError, match="cannot be written"):
        write_table(tuned(rows=(1,))[0], path)
    assert path.parent.read_text() == "no folder"
    folder = tmp_path / "there"
    (folder / "taken").mkdir(parents=True)
    with pytest.raises(LanewiseError, match="cannot be written"):
        write_table(tuned(rows=(1,))[0], folder / "taken")
    assert [one.name for one in folder.iterdir()] == ["taken"]


def test_what_was_measured_is_printed_though_it_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "file"))
    out = tmp_path / "table.json"
    ran = CliRunner().invoke(app, ["tune", "--shapes", "64x256", "--m", "1", "--dtype", "bf16", "--write", "--out", str(out)])
    assert (ran.exit_code, "lanes 2x256" in ran.stdout, "cannot be written" in ran.stderr) == (2, True, True)
    assert tables.read(out).rows[0].config == FAST
    assert out.stat().st_mode & 0o777 == 0o644


def test_several_processes_that_write_leave_one_whole_table(tmp_path):
    tables_of = [tuned(rows=(m,))[0] for m in (1, 2, 3, 4)]
    path = tmp_path / "folder" / "table.json"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: write_table(tables_of[i % 4], path), range(40)))
    assert tables.read(path) in tables_of
    assert [one.name for one in path.parent.iterdir()] == ["table.json"]


def test_where_blas_does_not_run_there_is_nothing_to_compare_with(monkeypatch):
    def broken(x, w):
        raise RuntimeError("no library")

    monkeypatch.setattr(tune.torch.nn.functional, "linear", broken)
    with pytest.raises(DeviceError, match=r"BLAS, which everything is compared with, does not run: .*no library"):
        tuned(rows=(1,))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"shapes": ()}, "there is a shape"), ({"shapes": ((0, 4),)}, "n and k are from 1 to"), ({"shapes": ((4, 1 << 30),)}, "n and k are from 1 to"),
     ({"rows": (17,)}, "it is 1 to 16"),
     ({"rows": (0,)}, "it is 1 to 16"),
     ({"dtypes": ("f32",)}, "they are f16, bf16"), ({"seconds": 0.0}, "it takes some")],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_refused(options, words):
    with pytest.raises(LanewiseError) as refused:
        tuned(**options)
    assert words in str(refused.value)


def test_weights_that_do_not_fit_are_said_with_both_numbers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1000, 1000))
    with pytest.raises(DeviceError, match="1 copy of 64x256 weights need 32768 bytes, and the GPU has 1000 left"):
        tuned()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (40000, 40000))
    with pytest.raises(DeviceError, match="and the GPU has 40000 left"):
        tuned()


def test_the_command_line_prints_the_table_and_writes_it(tmp_path):
    out = tmp_path / "table.json"
    ran = CliRunner().invoke(app, ["tune", "--shapes", "64x256", "--m", "1", "--dtype", "fp16", "--out", str(out)])
    assert (ran.exit_code, "f16   1  64x256  lanes 2x256" in ran.output) == (0, True)
    assert tables.read(out).rows[0].config == FAST
    ran = CliRunner().invoke(app, ["tune", "--n", "64", "--k", "256", "--m", "1", "--json"])
    assert json.loads(ran.stdout)["rows"][0]["config"]["rows"] == 2
    for words, said in ((["--n", "64"], "one shape is --n with --k"), (["--shapes", "4x"], "it takes shapes"), (["--m", "x"], "it takes numbers")):
        ran = CliRunner().invoke(app, ["tune", *words])
        assert (ran.exit_code, said in ran.output) == (2, True)


def test_without_a_gpu_tuning_and_sweeping_end_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for words in (["tune"], ["bench", "sweep", str(tmp_path / "new")]):
        ran = CliRunner().invoke(app, words)
        assert (ran.exit_code, ran.output) == (2, "lanewise: error: there is no device cuda: PyTorch sees 0 GPUs here\n")


def test_a_sweep_writes_a_bundle_of_each_shape_whose_command_makes_it_again(tmp_path):
    runs = dict(sweep(tmp_path, calls_of((SHAPE, (32, 128)), (1, 2))))
    assert sorted(path.name for path in runs) == [f"skinny-bf16-m{m}-{n}x{k}" for m, n, k in ((1, 32, 128), (1, *SHAPE), (2, 32, 128), (2, *SHAPE))]
    for path, found in runs.items():
        assert open_bundle(path).manifest["command"] == found["command"]
        assert name_of(tune_call(found)) == path.name
    with pytest.raises(EvidenceError, match="is there already"):
        next(sweep(tmp_path, calls_of((SHAPE,), (1,))))
    assert len(SHAPES) == 9


def tune_call(found):
    from lanewise.evidence.claims import call_of

    return call_of(found["problem"])


def test_a_shape_that_the_table_gives_to_blas_is_told_and_left_out(monkeypatch, tmp_path):
    from lanewise.kernels.gpu import linear

    monkeypatch.setattr(linear, "choose", lambda *problem: tables.Choice(Config("blas"), "user table"))
    told = []
    assert list(sweep(tmp_path, calls_of((SHAPE,), (1,)), told=told.append)) == []
    assert "BLAS is the faster one here" in told[0]


def test_the_sweep_of_the_command_line_has_a_line_for_each_bundle(tmp_path):
    ran = CliRunner().invoke(app, ["bench", "sweep", str(tmp_path), "--shapes", "64x256", "--m", "1,2"])
    assert ran.exit_code == 0
    for m in (1, 2):
        assert f"skinny-bf16-m{m}-64x256: b / a" in ran.output
        assert f"bf16 m={m}: geometric mean" in ran.output


def test_kernels_are_compiled_by_processes_beside_this_one():
    """Real processes and Triton's own compiler, for a card that is not here."""
    from support import gpu_kernel

    one = {
        "function": f"{gpu_kernel.__name__}:scaled", "signature": {"x": "*bf16", "y": "*bf16", "n": "i32", "SIZE": "constexpr", "TWICE": "constexpr"},
        "constants": [[[3], 256], [[4], False]], "attributes": [], "options": {"num_warps": 2},
    }  # fmt: skip
    wrong = gpu_compile.compile_all([one, {**one, "function": "os:system"}, one], ROW, 2)
    # the processes compile kernels of the package alone: these are none, which is what they say
    assert len(wrong) == 3
    assert all("is no kernel of lanewise.kernels.gpu" in words for words in wrong)


def test_a_process_that_dies_is_said(monkeypatch):
    plain = subprocess.Popen
    monkeypatch.setattr("lanewise.bench.gpu_compile.subprocess.Popen", lambda command, **rest: plain(["false"], **rest))
    assert gpu_compile.compile_all([{}, {}], ROW, 2) == ["2 kernels were not compiled: a compiling process ended early"]
