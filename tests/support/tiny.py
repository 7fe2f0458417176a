"""Tiny random models of each family, made by `transformers`, as a safetensors directory or as a GGUF file."""

import json
from pathlib import Path
from typing import Any

import numpy as np

FAMILIES = ("llama", "qwen2", "qwen3")
WORDS = "the quick brown fox jumps over the lazy dog while 12 bright owls, sitting in (old) trees, don't make a sound. "
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def config_of(family: str, **changes: Any) -> Any:
    """A `transformers` config of the family: 3 layers, 8 heads in 2 groups, head size 16."""
    import transformers

    kind = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}[family]
    options: dict[str, Any] = {
        "vocab_size": 384,
        "hidden_size": 64 if family == "qwen3" else 128,  # Qwen3's heads are not hidden / heads wide
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "rope_theta": 10000.0,
        "tie_word_embeddings": family == "llama",
        "initializer_range": 0.15,  # far from zero: logits differ by more than rounding
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return kind(**{**options, **changes})


def model_of(family: str, seed: int = 0, **changes: Any) -> Any:
    """A random model in float32, biases and norm weights made random too, so that a dropped one shows."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = config_of(family, **changes)
    kind = {"llama": transformers.LlamaForCausalLM, "qwen2": transformers.Qwen2ForCausalLM, "qwen3": transformers.Qwen3ForCausalLM}[family]
    model = kind(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.2)
            elif "norm" in name:
                parameter.normal_(1, 0.2)
    return model


def tokenizer() -> Any:
    """A byte-level BPE tokenizer of 384 tokens, GPT-2's pre-tokenizer, with ChatML's special tokens first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=384, special_tokens=list(SPECIALS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([WORDS * 3, "one two three four five six seven eight nine ten " * 2, "a rose is a rose is a rose"], trainer)
    return made


def save_directory(model: Any, folder: Path, **shards: Any) -> Path:
    """The model as a Hugging Face directory, with tokenizer.json and a chat template."""
    model.save_pretrained(folder, **shards)
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML, "eos_token": "<|im_end|>", "bos_token": "<|endoftext|>"}))
    return folder


def save_gguf(model: Any, path: Path, weight_format: str = "F32", template: str | None = CHATML) -> Path:
    """The model as a GGUF file; matrices in `weight_format`, through the official writer."""
    import gguf

    config, family = model.config, model.config.model_type
    writer = gguf.GGUFWriter(str(path), family)
    writer.add_name(f"tiny {family}")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_rope(writer, config)
    _add_tokenizer(writer, template)
    kind = gguf.GGMLQuantizationType[weight_format]
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = tensor.float().numpy()
        if family == "llama" and (".q_proj." in name or ".k_proj." in name):
            array = interleave(array, config.head_dim)
        raw = array if array.ndim == 1 or kind == gguf.GGMLQuantizationType.F32 else gguf.quants.quantize(array, kind)
        writer.add_tensor(gguf_name(name), raw, raw_dtype=None if raw.dtype == np.float32 else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def interleave(array: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of q or k put in the order of a `llama` GGUF file: pair i of a head in rows 2i and 2i+1."""
    rest = array.shape[1:]
    return np.ascontiguousarray(array.reshape(-1, 2, head_dim // 2, *rest).swapaxes(1, 2).reshape(-1, *rest))


_PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_TOPS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str) -> str:
    """What a GGUF file calls a `transformers` parameter."""
    part, suffix = name.rsplit(".", 1)
    if part in _TOPS:
        return f"{_TOPS[part]}.{suffix}"
    layer, rest = part.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{_PARTS[rest]}.{suffix}"


def _add_rope(writer: Any, config: Any) -> None:
    import gguf

    options = config.rope_parameters
    writer.add_rope_freq_base(options["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    kind = options["rope_type"]
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR if kind == "linear" else gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(options["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(options["original_max_position_embeddings"])
    if kind == "llama3":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        scaled = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0].double().numpy()
        plain = options["rope_theta"] ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))


def _add_tokenizer(writer: Any, template: str | None) -> None:
    import gguf

    made = json.loads(tokenizer().to_str())
    vocab = sorted(made["model"]["vocab"], key=made["model"]["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocab)
    writer.add_token_types([gguf.TokenType.CONTROL if text in SPECIALS else gguf.TokenType.NORMAL for text in vocab])
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in made["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    if template:
        writer.add_chat_template(template)
