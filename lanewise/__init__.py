"""Lanewise: quantized language models from Python, on kernels that can be proven right.

The front door is two names, loaded on first use so that `import lanewise` costs nothing:

>>> from lanewise import LLM, SamplingParams            # doctest: +SKIP
>>> LLM("model.gguf").generate("Hello", SamplingParams(max_tokens=8)).text   # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lanewise.engine import LLM, Completion, SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "Completion", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("LLM", "SamplingParams", "Completion"):
        from lanewise import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'lanewise' has no attribute {name!r}; it has {', '.join(__all__)}")
