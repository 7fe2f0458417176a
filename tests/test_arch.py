"""Target names: what parses, what is refused and in which words, and which row a processor gets."""

import pytest

from lanewise import arch
from lanewise.arch import TARGETS
from lanewise.errors import UnknownTargetError

AMD = [f"gfx{n}" for n in ("900", "906", "908", "90a", "942", "950", 1010, 1030, 1100, 1101, 1102, 1103, 1150, 1151, 1200, 1201, 1250)]
NVIDIA = [f"sm_{n}" for n in (70, 75, 80, 86, 87, 89, 90, 100, 103, 120)]
CPU = ["x86-64", *(f"x86-64-{level}" for level in ("v2", "v3", "v3+avxvnni", "v4", "v4+vnni", "v4+vnni+bf16"))]
CPU += ["aarch64", "aarch64+dotprod", "aarch64+dotprod+i8mm"]

V2 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = V2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = V3 + " avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.fixture(autouse=True)
def _fresh_host():
    arch.host.cache_clear()
    yield
    arch.host.cache_clear()


def test_the_table_has_every_target_and_no_other():
    assert list(TARGETS) == AMD + NVIDIA + CPU


@pytest.mark.parametrize("name", AMD + NVIDIA + CPU)
def test_every_name_parses_to_its_own_row(name):
    row = arch.parse(name)
    assert row is TARGETS[name]
    assert str(row) == name


@pytest.mark.parametrize(
    "name", ["gfx9", "gfx11000", "gfx803", "gfx1300", "agfx1100", "", " ", "gfx 1100", " gfx1100", "gfx1100 ", "gfx1100\n", "GFX1100"]
)
def test_an_unknown_name_is_refused_with_what_is_known(name):
    with pytest.raises(UnknownTargetError) as caught:
        arch.parse(name)
    assert repr(name) in str(caught.value)
    for known in ("gfx1100", "sm_90", "x86-64-v3"):
        assert known in str(caught.value)


@pytest.mark.parametrize("name", ["gfx942:sramecc+:xnack-", "gfx942:xnack-", "gfx90a:sramecc-", "gfx900:xnack+", "gfx1250:sramecc+"])
def test_a_feature_suffix_is_kept_and_changes_nothing_else(name):
    base, *features = name.split(":")
    row = arch.parse(name)
    assert row.features == tuple(features)
    assert str(row) == name
    assert (row.wave, row.dot4, row.lds) == (TARGETS[base].wave, TARGETS[base].dot4, TARGETS[base].lds)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gfx942:", "gfx942 takes sramecc+ or sramecc-, xnack+ or xnack-"),
        ("gfx942:xnack", "unknown feature 'xnack'"),
        ("gfx942:xnack*", "unknown feature 'xnack*'"),
        ("gfx942:wavefrontsize64+", "unknown feature 'wavefrontsize64+'"),
        ("gfx942: xnack+", "unknown feature ' xnack+'"),
        ("gfx942:xnack+:xnack-", "names a feature twice"),
        ("gfx1100:xnack+", "gfx1100 takes no features"),
        ("sm_90:xnack+", "sm_90 takes no features"),
    ],
)
def test_a_feature_that_a_target_cannot_have_is_refused_with_what_it_takes(name, words):
    with pytest.raises(UnknownTargetError) as caught:
        arch.parse(name)
    assert words in str(caught.value)


@pytest.mark.parametrize("row", TARGETS.values(), ids=str)
def test_a_gpu_has_lanes_and_shared_memory_and_a_processor_has_neither(row):
    assert row.is_gpu == row.name.startswith(("gfx", "sm_"))
    assert (row.lds > 0) == row.is_gpu
    assert row.wave in ((32, 64) if row.is_gpu else (1,))
    assert row.triton <= row.is_gpu


@pytest.mark.parametrize(
    ("machine", "flags", "name"),
    [
        ("x86_64", "", "x86-64"),
        ("x86_64", V2, "x86-64-v2"),
        ("AMD64", V3, "x86-64-v3"),
        ("x86_64", V3.replace(" abm", ""), "x86-64-v2"),
        ("x86_64", V3 + " avx_vnni", "x86-64-v3+avxvnni"),
        ("x86_64", V3 + " avx512f avx512_vnni", "x86-64-v3"),
        ("x86_64", V4, "x86-64-v4"),
        ("x86_64", V4 + " avx512_bf16", "x86-64-v4"),
        ("x86_64", V4 + " avx512_vnni", "x86-64-v4+vnni"),
        ("x86_64", V4 + " avx512_vnni avx512_bf16", "x86-64-v4+vnni+bf16"),
        ("aarch64", "fp asimd", "aarch64"),
        ("arm64", "fp asimd asimddp", "aarch64+dotprod"),
        ("aarch64", "asimddp i8mm", "aarch64+dotprod+i8mm"),
        ("aarch64", "i8mm", "aarch64"),
    ],
)
def test_the_host_gets_the_highest_row_whose_instructions_it_all_has(monkeypatch, machine, flags, name):
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(arch, "cpu_flags", lambda: frozenset(flags.split()))
    assert arch.host() is TARGETS[name]


def test_a_processor_without_a_row_is_refused_by_name(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UnknownTargetError, match="riscv64"):
        arch.host()


@pytest.mark.parametrize("line", ["flags\t\t: fpu avx2 fma", "Features\t: fpu avx2 fma"])
def test_flags_are_read_from_the_first_processor(monkeypatch, tmp_path, line):
    text = f"processor\t: 0\n{line}\n\nprocessor\t: 1\nflags\t\t: other\n"
    monkeypatch.setattr("pathlib.Path.read_text", lambda self: text)
    assert arch.cpu_flags() == {"fpu", "avx2", "fma"}


def test_a_system_without_cpuinfo_or_flags_gets_the_baseline(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("pathlib.Path.read_text", lambda self: "processor\t: 0\n")
    assert arch.host() is TARGETS["x86-64"]

    def missing(self):
        raise FileNotFoundError

    arch.host.cache_clear()
    monkeypatch.setattr("pathlib.Path.read_text", missing)
    assert arch.host() is TARGETS["x86-64"]


@pytest.mark.parametrize("name", ["gfx942:sramecc+:xnack-", "gfx1100", "sm_90"])
def test_a_gpu_by_its_drivers_name_is_its_row_with_its_features(name):
    assert arch.of_gpu(name) == arch.parse(name)


@pytest.mark.parametrize(
    ("name", "vendor", "gpu"), [("gfx1300:sramecc+", "amd", True), ("sm_999", "nvidia", True), ("xpu", "other", False), ("x86-64", "other", False)]
)
def test_an_unknown_gpu_gets_a_row_that_promises_nothing(name, vendor, gpu):
    row = arch.of_gpu(name)
    assert (str(row), row.vendor, row.is_gpu) == (name, vendor, gpu)
    assert not any((row.triton, row.pdl, row.dot4, row.dot2_f16, row.dot2_bf16, row.matrix, row.wave, row.lds))


def test_features_that_the_table_does_not_know_are_kept_as_the_driver_says_them():
    assert str(arch.of_gpu("gfx1100:wings+")) == "gfx1100:wings+"
    assert arch.of_gpu("gfx1100:wings+").triton
