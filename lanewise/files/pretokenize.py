"""The pre-tokenizers that byte-level BPE models name: how text is cut into words before merges run inside each word.

A row's steps run in order; each isolates its matches in whatever pieces the step before left.
Source: the table in llama.cpp's src/llama-vocab.cpp, which names them in GGUF's `tokenizer.ggml.pre`, and the tokenizer
definitions of transformers that it was derived from (Qwen's `(?i:...)` and NFC are theirs; llama.cpp spells the first out and leaves out the second).

>>> find("llama3").name
'llama-bpe'
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lanewise.errors import TokenizerError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer as RustPreTokenizer

__all__ = ["PRETOKENIZERS", "PreTokenizer", "find"]


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One pre-tokenizer.

    steps:         regular expressions in Oniguruma's syntax, in order
    nfc:           whether the model's own tokenizer composes the text first (Unicode NFC)
    ignore_merges: whether a word that is a token is taken whole, whatever the merges would make of it
    add_bos:       whether a file that does not say so wants a beginning-of-sequence token
    aliases:       other names that files use for it
    """

    name: str
    steps: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False
    aliases: tuple[str, ...] = ()

    def build(self) -> "RustPreTokenizer":
        """The steps, then the byte alphabet, as the `tokenizers` library runs them."""
        from tokenizers import Regex, pre_tokenizers

        steps: list[Any] = [pre_tokenizers.Split(Regex(step), "isolated") for step in self.steps]
        return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _contractions_first(letters: str, digits: str, symbols: str) -> str:
    """The shape that Llama 3 and Qwen share: contractions, words with one symbol before them, digits, symbols with their newlines, spaces."""
    words = rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}"
    return words + rf"| ?[^\s{symbols}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


# DeepSeek LLM's letters with case, as of the Unicode version that its tokenizer was made with.
_CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u1f5f-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3"
    "ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)

_ROWS = (
    PreTokenizer("gpt-2", (_GPT2,)),
    PreTokenizer(
        "llama-bpe",
        (_contractions_first(r"\p{L}", r"\p{N}{1,3}", r"\p{L}"),),
        ignore_merges=True,
        add_bos=True,
        aliases=("llama3", "llama-v3"),
    ),
    PreTokenizer("qwen2", (_contractions_first(r"\p{L}", r"\p{N}", r"\p{L}"),), nfc=True),
    PreTokenizer("qwen35", (_contractions_first(r"[\p{L}\p{M}]", r"\p{N}", r"\p{L}\p{M}"),), nfc=True),
    PreTokenizer("smollm", (r"\p{N}", _GPT2)),
    PreTokenizer(
        "deepseek-llm",
        (r"[\r\n]", rf"\s?[{_CASED}]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}+"),
    ),
)
PRETOKENIZERS: dict[str, PreTokenizer] = {name: row for row in _ROWS for name in (row.name, *row.aliases)}


def find(name: str) -> PreTokenizer:
    """The row of that name or alias. Raises TokenizerError that lists what is known: another one would give wrong tokens without a word."""
    row = PRETOKENIZERS.get(name)
    if row is None:
        raise TokenizerError(f"unknown pre-tokenizer {name[:80]!r} (tokenizer.ggml.pre); known pre-tokenizers: {', '.join(PRETOKENIZERS)}")
    return row
