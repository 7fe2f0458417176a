"""The engine: prompts in, text out, on any backend."""

from lanewise.engine.chat import Chat
from lanewise.engine.llm import LLM
from lanewise.engine.params import SamplingParams
from lanewise.engine.request import Chunk, Completion
from lanewise.engine.sampler import TokenLogprob

__all__ = ["LLM", "Chat", "Chunk", "Completion", "SamplingParams", "TokenLogprob"]
