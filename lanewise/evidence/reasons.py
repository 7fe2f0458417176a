"""Why a bundle is refused, as data: a code from a fixed list, where, what was expected, and what was found."""

from dataclasses import dataclass

__all__ = ["CODES", "Reason"]

# Code: what it means. docs/evidence.md has a row for each; the verifier gives no other.
CODES: dict[str, str] = {
    "digest": "the manifest was changed after it was written",
    "figure": "a figure does not follow from the samples",
    "plan": "the plan is not one that a claim can rest on",
    "rounds": "rounds are missing, too many or out of order",
    "sample-missing": "a round does not hold the samples that its order names",
    "sample-duplicate": "the same sample is there twice",
    "sample-order": "samples are not in the order in which they were taken",
    "sample-short": "a sample is shorter than the plan says, or than the clock can tell",
    "repeats": "a sample holds another number of calls than it can",
    "balance": "the order of a round is not a, b, b, a or its reverse",
    "control": "the two samples of a control are not of the same arm",
    "chronology": "times do not fit each other",
    "left-out-kept": "a round that the rule leaves out was kept",
    "kept-left-out": "a round that the rule keeps was left out",
    "left-out-words": "a round was left out for another reason than the rule gives",
    "problem": "the sizes of the problem do not fit each other",
    "residency": "the label cold or warm is not true of the buffers and the cache",
    "probe": "a probe of the machine is missing or impossible",
    "arms-equal": "both arms are the same thing",
    "switch": "the arms are said to differ in something that had no effect",
    "witness": "an arm did not run what it claims",
    "phase": "decode was measured for prefill, or the other way round",
    "output": "the arms do not give the same result",
    "exact": "an output is called the same, or another, and the samples do not say so",
    "prompts": "the arms were asked different things, and the bundle does not say so",
    "input-changed": "a file changed while the run went on",
    "command": "the command is not the one that measures this",
    "question": "the question is not the one that was measured",
    "machine": "the machine cannot be what it says, or cannot have run this",
    "inputs": "the inputs are not those that the plan makes",
    "versions": "the versions are not those of the commit",
    "commit": "the commit is missing, not one of the repository, or not old enough",
    "dirty": "the tree had changes that no commit holds",
    "source": "a source file is not the one of the commit",
    "stale": "a file that matters has changed since",
    "artifact": "compiling now gives other machine code",
    "recompile": "the machine code cannot be compiled again here",
    "control-wide": "the control is as wide as the effect",
    "verdict": "the verdict does not follow from the interval and the control",
    "quote": "a document gives another figure than the bundle",
    "quote-unknown": "a document quotes a figure or bundle that is not there",
    "quote-bare": "a mark in a document has no number in front of it",
    "claim": "a document claims what the verdict does not say",
    "range": "a document claims beyond what was measured",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason to refuse. `where` is a path into the manifest, a file, or a line of a document."""

    code: str
    where: str
    expected: str
    found: str

    def __post_init__(self) -> None:
        assert self.code in CODES, self.code

    def __str__(self) -> str:
        return f"{self.code}: {self.where}: {CODES[self.code]}; expected {self.expected}, found {self.found}"
