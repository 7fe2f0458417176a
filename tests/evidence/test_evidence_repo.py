"""Against a repository: the commit is there and is the one, sources are its own and unchanged since, and compiling gives the same code."""

import subprocess

import pytest
from support.bundles import ARMS, CALL, COMPILERS, OPS, good, good_command, refigured, sampled, without_witness, witnessed_again, written

from lanewise.bench.cpu_call import kernels_of
from lanewise.bench.manifest import digest, sources
from lanewise.errors import EvidenceError
from lanewise.evidence import elsewhere, open_bundle, recompile, verify
from lanewise.evidence.repo import Repo
from lanewise.kernels.cpu.compile import compile_object
from lanewise.kernels.cpu.isa import ISAS
from lanewise.witness import package_digest

FILES = {
    "lanewise/__init__.py": '__version__ = "0.1.0"\n',
    "lanewise/kernels/cpu/emit.py": "x = 1\n",
    "lanewise/cli/show.py": "y = 1\n",
    "README.md": "words\n",
}


def git(folder, *words):
    settings = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    date = {"GIT_COMMITTER_DATE": "2026-11-01T00:00:00Z", "GIT_AUTHOR_DATE": "2026-11-01T00:00:00Z", "HOME": str(folder)}
    done = subprocess.run(["git", *settings, *words], cwd=folder, env={**date, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "x")
    return folder


@pytest.fixture(autouse=True)
def _compiler(monkeypatch):
    """Stands in for the compiler, which takes seconds; one test uses it."""
    monkeypatch.setattr(recompile, "compile_object", lambda kernel, isa: f"{kernel.name} for {isa.name}".encode())


def at(repo, manifest=None):
    """The bundle as it is when that checkout was measured."""
    made = manifest or good()
    made["commit"]["id"] = git(repo, "rev-parse", "HEAD")
    made["sources"] = sources(repo / "lanewise")
    if made["kind"] == "command":
        for arm in made["arms"].values():
            arm["witness"] = [{**one, "code": code_of(one["kernels"], one["isa"])} for one in arm["witness"]]
        packaged(made, package_digest(made["sources"]))
    for arm in made["arms"].values():
        if made["kind"] == "kernel":
            arm["artifact"] = code_of([kernel.name for kernel in kernels_of(CALL)], arm["witness"]["isa"])
    return made


def code_of(names, isa):
    """The hash of what the compiler that stands in makes of kernels."""
    return digest("".join(f"{name} for {isa}" for name in names).encode())


def at_commit(repo, made, name):
    """An arm is the checkout's commit, and the last one that the question names."""
    commit, files = git(repo, "rev-parse", "HEAD"), git(repo, "ls-tree", "-r", "--full-tree", "HEAD")
    arm = made["arms"][name]
    arm["spec"]["commit"], arm["artifact"] = commit, digest(files.encode())
    arm["label"] += f" at {commit[:12]}"
    made["question"] = made["question"].removesuffix("?") + f" at {commit[:12]}?"
    return made


def packaged(made, package, *arms):
    """The processes of the arms are of that package."""
    for name in arms or ("a", "b"):
        made["arms"][name]["witness"] = [{**process, "package": package} for process in made["arms"][name]["witness"]]
    witnessed_again(made)


def reasons(tmp_path, manifest, repo):
    return verify(open_bundle(written(tmp_path / "run", manifest)), repo)


def codes(tmp_path, manifest, repo):
    return {reason.code for reason in reasons(tmp_path, manifest, repo)}


def test_a_bundle_of_this_very_checkout_holds(tmp_path, repo):
    assert reasons(tmp_path, at(repo), repo) == []
    assert reasons(tmp_path, at(repo, good_command()), repo) == []


def test_a_commit_that_is_not_there_is_refused(tmp_path, repo):
    manifest = at(repo)
    manifest["commit"]["id"] = "f" * 40
    (reason,) = reasons(tmp_path, manifest, repo)
    assert (reason.code, reason.where, reason.found) == ("commit", "commit.id", "f" * 40)


def test_another_commit_than_was_measured_is_refused_for_its_files(tmp_path, repo):
    manifest = at(repo)
    (repo / "lanewise/cli/show.py").write_text("y = 2\n")
    git(repo, "commit", "--quiet", "-am", "y")
    assert reasons(tmp_path, manifest, repo) == []
    manifest["commit"]["id"] = git(repo, "rev-parse", "HEAD")
    (reason,) = reasons(tmp_path, manifest, repo)
    assert (reason.code, reason.where) == ("source", "sources.lanewise/cli/show.py")


def test_a_commit_that_no_branch_has_is_refused(tmp_path, repo):
    (repo / "lanewise/cli/show.py").write_text("y = 3\n")
    git(repo, "commit", "--quiet", "-am", "made up")
    manifest = at(repo)
    git(repo, "reset", "--quiet", "--hard", "HEAD~1")
    assert "commit" in codes(tmp_path, manifest, repo)


def test_a_commit_from_after_the_run_is_refused(tmp_path, repo):
    manifest = at(repo)
    manifest["began"], manifest["ended"] = "2026-10-01T00:00:00+00:00", "2026-10-01T01:00:00+00:00"
    assert codes(tmp_path, manifest, repo) == {"commit"}


@pytest.mark.parametrize(("name", "code"), [("lanewise/kernels/cpu/emit.py", {"stale"}), ("lanewise/cli/show.py", set()), ("README.md", set())])
def test_only_files_that_matter_may_not_change_afterwards(tmp_path, repo, name, code):
    manifest = at(repo)
    (repo / name).write_text("z = 1\n")
    assert codes(tmp_path, manifest, repo) == code
    git(repo, "commit", "--quiet", "-am", "later")
    assert codes(tmp_path, manifest, repo) == code


def test_a_file_that_matters_and_is_gone_has_changed(tmp_path, repo):
    manifest = at(repo)
    (repo / "lanewise/kernels/cpu/emit.py").unlink()
    assert codes(tmp_path, manifest, repo) == {"stale"}


def test_sources_that_are_left_out_or_made_up_are_named(tmp_path, repo):
    manifest = at(repo)
    del manifest["sources"]["lanewise/kernels/cpu/emit.py"]
    manifest["sources"]["lanewise/../secret.py"] = digest(b"")
    assert {(r.code, r.where) for r in reasons(tmp_path, manifest, repo)} == {
        ("source", "sources.lanewise/kernels/cpu/emit.py"),
        ("source", "sources.lanewise/../secret.py"),
    }


def test_the_version_is_that_of_the_commit(tmp_path, repo):
    manifest = at(repo)
    manifest["versions"]["lanewise"] = "9.9"
    assert codes(tmp_path, manifest, repo) == {"versions"}


def test_machine_code_that_compiling_does_not_give_now_is_refused(tmp_path, repo, monkeypatch):
    now = recompile.versions()
    monkeypatch.setattr(recompile, "versions", lambda: now)
    manifest = at(repo)
    manifest["versions"] |= {name: now[name] for name in ("llvm", "llvmlite")}
    manifest["arms"]["b"]["artifact"] = digest(b"another kernel")
    (reason,) = reasons(tmp_path, manifest, repo)
    assert (reason.code, reason.where, reason.found) == ("artifact", "arms.b.artifact", digest(b"another kernel"))
    manifest["versions"]["llvm"] = "1.0"
    (reason,) = reasons(tmp_path, manifest, repo)
    assert (reason.code, "llvm 1.0 there" in reason.found) == ("recompile", True)


def test_machine_code_of_a_command_that_compiling_does_not_give_now_is_refused_with_every_hash_made_again(tmp_path, repo, monkeypatch):
    monkeypatch.setattr(recompile, "versions", lambda: COMPILERS)
    manifest = at(repo, good_command())
    manifest["arms"]["b"]["witness"][0]["code"] = digest(b"another kernel")
    witnessed_again(manifest)
    (reason,) = reasons(tmp_path, refigured(manifest), repo)
    assert (reason.code, reason.where, reason.found) == ("artifact", "arms.b.witness[0].code", digest(b"another kernel"))
    assert verify(open_bundle(tmp_path / "run")) == []  # without a checkout nothing is compiled


def test_the_compiler_itself_gives_the_hash_that_a_run_wrote(tmp_path, repo, monkeypatch):
    stand_in, real = recompile.compile_object, ISAS[ARMS["b"]]
    monkeypatch.setattr(recompile, "compile_object", lambda kernel, isa: (compile_object if isa == real else stand_in)(kernel, isa))
    manifest = at(repo)
    manifest["arms"]["b"]["artifact"] = digest(b"".join(compile_object(kernel, real) for kernel in kernels_of(CALL)))
    assert reasons(tmp_path, manifest, repo) == []


def test_inputs_that_the_seed_does_not_draw_are_refused(tmp_path, repo):
    manifest = at(repo)
    manifest["inputs"]["sha256"]["w"] = digest(b"easier weights")
    (reason,) = reasons(tmp_path, manifest, repo)
    assert (reason.code, reason.where) == ("inputs", "inputs.sha256.w")


def test_inputs_too_large_to_draw_again_are_not_drawn(tmp_path, repo):
    manifest = at(repo)
    manifest["problem"] |= {"m": 2**40, "n": 2**40}
    assert {"recompile", "problem"} <= codes(tmp_path, refigured(manifest), repo)


def test_an_arm_that_is_a_commit_has_the_files_version_and_code_of_that_commit(tmp_path, repo, monkeypatch):
    manifest = at_commit(repo, at(repo, good_command()), "b")
    arm = manifest["arms"]["b"]
    assert codes(tmp_path, manifest, repo) == set()
    packaged(manifest, digest(b"another package"), "b")
    assert codes(tmp_path, manifest, repo) == {"source"}
    packaged(manifest, package_digest(manifest["sources"]), "b")
    monkeypatch.setattr(recompile, "versions", lambda: COMPILERS)
    ran, others = arm["witness"], recompile.sources
    arm["witness"] = [{**one, "code": digest(b"another kernel")} for one in ran]
    witnessed_again(manifest)
    (reason,) = reasons(tmp_path, manifest, repo)
    assert (reason.code, reason.where, "only its own Lanewise compiles; --run-commits" in reason.expected) == (
        "recompile",
        "arms.b.witness[0].code",
        True,
    )
    monkeypatch.setattr(recompile, "sources", lambda: sources(repo / "lanewise"))
    assert codes(tmp_path, manifest, repo) == {"artifact"}
    monkeypatch.setattr(recompile, "sources", others)
    arm["witness"] = [{**one, "lanewise": "9.9"} for one in ran]
    witnessed_again(manifest)
    assert codes(tmp_path, manifest, repo) == {"versions"}
    arm["witness"] = ran
    witnessed_again(manifest)
    arm["artifact"] = digest(b"other files")
    assert codes(tmp_path, manifest, repo) == {"artifact"}
    arm["spec"]["commit"] = "--help"
    assert "commit" in codes(tmp_path, manifest, repo)


@pytest.mark.parametrize("tells", [False, True])
def test_a_commit_that_tells_the_code_of_gpu_kernels_has_it_in_its_arm(tmp_path, repo, tells):
    if tells:
        (repo / "lanewise/launched.py").write_text("z = 1\n")
        git(repo, "add", ".")
        git(repo, "commit", "--quiet", "-m", "tells it")
    manifest = at_commit(repo, at(repo, good_command()), "b")
    bare = {field: value for field, value in OPS.items() if field not in ("compiler", "compiled")} | {"isa": None, "code": None}
    manifest["arms"]["b"]["witness"] = [{"lanewise": "0.1.0", "package": package_digest(manifest["sources"]), **bare}]
    for sample in sampled(manifest, "b"):
        sample["output"] = None
    manifest["arms"]["b"]["output"] = None
    witnessed_again(manifest)
    assert codes(tmp_path, refigured(manifest), repo) == ({"witness"} if tells else set())


ITS_OWN = """
from collections import namedtuple
Reason = namedtuple("Reason", "code where expected found")
def code_of_process(where, process, versions):
    assert versions["lanewise"] == "0.1.0"
    return None if process["code"] == "%s" else Reason("%s", where + ".code", "its own", "another")
"""


@pytest.mark.parametrize(
    ("written_there", "code", "given"),
    [(ITS_OWN % ("1" * 64, "artifact"), "1", set()), (ITS_OWN % ("1" * 64, "artifact"), "2", {"artifact"}), (None, "1", {"recompile"})],
    ids=["its own code", "another code", "a commit that cannot say"],
)
def test_an_arm_that_is_a_commit_with_other_kernels_is_compiled_by_its_own_lanewise_where_that_is_wanted(tmp_path, repo, written_there, code, given):
    if written_there:
        (repo / "lanewise/evidence").mkdir()
        (repo / "lanewise/evidence/__init__.py").touch()
        (repo / "lanewise/evidence/recompile.py").write_text(written_there)
        git(repo, "add", ".")
        git(repo, "commit", "--quiet", "-m", "says it")
    manifest = at_commit(repo, at(repo, good_command()), "b")
    arm = manifest["arms"]["b"]
    arm["witness"][0]["code"] = code * 64
    witnessed_again(manifest)
    bundle = open_bundle(written(tmp_path / "run", manifest))
    assert {reason.code for reason in verify(bundle, repo, run_commits=True)} == given
    assert {reason.code for reason in verify(bundle, repo)} == {"recompile"}


def test_a_reason_of_another_commit_that_is_none_here_is_refused(tmp_path, repo):
    (repo / "lanewise/evidence").mkdir()
    (repo / "lanewise/evidence/recompile.py").write_text(ITS_OWN % ("1" * 64, "nonsense"))
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "says it")
    with pytest.raises(EvidenceError, match="gives a reason 'nonsense'"):
        elsewhere.asked_of(git(repo, "rev-parse", "HEAD"), Repo(repo), "here", {"code": "2"}, {"lanewise": "0.1.0"})


def test_a_command_that_runs_lanewise_is_stale_when_any_of_it_changed(tmp_path, repo):
    manifest = at(repo, good_command())
    unwitnessed = refigured(without_witness(manifest))
    (repo / "lanewise/cli/show.py").write_text("z = 1\n")
    assert codes(tmp_path, unwitnessed, repo) == set()
    assert codes(tmp_path, manifest, repo) == {"stale"}
    unwitnessed["arms"]["a"]["spec"]["shell"] = "lanewise --help"
    assert "stale" in codes(tmp_path, unwitnessed, repo)


def test_a_folder_without_git_is_refused(tmp_path, repo):
    with pytest.raises(EvidenceError, match="not a git checkout"):
        verify(open_bundle(written(tmp_path / "run", at(repo))), tmp_path)
    with pytest.raises(EvidenceError, match="git cannot be asked"):
        verify(open_bundle(written(tmp_path / "run", at(repo))), tmp_path / "gone")
