"""What the tests of this room share."""

import functools

import pytest

from lanewise.bench import stats


@pytest.fixture(autouse=True, scope="module")
def _quick():
    """Resampling the same values again gives the same: most of a thousand changed leaves are no samples."""
    plain = stats.bootstrap
    cached = functools.cache(plain)
    stats.bootstrap = lambda groups, *rest: cached(tuple(map(tuple, groups)), *rest)
    yield
    stats.bootstrap = plain
