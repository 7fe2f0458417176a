"""The ways in which a benchmark misleads, each on a bundle whose figures and seal its forger has made again: all are refused, by name."""

import contextlib
import copy
import hashlib

import pytest
from support.bundles import CALL, SECONDS, good, good_command, refigured, written

from lanewise.bench import stats
from lanewise.bench.manifest import digest
from lanewise.evidence import CODES, open_bundle, verify


def codes(tmp_path, manifest):
    return {reason.code for reason in verify(open_bundle(written(tmp_path / "run", manifest)))}


def forged(change, base=None):
    manifest = copy.deepcopy(base or good())
    change(manifest)
    return manifest


def sampled(manifest):
    return (s for one in manifest["rounds"] for s in (*one["samples"], *one["control"]))


def a_figure(m):
    m["figures"]["ratio"]["median"] *= 1.001


def a_verdict(m):
    m["figures"]["verdict"] = "b is faster"


def a_dropped_sample(m):
    del m["rounds"][3]["samples"][2]


def a_copied_sample(m):
    m["rounds"][3]["samples"][2] = dict(m["rounds"][3]["samples"][1])


def a_dropped_control(m):
    del m["rounds"][3]["control"][1]


def swapped_samples(m):
    samples = m["rounds"][3]["samples"]
    samples[0], samples[1] = samples[1], samples[0]


def swapped_times(m):
    samples = m["rounds"][3]["samples"]
    samples[0]["started"], samples[3]["started"] = samples[3]["started"], samples[0]["started"]


def a_dropped_round(m):
    del m["rounds"][4]


def a_dropped_last_round(m):
    del m["rounds"][-1]


def a_copied_round(m):
    m["rounds"][4] = {**copy.deepcopy(m["rounds"][3]), "number": 4}


def swapped_rounds(m):
    m["rounds"][2], m["rounds"][5] = m["rounds"][5], m["rounds"][2]


def rounds_until_it_looked_good(m):
    one = copy.deepcopy(m["rounds"][-1])
    one["number"] += 1
    m["rounds"].append(one)


def the_same_code(m):
    m["arms"]["b"]["artifact"] = m["arms"]["a"]["artifact"]


def a_switch_without_effect(m):
    m["arms"]["b"]["witness"] |= {"isa": m["arms"]["a"]["witness"]["isa"]}


def another_kernel_than_claimed(m):
    m["arms"]["b"]["witness"] |= {"kernel": "reference_quant_linear", "body": "reference", "isa": "numpy"}


def decode_for_prefill(m):
    m["arms"]["a"]["witness"]["m"] = m["arms"]["b"]["witness"]["m"] = 512


def prefill_for_decode(m):
    m["problem"]["phase"] = "prefill"


def fewer_calls_than_samples(m):
    m["arms"]["a"]["witness"]["calls"] = 1


def a_throttled_round_kept(m):
    for one in m["rounds"][5:]:
        one["after"]["throttle"]["core"] += 1
    for one in m["rounds"][6:]:
        one["before"]["throttle"]["core"] += 1


def a_neighbour_kept(m):
    m["rounds"][5]["after"]["neighbours"][0]["cpu_seconds"] += 0.5


def a_slow_round_left_out(m):
    m["rounds"][5]["left_out"] = "others used 0.50 of a core"


def a_rule_made_lax(m):
    m["plan"]["rule"]["busy"] = 4.0


def a_false_cold(m):
    m["machine"]["last_level_cache"] *= 2


def fewer_repeats_in_a_sample(m):
    m["rounds"][3]["samples"][0]["repeats"] -= 50


def an_unbalanced_round(m):
    one = m["rounds"][3]
    one["order"] = list("aabb")
    for sample, arm in zip(one["samples"], "aabb", strict=True):
        sample["arm"] = arm


def a_control_of_two_arms(m):
    for sample, arm in zip(m["rounds"][3]["control"], "ab", strict=True):
        sample["arm"] = arm


def other_results(m):
    m["arms"]["b"]["output"] = digest(b"something else")


def no_commit(m):
    m["commit"] = None


def a_dirty_tree(m):
    m["commit"]["dirty"] = True


def no_sources(m):
    m["sources"] = {}


def a_machine_that_could_not(m):
    m["machine"] |= {"flags": "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3", "row": "x86-64-v2"}


def another_command(m):
    m["command"][m["command"].index("--n") + 1] = "128"


def more_bytes_than_there_are(m):
    m["problem"]["bytes"] *= 2


def a_kinder_bootstrap(m):
    m["plan"]["bootstrap"]["seed"] = 4


def too_short(m):
    m["plan"]["min_seconds"] = 0.021
    m["command"][-1] = "21"


def a_probe_of_the_cache(m):
    for one in m["rounds"]:
        one["probes"]["read"]["bytes"] //= 2


def another_question(m):
    m["question"] = "Is everything faster?"


def an_ended_before_it_began(m):
    m["began"], m["ended"] = m["ended"], m["began"]


WAYS = [
    (a_figure, "figure"),
    (a_verdict, "verdict"),
    (a_dropped_sample, "sample-missing"),
    (a_dropped_control, "sample-missing"),
    (a_copied_sample, "sample-duplicate"),
    (swapped_samples, "sample-order"),
    (swapped_times, "sample-order"),
    (a_dropped_round, "rounds"),
    (a_dropped_last_round, "rounds"),
    (a_copied_round, "sample-duplicate"),
    (swapped_rounds, "rounds"),
    (rounds_until_it_looked_good, "rounds"),
    (the_same_code, "arms-equal"),
    (a_switch_without_effect, "switch"),
    (another_kernel_than_claimed, "witness"),
    (decode_for_prefill, "phase"),
    (prefill_for_decode, "phase"),
    (fewer_calls_than_samples, "witness"),
    (a_throttled_round_kept, "left-out-kept"),
    (a_neighbour_kept, "left-out-kept"),
    (a_slow_round_left_out, "kept-left-out"),
    (a_rule_made_lax, "plan"),
    (a_false_cold, "residency"),
    (fewer_repeats_in_a_sample, "repeats"),
    (an_unbalanced_round, "balance"),
    (a_control_of_two_arms, "control"),
    (other_results, "output"),
    (no_commit, "commit"),
    (a_dirty_tree, "dirty"),
    (no_sources, "source"),
    (a_machine_that_could_not, "machine"),
    (another_command, "command"),
    (more_bytes_than_there_are, "problem"),
    (a_kinder_bootstrap, "plan"),
    (too_short, "sample-short"),
    (a_probe_of_the_cache, "probe"),
    (another_question, "question"),
    (an_ended_before_it_began, "chronology"),
]


@pytest.mark.parametrize(("change", "code"), WAYS, ids=[change.__name__ for change, _ in WAYS])
def test_each_way_to_mislead_is_refused_by_its_name(tmp_path, change, code):
    manifest = forged(change)
    if code not in ("figure", "verdict"):
        with contextlib.suppress(KeyError, IndexError, ValueError):  # from some samples no figure follows
            manifest = refigured(manifest)
    assert code in codes(tmp_path, manifest)


def test_a_round_that_the_rule_leaves_out_stays_out_for_the_rules_own_reason(tmp_path):
    manifest = good(busy=(2,))
    assert (manifest["rounds"][2]["left_out"], manifest["figures"]["left_out"]) == ("others used 0.51 of a core", 1)
    assert codes(tmp_path, manifest) == set()
    manifest["rounds"][2]["left_out"] = "it looked odd"
    assert codes(tmp_path, manifest) == {"left-out-words"}


def test_faster_is_refused_where_the_interval_holds_one(tmp_path):
    manifest = good({"a": 100e-6, "b": 100e-6})
    assert manifest["figures"]["verdict"] == stats.NO_DIFFERENCE
    assert codes(tmp_path, manifest) == set()
    manifest["figures"]["verdict"] = "a is faster"
    assert {"verdict", "figure"} <= codes(tmp_path, manifest)


def test_faster_is_refused_where_the_control_is_as_wide_as_the_effect(tmp_path):
    def noisy(m):
        for one in m["rounds"]:
            first, second = one["control"]
            second["seconds"] = first["seconds"] * 1.5

    manifest = refigured(forged(noisy))
    assert manifest["figures"]["verdict"] == stats.NO_DIFFERENCE
    assert codes(tmp_path, manifest) == set()
    manifest["figures"]["verdict"] = "a is faster"
    assert {"control-wide", "figure"} <= codes(tmp_path, manifest)


def test_all_samples_of_an_arm_made_faster_are_no_longer_what_was_taken(tmp_path):
    def shorter(m):
        for sample in sampled(m):
            if sample["arm"] == "b":
                sample["seconds"] /= 10

    assert "sample-short" in codes(tmp_path, refigured(forged(shorter)))


def test_figures_of_another_run_do_not_follow_from_these_samples(tmp_path):
    manifest = {**good(), "figures": good({**SECONDS, "b": 300e-6})["figures"]}
    reasons = verify(open_bundle(written(tmp_path / "run", manifest)))
    assert {r.where for r in reasons} >= {"figures.ratio.median", "figures.b.seconds"}
    assert not any(r.where.startswith("figures.a") for r in reasons)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda m: m["arms"]["b"]["spec"].update(shell="true"), "witness"),
        (lambda m: m["arms"]["b"].update(m["arms"]["a"]), "arms-equal"),
        (lambda m: m["rounds"][0]["samples"][0].update(value=9.0), "figure"),
        (lambda m: m["plan"].update(better="higher"), "command"),
        (lambda m: m["plan"].update(metric="(.*)"), "question"),
        (lambda m: m.update(command=["make", "bench"]), "command"),
        (lambda m: m.update(command=[]), "command"),
    ],
)
def test_commands_that_are_not_what_was_run_are_refused(tmp_path, change, code):
    assert code in codes(tmp_path, forged(change, good_command()))


def test_every_reason_says_what_where_expected_and_found(tmp_path):
    (reason,) = verify(open_bundle(written(tmp_path / "run", forged(a_dirty_tree))))
    assert (reason.code, reason.where, reason.expected, reason.found) == ("dirty", "commit.dirty", "a clean tree", "changes")
    assert str(reason) == f"dirty: commit.dirty: {CODES['dirty']}; expected a clean tree, found changes"


def test_the_arms_of_numpy_are_known_by_their_source(tmp_path):
    source = hashlib.sha256(b"numpy").hexdigest()

    def with_reference(m):
        m["sources"]["lanewise/backends/reference/ops.py"] = source
        m["arms"]["b"] |= {"label": "reference", "artifact": source, "output": digest(b"other bits are allowed")}
        m["arms"]["b"]["spec"] = {"device": "cpu", "body": "reference", "isa": "numpy", "kernels": ["reference_quant_linear"]}
        m["arms"]["b"]["witness"] |= {"kernel": "reference_quant_linear", "body": "reference", "isa": "numpy"}
        m["question"] = f"Is {m['arms']['a']['label']} or reference faster at {CALL} on cpu, cold, 2 threads?"
        m["command"][m["command"].index("--ab") + 1] = f"{m['arms']['a']['label']},reference"

    manifest = forged(with_reference)
    assert codes(tmp_path, manifest) == set()
    manifest["sources"]["lanewise/backends/reference/ops.py"] = digest(b"x")
    assert codes(tmp_path, manifest) == {"artifact"}


@pytest.mark.parametrize(("isa", "refused"), [("x86-64-v3", {"output"}), ("x86-64-v2", set())])
def test_results_must_be_the_same_bits_where_both_arms_round_alike(tmp_path, isa, refused):
    def other_bits(m):
        m["arms"]["b"] |= {"label": isa, "output": digest(b"other bits")}
        m["arms"]["b"]["spec"]["isa"] = m["arms"]["b"]["witness"]["isa"] = isa
        m["question"] = m["question"].replace("x86-64-v3", isa)
        m["command"][m["command"].index("--ab") + 1] = f"{m['arms']['a']['label']},{isa}"

    assert codes(tmp_path, forged(other_bits)) == refused
