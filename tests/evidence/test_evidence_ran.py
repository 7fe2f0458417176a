"""What a command's bundle says of kernels, outputs, files and memory is refused where samples, settings and sources say otherwise."""

import copy

import pytest
from support.bundles import OPS, PROCESS, good_command, one_process, refigured, sampled, without_witness, witnessed_again, written

from lanewise.bench.manifest import digest
from lanewise.bench.process import NO_WITNESS
from lanewise.evidence import open_bundle, verify
from lanewise.evidence.documents import check_documents
from lanewise.evidence.page import page

OTHER = digest(b"other tokens")


def codes(tmp_path, manifest):
    return {reason.code for reason in verify(open_bundle(written(tmp_path / "run", manifest)))}


def of_first_version(manifest):
    """As version 1 had it: no files, witnesses, outputs or memory."""
    made = {**copy.deepcopy(manifest), "schema_version": 1, "inputs": None}
    made["command"] = [*made["command"][: made["command"].index("--device")], "--timeout", "600"]
    del made["plan"]["output"], made["plan"]["device"], made["figures"]["output"], made["figures"]["a"]["memory"], made["figures"]["b"]["memory"]
    for arm in made["arms"].values():
        arm |= {"witness": None, "output": None}
    for sample in sampled(made):
        del sample["memory"], sample["output"], sample["witness"]
    return made


def other_tokens(m):
    m["arms"]["b"]["output"] = OTHER
    for sample in sampled(m, "b"):
        sample["output"] = OTHER


def other_tokens_once(m):
    sampled(m, "b")[5]["output"] = OTHER
    m["arms"]["b"]["output"] = None


def test_arms_whose_samples_all_gave_the_same_tokens_are_token_exact(tmp_path):
    manifest = good_command()
    assert manifest["figures"]["output"] == {"a": 1, "b": 1, "verdict": "token-exact"}
    assert codes(tmp_path, manifest) == set()


@pytest.mark.parametrize(("change", "counts", "verdict"), [(other_tokens, (1, 1), "another output"), (other_tokens_once, (1, 2), "unsteady output")])
def test_what_is_said_of_outputs_is_what_every_sample_shows(tmp_path, change, counts, verdict):
    manifest = good_command()
    change(manifest)
    assert codes(tmp_path, manifest) == {"exact", "figure"}
    honest = refigured(manifest)
    assert honest["figures"]["output"] == {"a": counts[0], "b": counts[1], "verdict": verdict}
    assert codes(tmp_path, honest) == set()


def test_an_answer_that_was_captured_is_the_same_output_and_never_token_exact(tmp_path):
    manifest = good_command()
    manifest["plan"]["output"] = "(.*)"
    manifest["command"] += ["--output", "(.*)"]
    assert "exact" in codes(tmp_path, manifest)
    manifest = refigured(manifest)
    assert manifest["figures"]["output"]["verdict"] == "same output"
    assert codes(tmp_path, manifest) == set()


def test_without_a_witness_a_bundle_says_so_in_words(tmp_path):
    manifest = refigured(without_witness(good_command()))
    assert codes(tmp_path, manifest) == set()
    shown = page(open_bundle(tmp_path / "run"))
    assert NO_WITNESS in shown
    assert "no output asked for" in shown


def test_a_bundle_of_the_first_version_is_still_read_and_claims_no_more(tmp_path):
    manifest = of_first_version(good_command())
    assert codes(tmp_path, manifest) == set()
    assert "token-exact" not in page(open_bundle(tmp_path / "run"))


def a_witness_of_something_else(m):
    m["arms"]["a"]["witness"] = m["arms"]["b"]["witness"]


def a_witness_taken_away(m):
    m["arms"]["a"]["witness"] = NO_WITNESS


def another_witness_in_one_sample(m):
    sampled(m)[3]["witness"] = digest(b"another kernel")


def no_kernels(m):
    one_process(m, "a", kernels=[])


def no_code(m):
    one_process(m, "a", code=None)


def an_instruction_set_that_the_machine_has_not(m):
    m["machine"] |= {"row": "x86-64-v3", "flags": m["machine"]["flags"].partition(" avx512f")[0]}


def another_package(m):
    one_process(m, "b", package=digest(b"another checkout"))


def switched(m, variable, values):
    """The arms are one command with a variable that says something else."""
    for name, value in values.items():
        m["arms"][name]["spec"] = {"shell": "true", "commit": None, "env": {variable: value}}


def a_switch_that_chose_nothing(m):
    switched(m, "LANEWISE_CPU_KERNELS", {"a": "1", "b": "0"})
    m["arms"]["b"]["witness"] = m["arms"]["a"]["witness"]
    witnessed_again(m)


def an_instruction_set_that_did_not_run(m):
    switched(m, "LANEWISE_CPU_ISA", {"a": PROCESS["a"]["isa"], "b": "x86-64-v2"})


def threads_that_did_not_run(m):
    switched(m, "LANEWISE_THREADS", {"a": "2", "b": "1"})


def prompts_that_differ(m):
    one_process(m, "b", prompt=digest(b"another prompt"))


def ops_in_phases(m):
    one_process(m, "a", prompt=None)


def a_model_without_phases(m):
    one_process(m, "a", phases=[])


def tokens_of_ops_alone(m):
    for name in "ab":
        one_process(m, name, **OPS)


def no_output_in_one_sample(m):
    m["plan"]["output"] = "(.*)"
    sampled(m)[3]["output"] = None


def tokens_that_nobody_witnessed(m):
    without = without_witness(m)
    m["arms"] = {name: {**arm, "output": OTHER} for name, arm in without["arms"].items()}
    for sample in sampled(m):
        sample |= {"output": OTHER, "witness": None}


def a_file_that_changed(m):
    m["inputs"]["files"]["prompt.txt"]["after"] = digest(b"!")


def a_file_that_went(m):
    m["inputs"]["files"]["prompt.txt"]["after"] = None


def a_file_that_is_not_hashed(m):
    m["inputs"]["files"] = {}


def a_file_that_nobody_names(m):
    m["inputs"]["files"]["model.gguf"] = m["inputs"]["files"]["prompt.txt"]


def a_file_no_longer_declared(m):
    m["inputs"]["declared"] = []


def more_memory_than_there_is(m):
    sampled(m)[0]["memory"] = m["machine"]["memory"] + 1


WAYS = [
    (a_witness_of_something_else, "witness"), (a_witness_taken_away, "witness"), (another_witness_in_one_sample, "witness"),
    (no_kernels, "witness"), (no_code, "witness"), (an_instruction_set_that_the_machine_has_not, "machine"), (another_package, "source"),
    (a_switch_that_chose_nothing, "switch"), (an_instruction_set_that_did_not_run, "switch"), (threads_that_did_not_run, "switch"),
    (tokens_that_nobody_witnessed, "exact"), (tokens_of_ops_alone, "exact"), (ops_in_phases, "witness"), (a_model_without_phases, "witness"),
    (no_output_in_one_sample, "sample-missing"), (a_file_that_changed, "input-changed"), (a_file_that_went, "input-changed"),
    (a_file_that_is_not_hashed, "inputs"), (a_file_that_nobody_names, "inputs"), (a_file_no_longer_declared, "command"),
    (more_memory_than_there_is, "machine"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "code"), WAYS, ids=[change.__name__ for change, _ in WAYS])
def test_each_way_to_mislead_with_a_command_is_refused_by_its_name(tmp_path, change, code):
    manifest = good_command()
    change(manifest)
    assert code in codes(tmp_path, refigured(manifest))


@pytest.mark.parametrize("asked", [None, "(.*)"], ids=["witnessed", "captured"])
def test_arms_that_were_asked_different_things_are_neither_token_exact_nor_better_without_a_word_of_it(tmp_path, asked):
    manifest = good_command()
    if asked:
        manifest["plan"]["output"] = asked
        manifest["command"] += ["--output", asked]
        manifest = refigured(manifest)
    prompts_that_differ(manifest)
    reasons = verify(open_bundle(written(tmp_path / "run", manifest)))
    (reason,) = [reason for reason in reasons if reason.code == "prompts"]
    assert (reason.where, "'other prompts'" in reason.expected) == ("figures.output.verdict", True)
    assert reason.found == repr("same output" if asked else "token-exact")
    honest = refigured(manifest)
    assert honest["figures"]["output"] == {"a": 1, "b": 1, "verdict": "other prompts"}
    assert honest["figures"]["verdict"] == "a is better"
    assert codes(tmp_path, honest) == set()
    shown = page(open_bundle(tmp_path / "run"))
    assert "is better; the prompts differ" in shown
    assert "a and b were asked different things" in shown


def test_prompts_that_only_one_arm_witnessed_are_not_other_prompts(tmp_path):
    manifest = good_command()
    one_process(manifest, "b", **OPS)
    for sample in sampled(manifest, "b"):
        sample["output"] = None
    manifest["arms"]["b"]["output"] = None
    manifest = refigured(manifest)
    assert manifest["figures"]["output"]["verdict"] == "no output asked for"
    assert codes(tmp_path, manifest) == set()


def test_a_switch_that_a_process_of_ops_does_not_know_is_not_asked_of_it(tmp_path):
    manifest = refigured(without_witness(good_command()))
    for name, isa in (("a", "x86-64-v3"), ("b", "x86-64-v2")):
        one_process(manifest, name, **OPS | {"code": digest(name.encode())})
        manifest["arms"][name]["spec"]["env"] = {"LANEWISE_CPU_ISA": isa}
    assert "switch" not in codes(tmp_path, manifest)


@pytest.mark.parametrize("option", ["--metric", "--output", "--a", "--b", "--device"])
def test_the_texts_of_a_command_line_are_those_of_the_manifest_to_the_letter(tmp_path, option):
    manifest = good_command()
    manifest["plan"] |= {"output": "Answer: (.*)", "metric": r"Took ([\d.]+) s"}
    manifest["command"][manifest["command"].index("--metric") + 1] = manifest["plan"]["metric"]
    manifest["command"] += ["--output", manifest["plan"]["output"]]
    manifest["question"] = manifest["question"].replace(r"([\d.]+) s", manifest["plan"]["metric"])
    manifest = refigured(manifest)
    assert codes(tmp_path, manifest) == set()
    at = manifest["command"].index(option) + 1
    manifest["command"][at] = manifest["command"][at].swapcase()
    assert codes(tmp_path, manifest) == {"command"}


def test_a_document_says_token_exact_only_where_the_samples_do(tmp_path):
    text = tmp_path / "page.md"
    for change, said in ((lambda m: None, set()), (other_tokens, {"claim"})):
        manifest = good_command()
        change(manifest)
        bundle = open_bundle(written(tmp_path / "run", refigured(manifest)))
        value = f"{bundle.figures['a']['value']:.3f}"
        text.write_text(f"It takes {value}<!-- evidence: run.a.value -->, and both arms are token-exact.\n")
        assert {reason.code for reason in check_documents([text], [bundle])} == said
