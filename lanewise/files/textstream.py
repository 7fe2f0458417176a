"""Ids to text, all at once or one by one: a character is given out when its last byte arrives, and never before.

>>> from lanewise.files.vocab import Alphabet, Prefix, Role, Vocab
>>> v = Vocab(["▁Hi", "<0xE2>", "<0x82>", "<0xAC>"], bytes([1, 6, 6, 6]), Alphabet.SPACES, prefix=Prefix.EVERY)
>>> stream = TextStream(v)
>>> [stream.push(i) for i in range(4)], stream.finish()
(['Hi', '', '', '€'], '')
"""

import codecs
from collections.abc import Iterable

from lanewise.files.vocab import Prefix, Role, Vocab

__all__ = ["TextStream", "decode"]

_UTF8 = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """A detokenizer for ids that come one at a time; each costs the length of its own text.

    skip_special: leave control and unknown tokens out
    after:        the id in front of the first one, when the ids continue others. The space that the encoder added is taken off
                  where it added one: at the start of a text and, where it does so, after a special token. A continuation keeps its space.

    Bytes that form no character become U+FFFD as soon as it is certain that they never will (Unicode's substitution of maximal subparts).
    """

    __slots__ = ("_decoder", "_skip", "_strip", "_vocab")

    def __init__(self, vocab: Vocab, *, skip_special: bool = True, after: int | None = None) -> None:
        self._vocab, self._skip = vocab, skip_special
        self._decoder = _UTF8("replace")
        self._strip = vocab.prefix is not Prefix.NEVER if after is None else self._opens(after)

    def push(self, token: int) -> str:
        """The characters that this id completes; often none. Raises TokenizerError for an id outside the vocabulary."""
        return self._decoder.decode(self._bytes(token))

    def finish(self) -> str:
        """What is left: U+FFFD for a character that will not be completed. The stream is then at the start of a new text."""
        rest = self._decoder.decode(b"", True)
        self._decoder.reset()
        self._strip = self._vocab.prefix is not Prefix.NEVER
        return rest

    def _bytes(self, token: int) -> bytes:
        piece = self._vocab.piece(token)
        if self._vocab.special(token) or self._vocab.roles[token] == Role.USER:
            # a special token before any text leaves the start where it is
            self._strip = self._strip if self._vocab.prefix is Prefix.FIRST else self._opens(token)
            return b"" if self._skip and self._vocab.special(token) else piece
        if piece and self._strip:
            self._strip = False
            return piece.removeprefix(b" ")
        return piece

    def _opens(self, token: int) -> bool:
        """Whether the encoder puts a space between this token and text that follows it."""
        # an unknown token stands for characters in the middle of a text
        return self._vocab.prefix is Prefix.EVERY and self._vocab.roles[self._vocab.check(token)] in (Role.CONTROL, Role.USER)


def decode(vocab: Vocab, ids: Iterable[int], *, skip_special: bool = True, after: int | None = None) -> str:
    """The text of all ids: what a TextStream gives for them from first to last."""
    stream = TextStream(vocab, skip_special=skip_special, after=after)
    return b"".join(map(stream._bytes, ids)).decode("utf-8", "replace")
