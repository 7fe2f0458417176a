"""Compiled objects in their cache: found again, and built anew whenever anything about one is not as it was left."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.cpu import BEST, HERE

from lanewise.errors import UnknownTargetError
from lanewise.kernels.cpu import compile as module
from lanewise.kernels.cpu.compile import Library, compile_object
from lanewise.kernels.cpu.isa import ISAS, runnable, selected
from lanewise.kernels.cpu.kernel import CpuKernel
from lanewise.kernels.cpu.matmul import block_matmul

KERNEL = CpuKernel("test_answer", ("out",), lambda e, a, chunk, worker: e.store(e.index(42), a.out))
OTHER = CpuKernel("test_answer", ("out",), lambda e, a, chunk, worker: e.store(e.index(41), a.out))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cpu"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of kernels that were compiled, and not found."""
    names: list[str] = []
    real = compile_object

    def noted(kernel: CpuKernel, isa: object) -> bytes:
        names.append(kernel.name)
        return real(kernel, isa)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "compile_object", noted)
    return names


def _answer(isa: str = BEST, kernel: CpuKernel = KERNEL) -> int:
    from ctypes import CFUNCTYPE, c_int64

    library, out = Library([kernel], ISAS[isa]), np.zeros(1, np.int64)
    CFUNCTYPE(None, *[c_int64] * 3)(library.address(kernel.name))(kernel.pack(out=out.ctypes.data).ctypes.data, 0, 0)
    return int(out[0])


def _entry(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_a_kernel_is_compiled_once_and_then_found_where_the_setting_says(folder: Path, compiled: list[str]) -> None:
    assert [_answer(), _answer()] == [42, 42]
    assert compiled == [KERNEL.name]
    assert _entry(folder).name.startswith("test_answer-")
    assert _entry(folder).stat().st_mode & 0o777 == 0o600


def _flip(data: bytes) -> bytes:
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "only a digest": lambda data: data[:32],
    "one bit changed": _flip,
    "longer": lambda data: data + b"\0",
    "an object without a digest": lambda data: data[32:],
    "noise": lambda data: bytes(range(256)) * 4,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_broken_entry_is_rebuilt_and_replaced(folder: Path, compiled: list[str], damage: str) -> None:
    _answer()
    good = _entry(folder).read_bytes()
    _entry(folder).write_bytes(DAMAGE[damage](good))
    assert _answer() == 42
    assert len(compiled) == 2
    assert _entry(folder).read_bytes() == good
    _answer()
    assert len(compiled) == 2


@pytest.mark.parametrize("mode", [0o622, 0o660, 0o602, 0o777])
def test_an_entry_that_others_may_write_is_rebuilt(folder: Path, compiled: list[str], mode: int) -> None:
    _answer()
    _entry(folder).chmod(mode)
    assert _answer() == 42
    assert len(compiled) == 2
    assert _entry(folder).stat().st_mode & 0o022 == 0


def test_an_entry_of_another_user_is_rebuilt(folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _answer()
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert _answer() == 42
    assert len(compiled) == 2


def test_an_entry_under_the_name_of_another_is_rebuilt(folder: Path, compiled: list[str]) -> None:
    _answer()
    place = _entry(folder)
    place.unlink()
    wrong = CpuKernel("test_wrong", ("out",), OTHER.body)
    _answer(kernel=wrong)
    os.replace(_entry(folder), place)
    assert _answer() == 42
    assert compiled == ["test_answer", "test_wrong", "test_answer"]


def test_the_key_changes_with_the_instruction_set_the_source_and_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {module._key(KERNEL, isa) for isa in ISAS.values()}
    assert len(keys) == len(ISAS)
    for target, name, value in (
        (module, "_source", lambda: "changed"),
        (module.llvmlite, "__version__", "0"),
        (module.llvm, "llvm_version_info", (0,)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, value)
            keys.add(module._key(KERNEL, ISAS[BEST]))
    assert len(keys) == len(ISAS) + 3


@pytest.mark.parametrize("place", ["a file", "a folder of someone else"])
def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    root = tmp_path / "root"
    if place == "a file":
        root.write_text("")
    else:
        root.mkdir()
        monkeypatch.setattr(module.tempfile, "mkstemp", _refused)
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(root))
    assert [_answer(), _answer()] == [42, 42]
    assert len(compiled) == 2


def _refused(**_: object) -> tuple[int, str]:
    raise PermissionError("no")


def test_a_write_that_fails_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    assert _answer() == 42
    assert list(folder.iterdir()) == []


def test_an_object_is_the_same_bytes_in_every_process() -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}\n"
    code += "from lanewise.kernels.cpu.matmul import block_matmul; from lanewise.kernels.cpu.compile import compile_object\n"
    code += f"from lanewise.kernels.cpu.isa import ISAS; sys.stdout.buffer.write(compile_object(block_matmul('Q8_0'), ISAS[{BEST!r}]))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": "7"}).stdout
    assert compile_object(block_matmul("Q8_0"), ISAS[BEST]) == other


def test_running_kernels_loads_no_compiler_for_other_processors_and_they_can_be_compiled_all_the_same() -> None:
    other = next(isa.name for isa in ISAS.values() if isa.arch.vendor != ISAS[BEST].arch.vendor)
    code = f"import sys; sys.path[:0] = {sys.path!r}\n"
    code += "import llvmlite.binding as llvm; from lanewise.kernels.cpu.compile import Library, compile_object\n"
    code += "from lanewise.kernels.cpu.isa import ISAS; from lanewise.kernels.cpu.quantize import prepare\n"
    code += f"kernel, other = prepare('plain', 'q8_0'), ISAS[{other!r}]; Library([kernel], ISAS[{BEST!r}])\n"
    code += "try: llvm.Target.from_triple(other.triple)\nexcept RuntimeError: print('absent')\n"
    code += "print(compile_object(kernel, other)[:4])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["absent", r"b'\x7fELF'"]


def test_a_loaded_library_leaves_little_of_the_compiler_in_memory_and_another_can_be_compiled(folder: Path) -> None:
    """A few of its functions run again to look kernels up; a tenth of its 80 MB is far more than they are."""
    for _ in range(2):
        library = Library([block_matmul("Q8_0")], ISAS[BEST])
        assert library.address("matmul_Q8_0")
        size, resident = _code_of("libllvmlite")
        assert resident < size / 10
        for entry in folder.iterdir():
            entry.unlink()


def _code_of(library: str) -> tuple[int, int]:
    """(kB mapped, kB in memory) of a library's machine code."""
    blocks = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    (code,) = (block for block in blocks if library in block and " r-xp " in block)
    return tuple(int(re.search(rf"^{name}: +(\d+) kB", code, re.MULTILINE)[1]) for name in ("Size", "Rss"))  # type: ignore[index, return-value]


def test_a_library_says_which_kernel_it_does_not_have() -> None:
    with pytest.raises(KeyError, match="nothing"):
        Library([KERNEL], ISAS[BEST]).address("nothing")


@pytest.mark.parametrize("name", HERE)
def test_the_setting_chooses_an_instruction_set_that_this_processor_runs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("LANEWISE_CPU_ISA", name)
    assert selected().name == name
    assert _answer(name) == 42


@pytest.mark.parametrize("name", ["sse9", "gfx942", *sorted(set(ISAS) - set(HERE))])
def test_an_instruction_set_that_this_processor_does_not_run_is_refused_with_those_it_does(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("LANEWISE_CPU_ISA", name)
    with pytest.raises(UnknownTargetError) as caught:
        selected()
    assert repr(name) in str(caught.value)
    assert all(isa.name in str(caught.value) for isa in runnable())


def test_the_best_is_taken_when_nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANEWISE_CPU_ISA", raising=False)
    assert selected() is runnable()[0]
