"""Lanewise: quantized language models from Python, on kernels that can be proven right.

The front door is a few names, loaded on first use so that `import lanewise` costs nothing:

>>> from lanewise import LLM, SamplingParams            # doctest: +SKIP
>>> LLM("model.gguf").generate("Hello", SamplingParams(max_tokens=8)).text   # doctest: +SKIP

>>> from lanewise import patch                          # doctest: +SKIP
>>> patch(model)                                        # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lanewise import nn
    from lanewise.engine import LLM, Completion, SamplingParams
    from lanewise.integrations.torch import patch

__version__ = "0.1.0"
__all__ = ["LLM", "Completion", "SamplingParams", "__version__", "nn", "patch"]


def __getattr__(name: str) -> Any:
    if name in ("LLM", "SamplingParams", "Completion"):
        from lanewise import engine

        return getattr(engine, name)
    if name in ("nn", "patch"):
        from importlib import import_module  # `from lanewise import nn` would ask here again

        return import_module("lanewise.nn") if name == "nn" else import_module("lanewise.integrations.torch").patch
    raise AttributeError(f"module 'lanewise' has no attribute {name!r}; it has {', '.join(__all__)}")
