"""Tiny tokenizers trained on a few sentences, as GGUF keys and as `tokenizers` objects, and texts that tokenizers get wrong."""

from functools import cache
from typing import Any

from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from lanewise.files import Metadata
from lanewise.files.tokenizer import Tokenizer as Ours
from lanewise.files.tokenizer import from_gguf

CORPUS = [
    "The quick brown fox doesn't jump over the lazy dog; it can't, it won't, and they've said so in 1984 and 2024.",
    "for (int i = 0; i < 100; i++) {\n        total += values[i];\n\n\n}  // the sum of the values\t\tis   here",
    "Die Straße ist länger als über 3,14 Kilometer, ça va très bien, señor. Москва слезам не верит. Ελλάδα",
    "你好，世界！今天天气很好。日本語のテキスト。한국어 문장입니다. नमस्ते दुनिया। مرحبا بالعالم שלום עולם",
    "Emoji 👍👍 😀 and 👨‍👩‍👧 with 🇩🇪 flags; e\u0301 and é, a\u0308 and ä, \u00a0no-break\u2003em space",
]
TORTURE = [
    "",
    " ",
    "   ",
    "\n",
    "\n\n\n",
    "\r\n\r\n",
    " \n \n  \n",
    "\t",
    "\t\t a\t",
    "a",
    "Hello world",
    "  two  spaces  everywhere  ",
    "trailing   ",
    "I'm you're THEY'LL it'S 'tis can't've 'x ''s",
    "1 22 333 4444 55555 1,000,000.50 ٣٤٥ ²³ Ⅷ ½",
    "x=1;y= 2 ;z +=3.0e-7//ok",
    "a\u00a0b\u2003c\u3000d\u0085e\u200bf\u2028g",
    "你好世界 今天是2024年8月13日，你好！",
    "日本語カタカナひらがな漢字かな交じり文",
    "한국어 문장 ㄱㄴㄷ",
    "مرحبا بالعالم ١٢٣ שלום",
    "हिन्दी नमस्ते ไทยสวัสดี தமிழ்",
    "e\u0301a\u0308\u0323o\u0302 Å \u1100\u1161",
    "👍 👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "𝐀𝐁 𐐀 ﬃ ß ǅ İ ı ƻ ʔ",
    "\x00\x01\x1b[0m\x7f",
    "\ufeffBOM \ufffd \U0010ffff",
    "!!! ??? ... --- ___ *** ((())) <<>> «»“”",
    "`code` **bold** ~~x~~ $a^b$ | pipe |",
    "<|im_start|>user\nHi<|im_end|>\n<|im_end|>",
    "a<|im_end|>b <|im_end|> c<tool>d <tool> e",
    "<|im_end", "<|im_end|", "<s></s><unk><0x0A>",
    "▁ ▁▁a▁ Ġ Ċ Ã©",
    "the " * 50,
    "word" * 100,
]  # fmt: skip
LONG = "The fox's 12 dogs\tsaid \u00fcber 你好 👍! \n" * 280
# What hypothesis mixes: any text, and pieces that meet at awkward places.
PIECES = [
    "'s",
    "'LL",
    "n't",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\u00a0",
    "1",
    "23",
    "é",
    "e\u0301",
    "中",
    "文字",
    "가",
    "न्",
    "👍",
    "\u200d",
    "!",
    "...",
    "_",
    "the",
    " fox",
    "A",
]
TEXTS = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
PRES = ("gpt-2", "llama-bpe", "qwen2", "qwen35", "smollm", "deepseek-llm")
CONTROL, USER = 3, 4


@cache
def trained(cut: str = "smollm") -> tuple[list[str], list[tuple[str, str]]]:
    """The tokens, in order, and merges of a byte-level BPE of 640 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=cut == "smollm"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    trainer = trainers.BpeTrainer(vocab_size=640, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return _parts(tokenizer)


def _parts(tokenizer: Tokenizer) -> tuple[list[str], list[tuple[str, str]]]:
    import json

    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), [tuple(merge) for merge in model["merges"]]


def byte_level(pre: str, /, **changes: Any) -> dict[str, Any]:
    """GGUF keys of a byte-level BPE with special tokens in front, in the middle and at the end of the vocabulary."""
    tokens, merges = trained("groups" if pre == "llama-bpe" else "smollm")
    tokens = ["<|endoftext|>", *tokens[:300], "<|im_start|>", "<tool>", *tokens[300:], "<|im_end|>"]
    roles = {"<|endoftext|>": CONTROL, "<|im_start|>": CONTROL, "<tool>": USER, "<|im_end|>": CONTROL}
    keys = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [roles.get(token, 1) for token in tokens],
        "merges": [" ".join(merge) for merge in merges],
        "bos_token_id": 0,
        "eos_token_id": len(tokens) - 1,
        "add_bos_token": False,
    }
    return gguf_keys({**keys, **changes})


@cache
def pieces() -> tuple[list[str], list[float]]:
    """Pieces and scores as SentencePiece numbers them: specials, bytes, merged pieces by rank, then single characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(vocab_size=420, show_progress=False))
    tokens, merges = _parts(tokenizer)
    # some characters are left to the byte tokens; as in every SentencePiece vocabulary, what is merged of characters has them as pieces
    singles = [token for token in tokens if len(token) == 1 and token not in "日本語😀"]
    merged = [piece for piece in dict.fromkeys(["▁▁", "▁▁▁▁", *("".join(merge) for merge in merges)]) if set(piece) <= set(singles)]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    scores = [0.0] * (3 + len(bytes_)) + [-float(rank) for rank in range(len(merged) + len(singles))]
    return ["<unk>", "<s>", "</s>", *bytes_, *merged, *singles], scores


def sentencepiece(**changes: Any) -> dict[str, Any]:
    """GGUF keys of a SentencePiece BPE with byte fallback, a user-defined token, and defaults left out as files do."""
    tokens, scores = pieces()
    roles = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    keys = {
        "model": "llama",
        "pre": "default",
        "tokens": [*tokens, "<tool>", "<|im_end|>"],
        "scores": [*scores, -1000.0, -1000.0],
        "token_type": [*roles, USER, CONTROL],
    }
    return gguf_keys({**keys, **changes})


def gguf_keys(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys with their prefix; a key whose value is None is left out."""
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def label(text: object) -> str:
    """A test id."""
    return ascii(text)[1:24]


def ours(keys: dict[str, Any]) -> Ours:
    return from_gguf(Metadata("model.gguf", keys))


def published(keys: dict[str, Any]) -> Tokenizer:
    """The same byte-level vocabulary with the pre-tokenizer that the model's authors published for transformers."""
    from transformers.models.gpt2.tokenization_gpt2 import GPT2Tokenizer
    from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
    from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

    tokens = keys["tokenizer.ggml.tokens"]
    vocab = {token: i for i, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab, [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]))
    pre = keys["tokenizer.ggml.pre"]
    if pre == "smollm":
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        kind = {"gpt-2": GPT2Tokenizer, "qwen2": Qwen2Tokenizer, "qwen35": Qwen3_5Tokenizer}[pre]
        backend = kind(vocab={"a": 0}, merges=[]).backend_tokenizer
        made.pre_tokenizer = backend.pre_tokenizer
        if backend.normalizer is not None:
            made.normalizer = backend.normalizer
    for token, role in zip(tokens, keys["tokenizer.ggml.token_type"], strict=True):
        if role in (CONTROL, USER):
            made.add_tokens([AddedToken(token, special=role == CONTROL, normalized=False)])
    return made
