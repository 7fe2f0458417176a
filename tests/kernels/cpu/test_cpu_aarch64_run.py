"""Every aarch64 row, run: what holds for the kernels of this processor holds for Arm's, and their bits are the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import test_cpu_attention as attention
import test_cpu_dots as dots
import test_cpu_embed as embedding
import test_cpu_emit as emit
import test_cpu_matmul as product
import test_cpu_pack as packing
import test_cpu_prepare as ready
import test_cpu_rotate as rotation
import test_cpu_sample as sampling
from support import aarch64
from support.cpu import ALL, FUSED, QUANTIZED, call, digested, matmul, records

from lanewise.kernels.cpu.dense import DENSE
from lanewise.kernels.cpu.dots import dot4
from lanewise.kernels.cpu.emit import I8, Emitter, Value
from lanewise.kernels.cpu.isa import ISAS
from lanewise.kernels.cpu.kernel import Arguments, CpuKernel
from lanewise.kernels.cpu.quantize import SOURCES
from lanewise.kernels.cpu.records import MANY

pytestmark = pytest.mark.skipif(bool(aarch64.MISSING), reason=aarch64.MISSING)
EVERY_ROW = pytest.mark.parametrize("row", aarch64.PROCESSORS)
ROWS_OF_X, ROWS_OF_W = (1, 5, MANY + 3), (7, 37)
HERE = next(name for name in FUSED if not ISAS[name].bf16)  # whose sums are in the order of every other row

Check = Callable[..., None]
# Tests of other files that take an instruction set first, and what else they are given.
CHECKS: list[tuple[Check, tuple[Any, ...]]] = [
    (emit.test_float_operations_are_those_of_numpy_bit_for_bit, ()),
    (emit.test_rint_takes_ties_to_the_even_neighbour, ()),
    (emit.test_fma_rounds_once, ()),
    (emit.test_integer_operations_are_those_of_numpy, ()),
    (emit.test_to_int_cuts_toward_zero, ()),
    (emit.test_reduce_adds_lanes_eight_four_two_and_one_apart, ()),
    (emit.test_exp_is_within_two_ulps_and_never_nan, ()),
    (emit.test_every_float16_widens_to_its_float32, ()),
    (emit.test_float32_narrows_to_the_nearest_float16_ties_to_even, ()),
    (emit.test_narrow_loads_widen_and_may_start_anywhere, ()),
    (emit.test_scalars_are_signed_where_they_are_compared_and_unsigned_where_they_are_divided, ()),
    (dots.test_dot4_is_exact_for_weights_below_128, ()),
    (dots.test_a_wide_dot4_is_exact_for_weights_of_all_256_codes, ()),
    *((dots.test_lookup16_finds_the_byte_of_every_index, (added,)) for added in (0, 128)),
    *((packing.test_every_byte_comes_back_and_rows_past_the_last_are_zero, (fmt,)) for fmt in ALL),
    *((ready.test_plain_records_are_the_definition_bit_for_bit, (kind,)) for kind in ready.KINDS),
    *((ready.test_what_stands_in_front_is_within_its_bound, (source,)) for source in ("norm", "silu")),
    (ready.test_silu_at_the_ends_of_exp_is_within_its_bound, ()),
    *((ready.test_a_fused_source_is_quantized_as_if_it_had_gone_to_memory, (s, k)) for s in ("norm", "silu") for k in ("q8_0", "q8_k")),
    *((product.test_integers_and_whole_scales_give_exactly_the_oracle, (fmt,)) for fmt in QUANTIZED),
    *((product.test_a_product_of_random_blocks_is_within_its_bound_for_any_n, (fmt,)) for fmt in ALL),
    *((product.test_extreme_codes_and_scales_are_within_the_bound, (fmt, byte)) for fmt in QUANTIZED for byte in (0x7F, 0x80)),
    *((rotation.test_heads_are_turned_within_the_bound_and_the_cache_gets_just_that, (shape,)) for shape in rotation.SHAPES),
    (rotation.test_per_head_norms_come_before_the_rotation_each_with_its_own_weight, ((64, 32, False),)),
    (rotation.test_a_value_that_float16_cannot_hold_becomes_infinite, ()),
    (attention.test_prompts_and_steps_together_are_within_the_bound, (3,)),
    (attention.test_spread_splits_give_the_bits_of_walked_ones, ()),
    *((embedding.test_rows_are_the_definition_bit_for_bit, (fmt,)) for fmt in ALL),
    *((embedding.test_a_dense_row_of_any_width_is_copied, (fmt,)) for fmt in DENSE),
    *((sampling.test_the_greatest_is_that_of_the_lowest_id_and_each_lane_of_a_piece_has_its_own, (n,)) for n in sampling.WIDTHS),
    (sampling.test_the_greatest_is_found_wherever_it_is_and_so_is_a_nan, ()),
    (sampling.test_signed_zeros_are_equal_and_masked_rows_have_no_nan, ()),
    *((sampling.test_what_is_no_smaller_than_a_limit_comes_in_order_ties_by_id, (n,)) for n in sampling.WIDTHS),
    (sampling.test_floats_of_every_size_are_sorted, ()),
    *((sampling.test_the_sum_of_exponentials_is_within_its_bound, (temperature,)) for temperature in (1e-30, 0.7, 30.0)),
    (sampling.test_equal_logits_sum_to_their_number_exactly, ()),
    (sampling.test_the_exponential_is_within_two_ulps_wherever_it_counts, ()),
]


@EVERY_ROW
@pytest.mark.parametrize(("check", "given"), CHECKS, ids=lambda part: getattr(part, "__name__", None) or "-".join(map(str, part)))
def test_what_holds_for_kernels_of_this_processor_holds_on_aarch64(row: str, check: Check, given: tuple[Any, ...]) -> None:
    check(row, *given)


@EVERY_ROW
@pytest.mark.parametrize("fmt", ALL)
def test_a_product_has_the_bits_that_it_has_on_this_processor(row: str, fmt: str) -> None:
    x, raw, bias, _, _ = product._case(fmt)
    x = np.tile(x, (2, 1))
    for m in ROWS_OF_X:
        for n in ROWS_OF_W:
            given = x[:m], raw[:n], fmt
            np.testing.assert_array_equal(matmul(*given, row, bias[:n]), matmul(*given, HERE, bias[:n]))


@EVERY_ROW
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", ready.KINDS)
def test_prepared_rows_have_the_bits_that_they_have_on_this_processor(row: str, source: str, kind: str) -> None:
    x, other = ready.INPUTS["normal"], np.roll(ready.INPUTS["normal"], 1, axis=1)
    beside = {"norm": other[0], "silu": other, "plain": None}[source]
    for i in range(len(x)):  # one at a time: what lies between the words of a record depends on how many rows make a tile
        with_it = beside[i : i + 1] if source == "silu" else beside
        got, want = (records(x[i : i + 1], kind, isa, source, with_it, ready.EPS) for isa in (row, HERE))
        np.testing.assert_array_equal(got, want)


@EVERY_ROW
@pytest.mark.parametrize("shape", [(64, 32, False), (64, 32, True)], ids=str)
def test_turned_heads_and_the_cache_have_the_bits_that_they_have_on_this_processor(row: str, shape: tuple[int, int, bool]) -> None:
    x, weights = rotation._rows(shape[0]), [np.full(shape[0], weight, np.float32) for weight in (0.7, 1.3)]
    results = (rotation._run(isa, shape, x, rotation.POSITIONS, rotation.SLOTS, weights) for isa in (row, HERE))
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)


@EVERY_ROW
@pytest.mark.parametrize("spread", [False, True])
def test_attention_has_the_bits_that_it_has_on_this_processor(row: str, spread: bool) -> None:
    arguments = attention._arguments(attention.MIXED, 3, 16)
    np.testing.assert_array_equal(attention.attend(arguments, row, spread=spread), attention.attend(arguments, HERE, spread=spread))


def test_every_aarch64_row_is_run() -> None:
    assert set(aarch64.PROCESSORS) == {name for name, isa in ISAS.items() if isa.arch.vendor == "arm"}


# the machine itself: what a wrong kernel would do must be noticed


def _kernel(body: Callable[[Emitter, Arguments, Value], Any]) -> CpuKernel:
    return digested(CpuKernel("test_aarch64", ("x", "y"), lambda e, a, chunk, worker: body(e, a, chunk)), "aarch64")


def test_chunks_run_in_order_on_the_arrays_that_were_given_even_where_they_overlap() -> None:
    kernel = _kernel(lambda e, a, chunk: e.store(e.add(e.load(chunk.type, a.x, e.mul(chunk, 8)), 5), a.y, e.mul(chunk, 8)))
    both = np.zeros(9, np.int64)
    call(kernel, "aarch64", 8, x=both[:-1], y=both[1:])
    np.testing.assert_array_equal(both, 5 * np.arange(9))


@pytest.mark.parametrize("offset", [-1, 32])
def test_a_write_outside_of_every_array_is_noticed(offset: int) -> None:
    kernel = _kernel(lambda e, a, chunk: e.store(e.b.trunc(a.y, I8), a.x, offset))
    with pytest.raises(AssertionError, match="1 bytes outside of any array were written"):
        call(kernel, "aarch64", x=np.zeros(4, np.int64), y=1)


def test_addresses_inside_an_array_are_followed_only_into_what_is_in_reach() -> None:
    kernel = _kernel(lambda e, a, chunk: e.store(e.load(chunk.type, e.load(chunk.type, a.x)), a.y))
    target, found = np.array([1, 2**40 + 7]), np.zeros(1, np.int64)
    pointer = np.array([target[1:].ctypes.data])
    call(kernel, "aarch64", reach=(target,), x=pointer, y=found)
    assert found[0] == target[1]
    assert pointer[0] == target[1:].ctypes.data
    with pytest.raises(AssertionError, match=r"test_aarch64_\w+ for aarch64: the program ended with SIGSEGV"):
        call(kernel, "aarch64", x=np.array([1 << 50]), y=found)
    call(kernel, "aarch64", reach=(target,), x=pointer, y=found)  # a program of its own has started again


def test_an_instruction_that_the_rows_processor_lacks_ends_the_program() -> None:
    kernel = _kernel(lambda e, a, chunk: e.store(dot4(e, e.ints(a.x), e.ints(a.x), e.ints(a.x)), a.y))
    x, y = np.ones(16, np.int32), np.zeros(16, np.int32)
    call(kernel, "aarch64+dotprod", x=x, y=y)
    np.testing.assert_array_equal(y, 2)
    older, memory = aarch64.Guest("aarch64+dotprod", aarch64.PROCESSORS["aarch64"]), np.zeros(64, np.int64)
    memory[:2] = aarch64.DATA + 64
    with pytest.raises(AssertionError, match="the program ended with SIGILL"):
        older.call(kernel, memory.view(np.uint8), 1)
