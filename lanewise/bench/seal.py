"""The seal of a bundle: the SHA-256 of its manifest in a file beside it, so that no later change of any byte goes unnoticed.

It is no signature. Who writes a manifest can write its seal too; against that stand the checks of `lanewise evidence verify`.
"""

import hashlib
from pathlib import Path

__all__ = ["SEAL", "seal", "seal_text"]

SEAL = "manifest.sha256"


def seal_text(manifest: bytes, name: str = "manifest.json") -> str:
    """What the file holds: a line that `sha256sum -c` takes."""
    return f"{hashlib.sha256(manifest).hexdigest()}  {name}\n"


def seal(manifest: Path) -> Path:
    """Write the seal of a manifest into its directory."""
    path = manifest.with_name(SEAL)
    path.write_text(seal_text(manifest.read_bytes(), manifest.name), encoding="utf-8")
    return path
