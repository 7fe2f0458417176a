"""Ask the Lanewise of another commit what the machine code of a process is: it alone compiles its own kernels. This runs code of a checkout."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from lanewise.errors import EvidenceError
from lanewise.evidence.reasons import CODES, Reason
from lanewise.evidence.repo import Repo

__all__ = ["asked_of"]

_SECONDS = 900
_PROGRAM = """
import json, sys
from lanewise.evidence.recompile import code_of_process
wrong = code_of_process(**json.load(sys.stdin))
print(json.dumps(wrong and [wrong.code, wrong.where, wrong.expected, wrong.found]))
"""


def asked_of(commit: str, repo: Repo, where: str, process: Mapping[str, Any], versions: Mapping[str, str]) -> Reason | None:
    """What `recompile.code_of_process` says there, with the packages of this environment. A commit that cannot say it gives `recompile`."""
    with tempfile.TemporaryDirectory() as folder:
        repo.export(commit, folder)
        path = os.pathsep.join([folder, *filter(None, sys.path)])
        given = json.dumps({"where": where, "process": process, "versions": versions})
        argv = ["env", f"PYTHONPATH={path}", sys.executable, "-c", _PROGRAM]
        try:
            done = subprocess.run(argv, cwd=folder, input=given, capture_output=True, text=True, timeout=_SECONDS)
            said = json.loads(done.stdout.splitlines()[-1])
            if said is None:
                return None
            code, place, expected, found = map(str, said)
        except subprocess.TimeoutExpired:
            return Reason("recompile", where, f"an answer of {commit[:12]} within {_SECONDS} seconds", "none")
        except (IndexError, ValueError, TypeError):
            words = (done.stderr.strip().splitlines() or ["nothing"])[-1][:200]
            return Reason("recompile", where, f"what the Lanewise of {commit[:12]} compiles", words)
    return _told(commit, code, place, expected, found)


def _told(commit: str, code: str, where: str, expected: str, found: str) -> Reason:
    if code not in CODES:
        raise EvidenceError(f"commit {commit[:12]} gives a reason {code[:40]!r} that this version does not know")
    return Reason(code, where, expected, found)
