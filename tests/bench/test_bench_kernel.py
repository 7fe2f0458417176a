"""`bench kernel`: the arms run what they say, on rotating memory, and a run that would prove nothing is refused before it begins."""

import json

import numpy as np
import pytest
from support.runs import QUIET
from support.small import PROBE

from lanewise.arch import host
from lanewise.backends.cpu.single import attention, product
from lanewise.bench import Command, CommandPlan, Plan, bench_commands, bench_model, random_model, stats
from lanewise.bench import manifest as manifests
from lanewise.bench.arms import arm_for, artifact, named
from lanewise.bench.cpu_call import kernels_of
from lanewise.bench.kernel import SHORTEST, KernelPlan, bench_kernel
from lanewise.bench.lock import held
from lanewise.bench.problem import MEASURED, Call, amounts, phase_of
from lanewise.errors import DeviceError, EvidenceError, FormatError, LanewiseError, NoKernelError, SettingError, ShapeError, UnknownOpError
from lanewise.formats import FORMATS
from lanewise.kernels.cpu.compile import compile_object
from lanewise.kernels.cpu.isa import ISAS, runnable
from lanewise.kernels.cpu.threads import ThreadPool
from lanewise.oracle import ORACLES

# The best instruction set, and the least that gives the same bits: without a fused multiply-add sums round otherwise.
BEST, LEAST = runnable()[0].name, [isa.name for isa in runnable() if isa.fma][-1]
SMALL = Call("quant_linear", 1, 64, 256, "Q4_K")
CACHE = 1 << 16


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """A small cache, a small probe, and a machine that is always quiet."""
    monkeypatch.setattr("lanewise.bench.kernel.last_level_cache", lambda: CACHE)
    monkeypatch.setattr("lanewise.bench.kernel.probe_bytes", lambda cache: PROBE)
    monkeypatch.setattr("lanewise.bench.rounds.look", lambda: dict(QUIET))


def plan(call=SMALL, arms=(BEST, LEAST), **options):
    return KernelPlan(call, arms, **{"pairs": 15, "threads": 1, "seconds": SHORTEST, **options})


@pytest.fixture(scope="module")
def record(request):
    """One run for the tests that look at a manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lanewise.bench.kernel.last_level_cache", lambda: CACHE)
        patch.setattr("lanewise.bench.kernel.probe_bytes", lambda cache: PROBE)
        patch.setattr("lanewise.bench.rounds.look", lambda: dict(QUIET))
        patch.setattr("lanewise.bench.lock._folder", lambda: request.getfixturevalue("tmp_path_factory").mktemp("locks"))
        return bench_kernel(plan(seed=3), ("lanewise", "bench"))


def arm(name, call, copies=1, threads=1):
    return arm_for(named(name), call, call.inputs(0), ThreadPool(runnable()[0], threads), copies)


def test_a_run_is_a_whole_manifest_and_its_figures_follow_from_it(record):
    again = json.loads(manifests.text_of(record))
    assert manifests.complaints(again) == []
    assert stats.figures(again) == record["figures"]
    assert (len(record["rounds"]), record["figures"]["pairs"]) == (8, 16)


@pytest.mark.parametrize("call", [Call("linear", 1, 32, 64), Call("attention", 1, 32, 16, heads=2, kv_heads=1)], ids=lambda call: call.op)
def test_the_other_ops_give_whole_manifests_too(call):
    found = bench_kernel(plan(call, copies=2))
    assert manifests.complaints(json.loads(manifests.text_of(found))) == []
    assert (found["problem"]["op"], found["problem"]["dtype"], found["figures"]["pairs"]) == (call.op, "f32", 16)
    assert found["figures"]["a"]["of_int8"] is None


def test_every_sample_is_long_enough_and_later_than_the_one_before(record):
    samples = [s for r in record["rounds"] for s in (*r["samples"], *r["control"])]
    assert min(s["seconds"] for s in samples) >= SHORTEST
    starts = [s["started"] for s in samples]
    ends = [s["started"] + 1e9 * s["seconds"] for s in samples]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_rounds_are_in_the_order_that_the_seed_says(record):
    for r in record["rounds"]:
        order, control = stats.schedule(record["plan"]["seed"], r["number"])
        assert (r["order"], [s["arm"] for s in r["samples"]]) == (list(order), list(order))
        assert [s["arm"] for s in r["control"]] == [control] * 2


def test_the_witness_of_an_arm_counts_at_least_the_calls_of_its_samples(record):
    for key, name in (("a", BEST), ("b", LEAST)):
        witness = record["arms"][key]["witness"]
        timed = sum(s["repeats"] for r in record["rounds"] for s in (*r["samples"], *r["control"]) if s["arm"] == key)
        assert witness["calls"] > timed
        assert (witness["kernel"], witness["body"], witness["isa"], witness["m"]) == ("cpu_quant_linear", "cpu", name, 1)


def test_arms_differ_in_their_code_and_agree_in_their_bits(record):
    a, b = record["arms"]["a"], record["arms"]["b"]
    assert a["artifact"] != b["artifact"]
    assert a["output"] == b["output"]


def test_an_artifact_is_what_compiling_now_gives(record):
    one, kernels = record["arms"]["a"], kernels_of(SMALL)
    assert one["spec"]["kernels"] == [kernel.name for kernel in kernels]
    assert one["artifact"] == manifests.digest(b"".join(compile_object(kernel, named(BEST).isa) for kernel in kernels))


def test_inputs_are_fresh_unless_a_seed_is_given(record):
    inputs = Call.inputs(SMALL, 3)
    assert record["inputs"] == {"seed": 3, "sha256": {name: manifests.digest(array.tobytes()) for name, array in inputs.items()}}
    assert not np.array_equal(inputs["w"], SMALL.inputs(4)["w"])
    assert not np.array_equal(inputs["x"], SMALL.inputs(4)["x"])


@pytest.mark.parametrize("isa", [BEST, LEAST])
@pytest.mark.parametrize("m", [1, 3, 25])
def test_a_compiled_arm_computes_what_the_kernel_computes(isa, m, monkeypatch):
    """The same bits as the op on its own, from every copy and with any number of threads."""
    call = Call("quant_linear", m, 80, 512, "Q4_K")
    inputs = call.inputs(0)
    monkeypatch.setenv("LANEWISE_CPU_ISA", isa)
    want = product(inputs["x"], inputs["w"], "Q4_K")
    for threads in (1, 2):
        made = arm(isa, call, copies=3, threads=threads)
        for _ in range(3):
            made._made.y[:] = np.nan
            made._walk(made._program(1))
            assert np.array_equal(made.output(), want)
        made._pool.close()


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format_can_be_measured(fmt):
    call = Call("quant_linear", 2, 32, 256, fmt)
    inputs = call.inputs(0)
    for name in (BEST, "reference"):
        made = arm(name, call)
        made.seconds(1)
        integer = name == BEST and FORMATS[fmt].activation != "float"
        assert ORACLES["quant_linear"].worst(made.output(), inputs["x"], inputs["w"], fmt, integer=integer) <= 1


@pytest.mark.parametrize(("m", "n"), [(1, 1500), (3, 40), (20, 600)])
def test_attention_is_that_of_the_kernel_with_splits_spread_or_not(m, n):
    call = Call("attention", m, n, 64, heads=4, kv_heads=2)
    inputs = call.inputs(0)
    pages = np.arange(len(inputs["keys"]), dtype=np.int32)[None]
    starts, context = np.array([0, m], np.int32), np.array([n], np.int32)
    arguments = (inputs["q"], inputs["keys"], inputs["values"], pages, starts, context, 64**-0.5)
    want = attention(*arguments)
    made = arm("cpu", call, copies=2, threads=2)
    for _ in range(2):
        made._made.y[:] = np.nan
        made._walk(made._program(1))
        assert np.array_equal(made.output().reshape(want.shape), want)
    made._pool.close()
    reference = arm("reference", call)
    reference.seconds(1)
    assert reference.witness()["calls"] == 2
    assert ORACLES["attention"].worst(reference.output(), *arguments) <= 1


def test_copies_take_turns_and_every_one_is_read():
    call = Call("quant_linear", 1, 32, 256, "Q8_0")
    made = arm(BEST, call, copies=3)
    tables = [made._program(2)[1::2, 1].tolist() for _ in range(3)]
    assert tables[0] + tables[1] + tables[2] == 2 * made._made.programs[:, 1, 1].tolist()


def test_a_call_that_is_not_counted_goes_before_every_sample():
    for name in (BEST, "reference"):
        made = arm(name, SMALL)
        made.seconds(3)
        assert made.witness()["calls"] == 4


def test_few_queries_spread_their_splits_and_many_do_not():
    names = {m: [kernel.name for kernel in kernels_of(Call("attention", m, 1500, 64))] for m in (1, 16, 17)}
    assert names == {1: ["attend_64", "combine_64"], 16: ["attend_64", "combine_64"], 17: ["attend_64"]}
    assert len(kernels_of(Call("attention", 1, 512, 64))) == 1


def test_no_two_measurements_overlap():
    from support.small import SMALL as MODEL

    with held("cpu"):
        for measure in (lambda: bench_kernel(plan()), lambda: bench_commands(CommandPlan(Command("a"), Command("b"), "(x)"))):
            with pytest.raises(EvidenceError, match="is measuring on device cpu"):
                measure()
        with pytest.raises(EvidenceError, match="is measuring on device cpu"):
            bench_model(random_model(MODEL, "Q8_0"), Plan((4,), 0, 1))


def test_a_run_is_cold_from_four_caches_on_and_is_never_called_so_below(monkeypatch):
    """Q4_K rows of 256 weights have 144 bytes."""
    size = 64 * 144
    found = bench_kernel(plan())["plan"]
    assert (found["residency"], found["buffers_bytes"]) == ("cold", -(-4 * CACHE // size) * size)
    found = bench_kernel(plan(copies=4 * CACHE // size))["plan"]
    assert found["residency"] == "warm"
    monkeypatch.setattr("lanewise.bench.kernel.last_level_cache", lambda: None)
    assert bench_kernel(plan())["plan"]["residency"] == "warm"
    with pytest.raises(EvidenceError, match="nobody knows how large the last-level cache is"):
        bench_kernel(plan(cold=True))


def test_a_cold_that_would_be_false_is_refused():
    with pytest.raises(EvidenceError, match="cannot be called cold beside a last-level cache of 65536 bytes"):
        bench_kernel(plan(cold=True, copies=2))
    assert bench_kernel(plan(cold=True))["plan"]["residency"] == "cold"


def test_too_little_memory_for_a_rotation_makes_it_warm_unless_cold_was_asked_for(monkeypatch):
    monkeypatch.setattr("lanewise.bench.cpu_call.require", _only_one)
    found = bench_kernel(plan())["plan"]
    assert (found["residency"], found["buffers_bytes"]) == ("warm", 64 * 144)
    with pytest.raises(DeviceError, match="no memory"):
        bench_kernel(plan(cold=True))


def _only_one(nbytes, what):
    if nbytes:
        raise DeviceError("no memory")


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: plan(arms=(BEST, BEST)), EvidenceError, "are the same arm"),
        (lambda: plan(arms=("cpu", BEST)), EvidenceError, "are the same arm"),
        (lambda: plan(arms=("reference", "reference")), EvidenceError, "are the same arm"),
        (lambda: plan(arms=(BEST, "skinny")), EvidenceError, f"there is no arm 'skinny'; arms here are {BEST}"),
        (lambda: plan(pairs=14), EvidenceError, "a run has 15 to 10000"),
        (lambda: plan(seconds=1e-4), EvidenceError, "they last 200 us to 60 s"),
        (lambda: plan(seconds=float("nan")), EvidenceError, "they last 200 us to 60 s"),
        (lambda: plan(seconds=float("inf")), EvidenceError, "they last 200 us to 60 s"),
        (lambda: plan(threads=0), SettingError, "it takes a positive number"),
        (lambda: plan(copies=0), EvidenceError, "there is at least 1"),
        (lambda: plan(seed=-1), EvidenceError, "a number from 0 on"),
        (lambda: plan(device="cuda:7"), DeviceError, "there is no device cuda:7: PyTorch sees"),
        (lambda: plan(device="cuda:x"), DeviceError, "is no GPU; one is called cuda"),
        (lambda: plan(device="cpu:1"), DeviceError, "device 'cpu:1' is not available"),
        (lambda: plan(device="reference"), DeviceError, "the reference is an arm of the cpu"),
        (lambda: plan(Call("linear", 1, 8, 8, dtype="bf16")), NoKernelError, "activations are bf16"),
        (lambda: plan(Call("attention", 1, 8, 24)), NoKernelError, "not a multiple of 16 lanes"),
        (lambda: plan(Call("quant_linear", 10**9, 10**9, 256, "Q8_0")), DeviceError, "the operands of quant_linear"),
        (lambda: Call("swim", 1, 8, 8), UnknownOpError, "unknown op 'swim'"),
        (lambda: Call("rope", 1, 8, 8), UnknownOpError, "rope is not measured on its own"),
        (lambda: Call("quant_linear", 1, 8, 8), LanewiseError, "quant_linear and grouped_linear have a format"),
        (lambda: Call("linear", 1, 8, 8, "Q4_K"), LanewiseError, "no other op has"),
        (lambda: Call("quant_linear", 1, 8, 8, "Q4_K"), FormatError, "not a whole number of blocks"),
        (lambda: Call("quant_linear", 0, 8, 256, "Q4_K"), ShapeError, "sizes are 1 or more"),
        (lambda: Call("attention", 9, 8, 64), ShapeError, "the tokens are the last of the positions"),
        (lambda: Call("attention", 1, 8, 64, heads=6, kv_heads=4), ShapeError, "a whole number of heads"),
    ],
)
def test_what_would_prove_nothing_is_refused_before_it_is_measured(make, error, words, monkeypatch):
    monkeypatch.setattr("lanewise.bench.kernel.measure", None)
    with pytest.raises(error) as refused:
        bench_kernel(make())
    assert words in str(refused.value)


def test_an_instruction_set_that_this_processor_lacks_is_no_arm():
    other = next(name for name, isa in ISAS.items() if isa.arch.vendor != host().vendor)
    with pytest.raises(EvidenceError, match=f"this processor does not run {other.replace('+', '.')}"):
        named(other)


def test_two_names_of_the_same_machine_code_are_refused(monkeypatch):
    monkeypatch.setattr("lanewise.bench.kernel.artifact", lambda call, isa: "0" * 64)
    with pytest.raises(EvidenceError, match="give the same machine code"):
        bench_kernel(plan())
    assert artifact(SMALL, runnable()[0]) != artifact(SMALL, runnable()[-1])


def test_the_reference_is_an_arm_and_dispatch_is_its_witness():
    found = bench_kernel(plan(arms=("cpu", "reference"), copies=1))
    witness = found["arms"]["b"]["witness"]
    assert (witness["kernel"], witness["body"], witness["isa"]) == ("reference_quant_linear", "reference", "numpy")
    assert manifests.complaints(found) == []


def test_a_sample_that_is_too_short_is_made_again_with_more_repeats():
    from lanewise.bench.kernel import _sample

    class Quick:
        calls = 3

        def seconds(self, repeats):
            return 5, 1e-4 * repeats

    repeats = {"a": 1}
    assert _sample("a", Quick(), repeats, 2e-4) == {"arm": "a", "seconds": 2e-4, "repeats": 6, "started": 5}
    assert repeats == {"a": 2}


def test_rounds_that_are_left_out_are_made_up_for_but_not_for_ever():
    from lanewise.bench.rounds import BOOTSTRAP, measure

    moments = iter(range(1000))

    def busy_every_third():
        now = next(moments)
        return {**QUIET, "time": float(now), "throttle": {"core": now // 6}}

    stated = {"pairs": 15, "most_rounds": 24, "seed": 0, "rule": {"busy": None, "throttled": True, "clock": None}, "bootstrap": BOOTSTRAP}
    sample = lambda key: {"arm": key, "value": 1.0, "repeats": 1, "started": 0}  # noqa: E731
    rounds = measure(stated, sample, lambda: None, around=busy_every_third)
    assert (len(stats.kept(rounds)), rounds[-1]["left_out"]) == (8, None)
    always = lambda: {**QUIET, "time": float(next(moments)), "throttle": {"core": next(moments)}}  # noqa: E731
    assert len(measure(stated, sample, lambda: None, around=always)) == 24


def test_amounts_count_each_operand_once():
    assert amounts({"op": "linear", "m": 2, "n": 3, "k": 5, "dtype": "f32"}) == (4 * (3 * 5 + 2 * 5 + 2 * 3), 2 * 2 * 3 * 5)
    attended = {"op": "attention", "m": 2, "n": 5, "k": 16, "heads": 4, "kv_heads": 2}
    assert amounts(attended) == (2 * 2 * 5 * 2 * 16 + 2 * 4 * 2 * 4 * 16, 4 * 4 * 16 * (4 + 5))
    assert [phase_of(m) for m in (1, 16, 17)] == ["decode", "decode", "prefill"]
    assert MEASURED == ("quant_linear", "grouped_linear", "linear", "attention")
