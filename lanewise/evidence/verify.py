"""Verify a bundle: everything that can be asked of it, in order, and every reason to refuse it at once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lanewise.bench.stats import figures
from lanewise.evidence.bundle import Bundle
from lanewise.evidence.claims import check_claims, check_verdict
from lanewise.evidence.command import check_command
from lanewise.evidence.documents import check_documents
from lanewise.evidence.ran import check_exact, check_ran
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompile import check_recompiled
from lanewise.evidence.recompute import differing
from lanewise.evidence.record import check_record
from lanewise.evidence.repo import Repo, check_repo
from lanewise.evidence.samples import check_samples

__all__ = ["verify"]


def verify(bundle: Bundle, repo: Path | None = None, documents: Sequence[Path] = (), *, run_commits: bool = False) -> list[Reason]:
    """Every reason to refuse a bundle; none is the answer that it holds.

    With `repo`, a git checkout, commit and sources are checked against it, and what was compiled and drawn is made again.
    `run_commits` lets the Lanewise of an arm's commit compile the kernels that are others there, which runs code of that checkout.
    Raises EvidenceError for a repository or document that cannot be read.
    """
    reasons = check_record(bundle.manifest) if bundle.is_record else _of_manifest(bundle)
    if repo is not None:
        checkout = Repo(repo)
        reasons += check_repo(bundle, checkout)
        if not bundle.is_record:
            reasons += check_recompiled(bundle.manifest, checkout, run_commits=run_commits)
    return list(dict.fromkeys(reasons + check_documents(documents, [bundle])))


def _of_manifest(bundle: Bundle) -> list[Reason]:
    found = bundle.manifest
    reasons = [*_seal(bundle), *check_samples(found), *check_claims(found), *check_command(found), *check_ran(found)]
    if bundle.faults:  # figures of rounds without their samples follow from nothing
        return [*reasons, Reason("figure", "figures", "samples that they follow from", bundle.faults[0])]
    if len({one["probes"] is None for one in found["rounds"]}) > 1:
        return reasons
    try:
        with np.errstate(all="raise"):
            follows = figures(found)
    except (ArithmeticError, ValueError) as error:  # times that no clock gives, such as 1e-320 s
        return [*reasons, Reason("figure", "figures", "samples that they follow from", str(error))]
    said = found["figures"]
    return [*reasons, *differing(follows, said), *check_verdict(said["verdict"], follows), *check_exact(said, follows)]


def _seal(bundle: Bundle) -> list[Reason]:
    if bundle.seal == bundle.sealed:
        return []
    found = "no seal" if bundle.seal is None else repr(bundle.seal.split(" ")[0][:64])
    return [Reason("digest", "manifest.sha256", bundle.sealed.split(" ")[0], found)]
