"""The dense pre-norm decoder that most families are: attention with RoPE, then a gated SiLU MLP.

A family's file says what is its own (biases, q/k norms, how dimensions are paired) and leaves the rest to `dense_decoder`.
"""

from lanewise.files import ModelFile
from lanewise.models.config import DecoderConfig
from lanewise.models.names import tensor_name
from lanewise.models.spec import Attention, Layer, Linear, Mlp, ModelSpec, Norm, Weight

__all__ = ["dense_decoder"]


def dense_decoder(family: str, file: ModelFile, config: DecoderConfig, *, biases: frozenset[str] = frozenset(), qk_norm: bool = False) -> ModelSpec:
    """The spec of a dense decoder. `biases` names the linears that have one: of q, k, v, o, gate, up, down."""
    c = config

    def weight(part: str, shape: tuple[int, ...], layer: int | None = None, suffix: str = "weight") -> Weight:
        return Weight(tensor_name(file.kind, part, layer, suffix), shape)

    def linear(part: str, n: int, k: int, layer: int) -> Linear:
        return Linear(weight(part, (n, k), layer), weight(part, (n,), layer, "bias") if part in biases else None)

    def norm(part: str, size: int, layer: int | None = None) -> Norm:
        return Norm(weight(part, (size,), layer), c.eps)

    def layer(i: int) -> Layer:
        q_rows, kv_rows = c.heads * c.head_dim, c.kv_heads * c.head_dim
        mixer = Attention(
            norm=norm("mixer.norm", c.hidden, i),
            q=linear("q", q_rows, c.hidden, i),
            k=linear("k", kv_rows, c.hidden, i),
            v=linear("v", kv_rows, c.hidden, i),
            o=linear("o", c.hidden, q_rows, i),
            heads=c.heads,
            kv_heads=c.kv_heads,
            head_dim=c.head_dim,
            scale=c.head_dim**-0.5,
            rope=c.rope,
            q_norm=norm("q_norm", c.head_dim, i) if qk_norm else None,
            k_norm=norm("k_norm", c.head_dim, i) if qk_norm else None,
            window=c.windows[i],
        )
        channel = Mlp(
            norm=norm("channel.norm", c.hidden, i),
            gate=linear("gate", c.ffn, c.hidden, i),
            up=linear("up", c.ffn, c.hidden, i),
            down=linear("down", c.hidden, c.ffn, i),
        )
        return Layer(mixer, channel)

    embedding = weight("embedding", (c.vocab, c.hidden))
    return ModelSpec(
        family=family,
        hidden=c.hidden,
        vocab=c.vocab,
        context=c.context,
        embedding=embedding,
        layers=tuple(layer(i) for i in range(c.layers)),
        norm=norm("norm", c.hidden),
        head=Linear(embedding if c.tied else weight("head", (c.vocab, c.hidden))),
    )
