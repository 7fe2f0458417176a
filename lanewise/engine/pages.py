"""Which page of the KV cache belongs to whom. The memory behind the pages is the runner's.

A sequence reserves, when it starts, all the pages that it can come to need, so no running sequence is ever out of room.
"""

from dataclasses import dataclass, field

from lanewise.errors import ContextLengthError

__all__ = ["PAGE_SIZE", "PagePool", "SequenceCache"]

PAGE_SIZE = 16  # tokens


def pages_for(tokens: int) -> int:
    """How many pages hold that many tokens."""
    return -(-tokens // PAGE_SIZE)


class PagePool:
    """Hands out pages. `pages` is their number, each of PAGE_SIZE tokens."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages - 1, -1, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """`count` pages. Raises ContextLengthError when fewer are free."""
        if count > self.free:
            raise ContextLengthError(
                f"the KV cache has {self.free * PAGE_SIZE} tokens free of {self.pages * PAGE_SIZE}; {count * PAGE_SIZE} more are needed"
            )
        return [self._free.pop() for _ in range(count)]

    def give(self, pages: list[int]) -> None:
        """Take pages back."""
        self._free.extend(reversed(pages))


@dataclass(slots=True)
class SequenceCache:
    """One sequence's part of the KV cache: its pages, and the tokens whose keys and values are written."""

    pool: PagePool
    pages: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` tokens in all."""
        missing = pages_for(tokens) - len(self.pages)
        if missing > 0:
            self.pages += self.pool.take(missing)

    def fits(self, tokens: int) -> bool:
        """Whether `reserve(tokens)` would succeed now."""
        return pages_for(tokens) - len(self.pages) <= self.pool.free

    def keep_prefix(self, tokens: list[int]) -> int:
        """Forget everything after the longest common prefix with `tokens`; the length of what is kept.

        The last token is never kept: its logits are still to be computed.
        """
        limit = min(len(self.tokens), len(tokens) - 1)
        same = next((i for i in range(limit) if self.tokens[i] != tokens[i]), limit)
        del self.tokens[same:]
        return same

    def release(self) -> None:
        """Give all pages back."""
        self.pool.give(self.pages)
        self.pages, self.tokens = [], []
