"""`lanewise inspect` and `lanewise quantize` on real files: the tiny model, the real one, and ones that cannot run."""

import re

import gguf
import numpy as np
import pytest
from cli_fakes import lanewise, read

from lanewise.files import open_model


@pytest.fixture
def strange(tmp_path):
    """A well-formed GGUF file of a family without a spec, whose name holds an escape sequence."""
    writer = gguf.GGUFWriter(tmp_path / "strange.gguf", "mamba")
    writer.add_name("evil\x1b[2J")
    writer.add_context_length(77)
    writer.add_block_count(3)
    writer.add_tensor("a.weight", np.ones((2, 32), np.float32))
    writer.add_tensor("b.weight", np.ones((4, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "strange.gguf"


def test_inspect_tells_what_a_model_is(smollm2):
    facts = read(lanewise("inspect", str(smollm2), "--json"))
    assert (facts["kind"], facts["architecture"], facts["runs"], facts["why_not"]) == ("gguf", "llama", True, None)
    assert (facts["layers"], facts["hidden"], facts["heads"], facts["kv_heads"], facts["head_dim"]) == (30, 576, 9, 3, 64)
    assert (facts["context"], facts["vocab"], facts["parameters"]) == (8192, 49152, 134515008)
    assert (facts["tokenizer"], facts["tokenizer_error"], facts["chat_template"]) == ("gpt2 smollm", None, True)
    assert "tensors" not in facts
    formats = {f["format"]: (f["tensors"], f["bits_per_weight"]) for f in facts["formats"]}
    assert formats == {"Q4_1": (210, 5.0), "Q8_0": (1, 8.5), "F32": (61, 32.0)}
    assert sum(f["bytes"] for f in facts["formats"]) == facts["bytes"]


def test_inspect_lists_every_tensor_of_the_file(tiny_gguf):
    listed = read(lanewise("inspect", str(tiny_gguf), "--tensors", "--json"))["tensors"]
    with open_model(tiny_gguf) as model:
        assert listed == [{"name": t.name, "format": t.format.name, "shape": list(t.shape), "bytes": t.nbytes} for t in model.tensors.values()]
        table = lanewise("inspect", str(tiny_gguf), "--tensors").stdout
        for tensor in model.tensors.values():
            shape = "x".join(map(str, tensor.shape))
            assert re.search(rf"^{re.escape(tensor.name)} +{tensor.format.name} +{shape} +{tensor.nbytes:,}$", table, re.MULTILINE)


def test_inspect_reads_as_text_too(smollm2):
    text = lanewise("inspect", str(smollm2)).stdout
    for words in ("runs:          yes", "134,515,008", "8,192 tokens", "9, 3 for keys and values", "210 Q4_1 (5 bits)", "chat template: yes"):
        assert words in text


def test_a_family_without_a_spec_is_inspected_and_said_not_to_run(strange):
    done = lanewise("inspect", str(strange), "--json")
    facts = read(done)
    assert done.exit_code == 0
    assert (facts["runs"], facts["architecture"], facts["context"], facts["layers"], facts["hidden"]) == (False, "mamba", 77, 3, None)
    assert "model family 'mamba' is not supported" in facts["why_not"]
    assert (facts["parameters"], facts["bytes"], facts["chat_template"]) == (2 * 32 + 4 * 32, 2 * 32 * 4 + 4 * 34, None)
    text = lanewise("inspect", str(strange)).stdout
    assert "runs:          no: " in text
    assert "hidden size unknown" in text
    assert "name:          evil\\x1b[2J" in text
    assert "\x1b" not in text


def test_inspect_of_a_safetensors_directory(tmp_path):
    from support import tiny

    folder = tiny.save_directory(tiny.model_of("qwen3"), tmp_path / "model")
    facts = read(lanewise("inspect", str(folder), "--json"))
    assert (facts["kind"], facts["architecture"], facts["runs"], facts["tokenizer"]) == ("safetensors", "qwen3", True, "tokenizer.json")


@pytest.mark.parametrize("command", [("inspect",), ("quantize", "--type", "Q8_0", "out.gguf")])
def test_a_file_that_is_no_model_is_one_line(tmp_path, command):
    path = tmp_path / "notes.gguf"
    path.write_text("not a model")
    done = lanewise(command[0], str(path), *command[1:])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("lanewise: error: ")


def test_quantize_writes_a_file_that_inspect_reads(tiny_gguf, tmp_path):
    target = tmp_path / "q8.gguf"
    done = lanewise("quantize", str(tiny_gguf), str(target), "--type", "q8_0")
    assert done.exit_code == 0
    assert re.search(r"-> Q8_0$", done.stdout, re.MULTILINE)
    assert f"{target}: Q8_0, " in done.stdout
    facts = read(lanewise("inspect", str(target), "--json"))
    assert facts["runs"]
    assert "Q8_0" in {f["format"] for f in facts["formats"]}


def test_quantize_reports_what_the_user_may_not_expect(tiny_gguf, tmp_path):
    first, second = tmp_path / "q4.gguf", tmp_path / "q8.gguf"
    done = lanewise("quantize", str(tiny_gguf), str(first), "--type", "Q4_K", "--json")
    report = read(done)
    assert (report["type_name"], report["target"]) == ("Q4_K", str(first))
    assert report["bytes_after"] == sum(c["bytes_after"] for c in report["changes"]) < report["bytes_before"]
    assert "their rows are not whole blocks of Q4_K" in done.stderr
    assert "were quantized before" in lanewise("quantize", str(first), str(second), "--type", "Q8_0").stderr


def test_quantize_replaces_a_file_only_when_told_to(tiny_gguf, tmp_path):
    target = tmp_path / "out.gguf"
    target.write_text("mine")
    done = lanewise("quantize", str(tiny_gguf), str(target), "--type", "Q8_0")
    assert (done.exit_code, target.read_text()) == (2, "mine")
    assert lanewise("quantize", str(tiny_gguf), str(target), "--type", "Q8_0", "--overwrite").exit_code == 0
    assert target.read_bytes()[:4] == b"GGUF"


def test_an_unknown_type_lists_those_that_exist(tiny_gguf, tmp_path):
    done = lanewise("quantize", str(tiny_gguf), str(tmp_path / "x.gguf"), "--type", "Q9")
    assert done.exit_code == 2
    assert "Q4_K_M" in done.stderr
    assert not (tmp_path / "x.gguf").exists()
