"""What a repository says of a bundle: whether its commit is there, and whether its sources are that commit's and still the same."""

import hashlib
import io
import re
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lanewise.bench.manifest import digest
from lanewise.errors import EvidenceError
from lanewise.evidence.bundle import Bundle
from lanewise.evidence.processes import without_code
from lanewise.evidence.ran import processes_of
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import shown
from lanewise.witness import package_digest

__all__ = ["KERNELS", "Repo", "check_repo"]

_GIT_SECONDS = 60
_PACKAGE = "lanewise"
_TELLS_CODE = f"{_PACKAGE}/launched.py"  # in a commit whose processes tell the code of Triton kernels
# What the machine code of a kernel and the bytes that it reads are made of; for a model also how it becomes a step.
KERNELS = (f"{_PACKAGE}/kernels/", f"{_PACKAGE}/formats/", f"{_PACKAGE}/arch.py")
_OF_GPUS = (f"{_PACKAGE}/kernels/gpu/", f"{_PACKAGE}/ops/", f"{_PACKAGE}/dispatch.py", f"{_PACKAGE}/arch.py")
_OF_MODELS = (*KERNELS, f"{_PACKAGE}/models/", f"{_PACKAGE}/backends/")
_CLOCK = timedelta(minutes=5)  # how far the clocks of two machines may lie apart
_SHOWN = 4  # files of one kind that are named; of the others the number is given


class Repo:
    """A git checkout. Raises EvidenceError for a folder that is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        top = self._git("rev-parse", "--show-toplevel")
        if top is None:
            raise EvidenceError(f"{path}: not a git checkout; --repo takes the folder of one")
        self.top = Path(top.decode(errors="replace").strip())

    def has(self, commit: str) -> bool:
        return self._git("cat-file", "-e", f"{commit}^{{commit}}") is not None

    def is_reachable(self, commit: str) -> bool:
        """Whether a branch, tag or the checkout itself has the commit in its history: another one can be made up, and is soon gone."""
        return self._git("merge-base", "--is-ancestor", commit, "HEAD") is not None or bool(
            (self._git("for-each-ref", "--count=1", "--contains", commit) or b"").strip()
        )

    def when(self, commit: str) -> datetime:
        """When it was committed."""
        return datetime.fromtimestamp(int(self._git("show", "-s", "--format=%ct", commit) or b"0"), UTC)

    def hashes(self, commit: str) -> dict[str, str]:
        """SHA-256 of each .py file of the package at a commit."""
        listed = (self._git("ls-tree", "-r", "-z", commit, f"{_PACKAGE}/") or b"").split(b"\0")
        blobs = {}
        for line in filter(None, listed):
            about, _, name = line.partition(b"\t")
            if name.endswith(b".py"):
                blobs[name.decode(errors="replace")] = about.split()[2].decode()
        return dict(zip(blobs, self._blob_hashes(blobs.values()), strict=True))

    def listing(self, commit: str) -> bytes:
        """Every file of a commit with its hash, as git lists them."""
        return self._git("ls-tree", "-r", "--full-tree", commit) or b""

    def export(self, commit: str, folder: str) -> None:
        """Write the package as it is at a commit into a folder. Raises EvidenceError for a commit without one."""
        packed = self._git("archive", "--format=tar", commit, f"{_PACKAGE}/")
        if packed is None:
            raise EvidenceError(f"{self.path}: commit {commit[:12]} has no {_PACKAGE}/ that git could write out")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")

    def text(self, commit: str, path: str) -> str:
        return (self._git("show", f"{commit}:{path}") or b"").decode(errors="replace")

    def now(self, path: str) -> str | None:
        """SHA-256 of a file as it lies in the checkout; None where it is not there."""
        try:
            return hashlib.sha256((self.top / path).read_bytes()).hexdigest()
        except OSError:
            return None

    def _blob_hashes(self, names: Iterable[str]) -> list[str]:
        out = self._git("cat-file", "--batch", given="".join(f"{name}\n" for name in names).encode()) or b""
        found, place = [], 0
        while place < len(out):
            end = out.index(b"\n", place)
            size = int(out[place:end].split()[2])
            found.append(hashlib.sha256(out[end + 1 : end + 1 + size]).hexdigest())
            place = end + 2 + size
        return found

    def _git(self, *words: str, given: bytes | None = None) -> bytes | None:
        # A checkout may come from anywhere: none of what its configuration could start is wanted here.
        safe = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat", "--no-replace-objects", "--no-optional-locks")
        try:
            done = subprocess.run(["git", *safe, *words], cwd=self.path, input=given, capture_output=True, timeout=_GIT_SECONDS)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise EvidenceError(f"{self.path}: git cannot be asked ({error})") from None
        return done.stdout if done.returncode == 0 else None


def check_repo(bundle: Bundle, repo: Repo) -> list[Reason]:
    """What the repository has against a bundle."""
    commit = bundle.manifest["commit"]
    if commit is None:
        return []  # said without a repository already
    found = str(commit["id"])
    if not re.fullmatch(r"[0-9a-f]{40}", found) or not repo.has(found):
        return [Reason("commit", "commit.id", f"a commit of {repo.path}", found)]
    reasons = []
    if not repo.is_reachable(found):
        reasons.append(Reason("commit", "commit.id", "a commit in the history of a branch or tag", f"{found[:12]}, which none has"))
    began = bundle.manifest["began"]
    if repo.when(found) > (_time(began) or repo.when(found)) + _CLOCK:
        reasons.append(Reason("commit", "commit.id", f"a commit from before the run began ({began})", f"one of {repo.when(found).isoformat()}"))
    reasons += _version(bundle.manifest, repo, found)
    at_commit = repo.hashes(found)
    if not bundle.is_record:
        reasons += _sources(bundle.manifest["sources"], at_commit)
        reasons += _arms(bundle.manifest, repo)
    return reasons + _stale(bundle, at_commit, repo)


def _arms(manifest: Mapping[str, Any], repo: Repo) -> list[Reason]:
    """Arms that are commits: each is there, and the hash of its files is that of the commit."""
    reasons = []
    for name, arm in manifest["arms"].items():
        commit = arm["spec"].get("commit") if manifest["kind"] == "command" else None
        if commit is None:
            continue
        if not re.fullmatch(r"[0-9a-f]{40}", str(commit)) or not repo.has(str(commit)):
            reasons.append(Reason("commit", f"arms.{name}.spec.commit", f"a commit of {repo.path}", shown(commit)))
        elif arm["artifact"] != (files := digest(repo.listing(str(commit)).strip())):
            reasons.append(Reason("artifact", f"arms.{name}.artifact", f"{files}, of the files of {str(commit)[:12]}", shown(arm["artifact"])))
        elif any(process["package"] != package_digest(repo.hashes(str(commit))) for process in processes_of(arm)):
            reasons.append(Reason("source", f"arms.{name}.witness", f"the package of {str(commit)[:12]}", "another package"))
        elif said := {process["lanewise"] for process in processes_of(arm)} - {_written(repo, str(commit))}:
            reasons.append(Reason("versions", f"arms.{name}.witness", f"the version of {str(commit)[:12]}", ", ".join(sorted(said))[:100]))
        elif repo.text(str(commit), _TELLS_CODE) and any(map(without_code, processes_of(arm))):
            reasons.append(Reason("witness", f"arms.{name}.witness", f"the machine code of kernels, which {str(commit)[:12]} tells", "null"))
    return reasons


def _time(text: str) -> datetime | None:
    """None for what is none, which is refused without a repository already."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def _sources(claimed: Mapping[str, str], at_commit: Mapping[str, str]) -> list[Reason]:
    """Each file of the package at the commit is listed, with its hash, and no other."""
    wrong = [
        Reason("source", f"sources.{path}", _short(at_commit.get(path)) or "no such file at the commit", _short(claimed.get(path)) or "nothing")
        for path in sorted({*claimed, *at_commit})
        if claimed.get(path) != at_commit.get(path)
    ]
    return _first(wrong, "source", "sources")


def _stale(bundle: Bundle, at_commit: Mapping[str, str], repo: Repo) -> list[Reason]:
    matters: tuple[str, ...] = _OF_MODELS if bundle.is_record else _OF_GPUS if "gpu" in bundle.manifest["machine"] else KERNELS
    if not bundle.is_record and bundle.manifest["kind"] == "command":
        matters = (f"{_PACKAGE}/",) if _runs_lanewise(bundle.manifest) else ()
    measured = at_commit if bundle.is_record else bundle.manifest["sources"]
    changed = [
        Reason("stale", path, f"{_short(measured[path])}, as measured", _short(repo.now(path)) or "no such file")
        for path in sorted(measured)
        if path.startswith(matters) and ".." not in path and repo.now(path) != measured[path]
    ]
    return _first(changed, "stale", "sources")


def _runs_lanewise(manifest: Mapping[str, Any]) -> bool:
    """Whether one of the commands runs this package, by its words or its witness, and not only something else that was timed."""
    return any(_PACKAGE in str(arm["spec"]) or processes_of(arm) for arm in manifest["arms"].values())


def _version(manifest: Mapping[str, Any], repo: Repo, commit: str) -> list[Reason]:
    written, claimed = _written(repo, commit), str(manifest["versions"].get(_PACKAGE))
    if written in (None, claimed):
        return []
    return [Reason("versions", f"versions.{_PACKAGE}", f"{written}, as the commit has it", claimed)]


def _written(repo: Repo, commit: str) -> str | None:
    """The version of the package that a commit says that it is."""
    found = re.search(r'^__version__ = "([^"]+)"', repo.text(commit, f"{_PACKAGE}/__init__.py"), re.MULTILINE)
    return found[1] if found else None


def _first(reasons: list[Reason], code: str, where: str) -> list[Reason]:
    """A changed tree would give hundreds of lines that all say the same."""
    if len(reasons) <= _SHOWN + 1:
        return reasons
    return [*reasons[:_SHOWN], Reason(code, where, "none", f"{len(reasons) - _SHOWN} more files")]


def _short(digest: str | None) -> str:
    return digest[:12] if digest else ""
