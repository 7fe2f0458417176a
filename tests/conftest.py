"""Fixtures that several rooms share."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test reaches no network
# Two pytest workers on two cores: BLAS threads that spin for each other's core make everything ten times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Compiled kernels: never in the user's cache, and shared by the workers of a run, which inherit the variable.
if "LANEWISE_CACHE_DIR" not in os.environ:
    os.environ["LANEWISE_CACHE_DIR"] = tempfile.mkdtemp(prefix="lanewise-tests-")
    atexit.register(shutil.rmtree, os.environ["LANEWISE_CACHE_DIR"], ignore_errors=True)

MODEL = Path(__file__).parent.parent / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(autouse=True)
def _own_locks(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests that measure run beside each other, and one run of a device at a time is no matter to them."""
    monkeypatch.setattr("lanewise.bench.lock._folder", lambda: tmp_path_factory.getbasetemp() / f"locks-{os.getpid()}")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real model that `make demo` fetches. Without it the tests of the main job cannot run, and say so."""
    if not MODEL.exists():
        pytest.fail(f"{MODEL.name} is not there; `make models/{MODEL.name}` fetches it")
    return MODEL


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama as a GGUF file, with a tokenizer and a chat template."""
    from support import tiny

    return tiny.save_gguf(tiny.model_of("llama"), tmp_path_factory.mktemp("tiny") / "tiny.gguf")
