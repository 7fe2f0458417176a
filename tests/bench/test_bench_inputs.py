"""Files that commands read: found by their words, declared, hashed before and after, and refused when a declared one changed."""

import pytest

from lanewise.bench.inputs import Inputs, Place, named_in
from lanewise.bench.manifest import digest
from lanewise.errors import EvidenceError


def inputs(folder, shell="true", declared=(), values=(), *, of_commit=False):
    return Inputs(declared, [Place(shell, tuple(values), folder, of_commit)], folder)


@pytest.fixture
def folder(tmp_path):
    for name in ("model.gguf", "prompt.txt", "out"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    "shell", ["run model.gguf", "run --model=model.gguf|cat", "MODEL=model.gguf run", "run <model.gguf >out", "run 'model.gguf' 2>> out"]
)
def test_a_word_of_a_command_that_is_a_file_is_hashed_and_what_it_writes_is_not(folder, shell):
    assert inputs(folder, shell).manifest() == {
        "declared": [], "files": {"model.gguf": {"bytes": 10, "sha256": digest(b"model.gguf"), "after": digest(b"model.gguf")}}
    }  # fmt: skip


def test_a_variable_may_name_a_file(folder):
    assert list(inputs(folder, values=["model.gguf", "x" * 5000, "a\0b"]).manifest()["files"]) == ["model.gguf"]


def test_files_of_a_commit_are_known_by_the_commit(folder):
    assert inputs(folder, "run model.gguf", of_commit=True).manifest()["files"] == {}


def test_a_command_whose_quotes_only_a_shell_can_read_names_what_stands_before_them(folder):
    assert list(named_in("run model.gguf 'open")) == ["run", "model.gguf"]


def test_every_file_of_a_declared_folder_is_hashed(folder):
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "deep" / "w.safetensors").write_text("w")
    found = inputs(folder, declared=["sub/", "prompt.txt"]).manifest()
    assert (found["declared"], list(found["files"])) == (["sub/", "prompt.txt"], ["sub/deep/w.safetensors", "prompt.txt"])


@pytest.mark.parametrize(
    ("declared", "words"), [(["gone"], "neither a file nor a folder"), (["empty"], "holds 0 files"), (["out", "out"], "declared twice")]
)
def test_what_cannot_be_declared_is_refused(folder, declared, words):
    (folder / "empty").mkdir()
    with pytest.raises(EvidenceError, match=words):
        inputs(folder, declared=declared)


def test_a_declared_file_that_changes_is_refused_and_one_that_was_only_named_is_marked(folder):
    declared, named = inputs(folder, declared=["out"]), inputs(folder, "tee out")
    (folder / "out").write_text("more")
    with pytest.raises(EvidenceError, match="out changed while the run went on"):
        declared.require_same()
    assert named.manifest()["files"]["out"]["after"] == digest(b"more")
    (folder / "out").unlink()
    assert named.manifest()["files"]["out"]["after"] is None
    with pytest.raises(EvidenceError, match="out changed"):
        declared.manifest()
