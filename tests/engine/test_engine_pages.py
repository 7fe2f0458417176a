"""Pages are handed out once, come back, and are refused with numbers when there are none."""

import pytest

from lanewise.engine.pages import PAGE_SIZE, PagePool, SequenceCache
from lanewise.errors import ContextLengthError


def test_no_page_is_given_twice_and_all_come_back() -> None:
    pool = PagePool(8)
    first, second = SequenceCache(pool), SequenceCache(pool)
    first.reserve(3 * PAGE_SIZE)
    second.reserve(4 * PAGE_SIZE + 1)
    assert sorted(first.pages + second.pages) == list(range(8))
    first.release()
    second.release()
    assert pool.free == 8


def test_reserving_again_takes_only_what_is_missing() -> None:
    pool = PagePool(4)
    cache = SequenceCache(pool)
    cache.reserve(PAGE_SIZE)
    cache.reserve(PAGE_SIZE)
    assert pool.free == 3
    assert cache.fits(4 * PAGE_SIZE)
    assert not cache.fits(4 * PAGE_SIZE + 1)


def test_a_full_cache_says_what_is_free_and_what_is_needed() -> None:
    cache = SequenceCache(PagePool(2))
    with pytest.raises(ContextLengthError, match=f"{2 * PAGE_SIZE} tokens free of {2 * PAGE_SIZE}; {3 * PAGE_SIZE} more"):
        cache.reserve(3 * PAGE_SIZE)


@pytest.mark.parametrize(
    ("had", "asked", "kept"),
    [
        ([1, 2, 3], [1, 2, 3, 4], 3),
        ([1, 2, 3], [1, 2, 3], 2),  # the last token's logits are still to be computed
        ([1, 2, 3], [1, 9, 3, 4], 1),
        ([1, 2, 3], [9], 0),
        ([], [1], 0),
    ],
)
def test_the_common_prefix_is_kept_and_the_rest_forgotten(had: list[int], asked: list[int], kept: int) -> None:
    cache = SequenceCache(PagePool(1), tokens=list(had))
    assert cache.keep_prefix(asked) == kept
    assert cache.tokens == had[:kept]
