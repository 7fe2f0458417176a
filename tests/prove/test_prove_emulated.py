"""The proof's cases as machine code of AMD's targets: some on each of them here, all of them by `python -m lanewise.prove --target`."""

import dataclasses
import json

import pytest
import torch
from click.testing import CliRunner

from lanewise import arch
from lanewise.arch import parse
from lanewise.errors import DeviceError
from lanewise.isa.code_object import code_object
from lanewise.prove import act_quant, emulated, grouped_linear, linear, quant_linear
from lanewise.prove.__main__ import main

TARGETS = tuple(name for name, row in arch.TARGETS.items() if row.emulated)
SHARE = {linear: 150, quant_linear: 60, grouped_linear: 60, act_quant: 40}
CPU = torch.device("cpu")


@pytest.mark.parametrize("module", SHARE, ids=lambda module: module.__name__.rpartition(".")[2])
@pytest.mark.parametrize("target", TARGETS)
def test_cases_are_right_as_machine_code(target, module):
    """Each target has cases of its own, so that together they are many."""
    with emulated.emulating(parse(target)) as ran:
        every = [run for run in module.runs(CPU, True) if not run.case.heavy]
        for run in every[TARGETS.index(target) :: SHARE[module]]:
            result = module.guarded(run, CPU)
            assert not result.problem, f"{run}: {result.problem}"
    assert ran
    assert all(one.instructions for one in ran)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_a_kernel_that_is_changed_is_found_wrong(target):
    """An addition that has become a subtraction."""

    def changed(launch):
        code = code_object(launch.text, launch.binary, launch.row, shared=launch.shared, warps=launch.warps)
        at = next(one.index for one in code.instructions if one.mnemonic.startswith("v_add_f32"))
        wrong = dataclasses.replace(code.instructions[at], mnemonic=code.instructions[at].mnemonic.replace("add", "sub"))
        return dataclasses.replace(code, instructions=(*code.instructions[:at], wrong, *code.instructions[at + 1 :]), text=f"{code.text}; changed")

    with emulated.emulating(parse(target), changed=changed):
        run = next(run for run in linear.runs(CPU, True) if run.through.startswith("skinny") and run.case.k > 64)
        assert "elements are outside" in linear.guarded(run, CPU).problem


@pytest.mark.parametrize("target", ["sm_90", "gfx906", "x86-64-v4"])
def test_a_target_whose_code_does_not_run_here_is_refused(target):
    with pytest.raises(DeviceError, match="the emulator runs what Triton compiles"), emulated.emulating(parse(target)):
        pass


def test_what_is_emulated_ends_with_the_block():
    with emulated.emulating(parse("gfx1100")):
        assert emulated.row() == parse("gfx1100")
        assert emulated.repeats()
    assert emulated.row() is None
    assert not emulated.repeats()


def test_turns_share_the_cases_out_among_targets(tmp_path):
    """Each case is on one target in a turn, and all turns together have every case on every target."""
    seen = []
    for turn in range(3):
        path = tmp_path / f"{turn}.json"
        words = ["--op", "act_quant", "--turn", str(turn), "--json", str(path), "--part", "0", "20"]
        done = CliRunner().invoke(main, [*words, *(word for name in ("gfx942", "gfx1100", "gfx1201") for word in ("--target", name))])
        assert done.exit_code == 0, done.output
        here = [(result["case"], result["through"]) for result in json.loads(path.read_text())]
        assert len({case for case, _ in here}) == len(here)
        seen += here
    assert len(set(seen)) == len(seen)
    assert {through.rpartition(" ")[2] for _, through in seen} == {"gfx942", "gfx1100", "gfx1201"}
