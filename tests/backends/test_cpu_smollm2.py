"""The cpu backend on the real model: its greedy tokens are the reference's, but for ties that int8 activations may decide."""

from pathlib import Path

import numpy as np
from support.int8 import Int8ActivationRunner
from support.moved import numpy_only
from support.run import step_logits

from lanewise import LLM, SamplingParams
from lanewise.backends.reference import ReferenceBackend, ReferenceRunner
from lanewise.files import open_model
from lanewise.models import spec_of

PROMPTS = ("The capital of France is", "Once upon a time, in a small village by the sea,")
TOKENS = 32
SIGMAS = 3  # as in tests/main_job: two logits move apart by sqrt(2) of what one moves by


def test_greedy_tokens_agree_with_the_reference_or_tie_within_the_rounding_of_int8_activations(smollm2: Path) -> None:
    """The reference is led along the cpu's own tokens. Where it would have gone elsewhere, the two logits must be a tie."""
    with LLM(smollm2, device="cpu", context=256) as llm:
        led = []
        for prompt in PROMPTS:
            ids = llm.tokenizer.encode(prompt)
            led.append((ids, llm.generate(prompt, SamplingParams(max_tokens=TOKENS, temperature=0)).token_ids))
    with numpy_only(), open_model(smollm2) as file:
        reference = ReferenceBackend().lower(spec_of(file), file)
        agreed = 0
        for ids, theirs in led:
            assert len(theirs) == TOKENS
            whole = [*ids, *theirs[:-1]]
            ours, rounded = (
                step_logits(kind(reference.spec, reference._weights), whole)[len(ids) - 1 :] for kind in (ReferenceRunner, Int8ActivationRunner)
            )
            agree = ours.argmax(-1) == np.array(theirs)
            agreed += int(agree.sum())
            for place in np.flatnonzero(~agree):
                gap = ours[place].max() - ours[place][theirs[place]]
                assert gap <= SIGMAS * np.sqrt(2) * np.std(rounded[place] - ours[place])
    assert agreed >= 0.9 * TOKENS * len(PROMPTS)  # led along, a model that is right seldom disagrees
