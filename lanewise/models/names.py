"""What each kind of file calls the tensors of a dense decoder.

GGUF names: the GGUF specification, "Standardized tensor names". Safetensors names: `transformers` module paths.
"""

__all__ = ["tensor_name"]

_GGUF = {
    "embedding": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "mixer.norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "channel.norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_SAFETENSORS = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "mixer.norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "channel.norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_TABLES = {"gguf": (_GGUF, "blk.{}."), "safetensors": (_SAFETENSORS, "model.layers.{}.")}


def tensor_name(kind: str, part: str, layer: int | None = None, suffix: str = "weight") -> str:
    """The name of a part's tensor in a file of that kind; `layer` is None for the parts outside the layers."""
    table, prefix = _TABLES[kind]
    return f"{'' if layer is None else prefix.format(layer)}{table[part]}.{suffix}"
