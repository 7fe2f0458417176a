"""docs/emulator.md: its example runs as it stands there."""

import re
import runpy

import pytest

from lanewise.gates.repo import checkout

pytest.importorskip("torch")
pytest.importorskip("triton")


def test_the_example_of_the_page_runs(tmp_path, capsys):
    """From a file, as Triton reads a kernel's source where Python has it from."""
    (block,) = re.findall(r"```python\n(.*?)```", (checkout() / "docs/emulator.md").read_text(), re.DOTALL)
    path = tmp_path / "example.py"
    path.write_text(block)
    runpy.run_path(str(path))
    assert "buffer_store_b32" in capsys.readouterr().out
