"""The rounds of an A/B run: four samples in turns, two of one arm as a control, and what was around them.

How many rounds there are depends on how many the rule leaves out, and on nothing that a sample says.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lanewise.backends import Progress
from lanewise.bench import stats
from lanewise.bench.around import left_out, look, trimmed

__all__ = ["BOOTSTRAP", "measure", "most_rounds"]

BOOTSTRAP: dict[str, Any] = {"resamples": 10_000, "seed": 0, "level": 0.95}
_MOST = 3  # times the rounds that a quiet machine needs


def most_rounds(pairs: int) -> int:
    """Rounds after which a run gives up on a machine that is never quiet."""
    return _MOST * stats.rounds_for(pairs)


def measure(
    plan: Mapping[str, Any],
    sample: Callable[[str], dict[str, Any]],
    probes: Callable[[], dict[str, Any] | None],
    progress: Progress | None = None,
    around: Callable[[], dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """The manifest's `rounds`: as many as it takes to keep plan["pairs"] pairs, at most plan["most_rounds"]."""
    rounds: list[dict[str, Any]] = []
    wanted = stats.rounds_for(plan["pairs"])
    while (have := len(stats.kept(rounds))) < wanted and len(rounds) < plan["most_rounds"]:
        if progress:
            progress("round", have, wanted)
        rounds.append(_round(len(rounds), plan, sample, probes, around or look))
    if progress:
        progress("round", wanted, wanted)
    return rounds


def _round(
    number: int,
    plan: Mapping[str, Any],
    sample: Callable[[str], dict[str, Any]],
    probes: Callable[[], dict[str, Any] | None],
    around: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    order, control = stats.schedule(plan["seed"], number)
    before = around()
    probed = probes()
    samples = [sample(arm) for arm in order]
    twice = [sample(control) for _ in range(2)]
    before, after = trimmed(before, around())
    return {
        "number": number,
        "order": list(order),
        "samples": samples,
        "control": twice,
        "probes": probed,
        "before": before,
        "after": after,
        "left_out": left_out(plan["rule"], before, after),
    }
