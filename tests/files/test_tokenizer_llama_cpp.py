"""Ids against llama.cpp: every pre-tokenizer and SentencePiece on tiny files, and SmolLM2's own vocabulary."""

import http.client
import json
import random
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizer_cases as cases

from lanewise.files import open_model
from lanewise.files.tokenizer import Tokenizer, load_tokenizer

xllamacpp = pytest.importorskip("xllamacpp", reason="xllamacpp, the wheel of llama.cpp, has no build for this machine")

Tokenize = Callable[[str, bool, bool], list[int]]
# Code points of the scripts that pre-tokenizers treat apart, with neighbours that belong to none.
RANGES = (
    *((0x20, 0x7F), (0xA0, 0x250), (0x300, 0x530), (0x590, 0x700), (0x900, 0xE80)),
    *((0x2000, 0x2200), (0x3000, 0x3100), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0x1F300, 0x1F650)),
)


@contextmanager
def llama_cpp(model: Path) -> Iterator[Tokenize]:
    """llama.cpp's own tokenizer for a file: (text, add_special, parse_special) to ids."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx, params.n_parallel, params.warmup, params.fit_params, params.verbosity = 64, 1, False, False, 0
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    connection = http.client.HTTPConnection(server.listening_address.removeprefix("http://"))

    def tokenize(text: str, add_special: bool, parse_special: bool) -> list[int]:
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        connection.request("POST", "/tokenize", json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["tokens"]

    try:
        yield tokenize
    finally:
        connection.close()
        del server


def texts() -> list[str]:
    """The torture list, and as many strings of pieces and of characters at random."""
    draw = random.Random(0)
    pieces = [draw.choices([*cases.PIECES, "<|im_end|>", "<tool>", "</s>"], k=draw.randrange(1, 10)) for _ in range(150)]
    letters = [[chr(draw.randrange(*draw.choice(RANGES))) for _ in range(draw.randrange(1, 12))] for _ in range(150)]
    return [*cases.TORTURE, cases.LONG[:1000], *map("".join, pieces), *map("".join, letters)]


def agree(tokenizer: Tokenizer, tokenize: Tokenize, change: Callable[[str], str] = str) -> None:
    for i, text in enumerate(map(change, texts())):
        add, parse = bool(i & 1), bool(i & 2)
        assert tokenizer.encode(text, add_special=add, parse_special=parse) == tokenize(text, add, parse), ascii(text)


@pytest.mark.parametrize("pre", cases.PRES)
def test_byte_level_ids_agree_with_llama_cpp(pre: str, tmp_path: Path) -> None:
    # llama.cpp leaves out the NFC that Qwen's tokenizer begins with
    change = _composed if pre.startswith("qwen") else str
    keys = cases.byte_level(pre, add_bos_token=pre != "smollm")
    with llama_cpp(_write(tmp_path / "tiny.gguf", keys)) as tokenize:
        agree(cases.ours(keys), tokenize, change)


@pytest.mark.parametrize("space", [True, False])
def test_sentencepiece_ids_agree_with_llama_cpp(space: bool, tmp_path: Path) -> None:
    keys = cases.sentencepiece(add_space_prefix=space)
    with llama_cpp(_write(tmp_path / "tiny.gguf", keys)) as tokenize:
        # plain text that spells a control token: llama.cpp can merge it into the token after all
        agree(cases.ours(keys), tokenize, lambda text: text.replace("<s>", "").replace("</s>", ""))


def test_smollm2s_ids_agree_with_llama_cpp(smollm2: Path) -> None:
    with open_model(smollm2) as model:
        tokenizer = load_tokenizer(model)
    with llama_cpp(smollm2) as tokenize:
        agree(tokenizer, tokenize)
        prompt = tokenizer.render([{"role": "user", "content": "What is 12 × 34?"}])
        assert tokenizer.encode(prompt) == tokenize(prompt, True, True)
    assert prompt.endswith("<|im_start|>user\nWhat is 12 × 34?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(tokenizer.encode(prompt), skip_special=False) == prompt
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (49152, 1, {0, 2}, False)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _write(path: Path, keys: dict[str, Any]) -> Path:
    """A llama of one layer and 32 features, as the server wants weights before it tokenizes."""
    width = 32
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(width)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    kinds = {"tokens": writer.add_token_list, "merges": writer.add_token_merges, "scores": writer.add_token_scores}
    kinds |= {"token_type": writer.add_token_types, "model": writer.add_tokenizer_model, "pre": writer.add_tokenizer_pre}
    for key, value in keys.items():
        name = key.removeprefix("tokenizer.ggml.")
        if name in kinds:
            kinds[name](value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        else:
            writer.add_uint32(key, value)
    shapes = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"), (width, width))
    tensors = {f"blk.0.{name}": shape for name, shape in {**shapes, "attn_norm": (width,), "ffn_norm": (width,)}.items()}
    tensors |= {"token_embd": (len(keys["tokenizer.ggml.tokens"]), width), "output_norm": (width,)}
    for name, shape in tensors.items():
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
