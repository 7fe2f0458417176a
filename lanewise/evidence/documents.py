"""What documents say of bundles: every marked figure and every number of a record's row must be what the bundle holds,
and words like "faster" need a verdict that says so, of what was measured and nothing beyond it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lanewise import arch
from lanewise.bench.stats import NO_DIFFERENCE, OTHER_PROMPTS, TOKEN_EXACT
from lanewise.errors import EvidenceError
from lanewise.evidence.bundle import Bundle, open_bundle
from lanewise.evidence.marks import UNITS, Mark, Row, agrees, find_marks, find_rows, sentences
from lanewise.evidence.ran import processes_of
from lanewise.evidence.reasons import Reason
from lanewise.evidence.recompute import leaves, shown
from lanewise.formats import FORMATS

__all__ = ["Shelf", "check_documents"]

_MOST_BYTES = 4 << 20
_FASTER = r"faster|quicker|better|speed-?ups?|sped up|outperforms?|outruns?|beats?|wins?"
_SLOWER = r"slower|worse|loses?"
_EQUAL = r"(?:as|equally) fast(?: as)?|same speed|no slower|no faster|not (?:\w+ )?(?:faster|slower|better|worse)|no difference"
_CLAIM = re.compile(rf"\b(?:(?P<equal>{_EQUAL})|(?P<faster>{_FASTER})|(?P<slower>{_SLOWER}))\b", re.IGNORECASE)
_EXACT = re.compile(r"\btoken[- ]exact(?:ness|ly)?\b|\bsame tokens\b", re.IGNORECASE)
_LEAST = re.compile(r"\b(?:at least|more than|over|no less than)$", re.IGNORECASE)
_COMPARING = ("ratio", "verdict")  # figures of one arm beside the other
_OTHER_WORK = "a and b were asked different things, so that nothing of one compares with the other"
_PHASES = {"decode": "decode", "decoding": "decode", "prefill": "prefill", "prompt": "prefill", "prompts": "prefill"}
# The figures that a unit can belong to; a number without one of these may be any.
_KINDS: dict[str, tuple[str, ...]] = {
    "%": ("of_read", "of_int8", "of_float", "of_read_at_size", "spread"),
    "tok/s": ("rate.median", "rate.best"),
    "tokens/s": ("rate.median", "rate.best"),
    "GMAC/s": ("macs_per_second", "int8.median", "int8.best"),
    "TMAC/s": ("macs_per_second", "int8.median", "int8.best"),
    "GB/s": ("bytes_per_second", "read.median", "read.best", "read_at_size.median", "read_at_size.best"),
}


class Shelf:
    """Bundles by ID: those that were given, and those that lie in the same folder, read when a document names them."""

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self._found: dict[str, Bundle | None] = {bundle.id: bundle for bundle in bundles}
        self._folders = tuple(dict.fromkeys(bundle.path.resolve().parent for bundle in bundles))

    def get(self, name: str) -> Bundle | None:
        """Raises EvidenceError for one that is there and cannot be read."""
        if name not in self._found:
            paths = [folder / f"{name}{ending}" for folder in self._folders for ending in ("", ".zip", ".json")]
            there = next((path for path in paths if path.exists()), None) if re.fullmatch(r"\w[\w.+-]*", name) else None
            self._found[name] = open_bundle(there) if there else None
        return self._found[name]

    def split(self, target: str) -> tuple[Bundle, str] | None:
        """(bundle, field) of `ID.FIELD`; an ID may have dots in it, so the longest that is there counts."""
        words = target.split(".")
        for count in range(len(words) - 1, 0, -1):
            bundle = self.get(".".join(words[:count]))
            if bundle is not None:
                return bundle, ".".join(words[count:]).removeprefix("figures.")
        return None


def check_documents(documents: Sequence[Path], bundles: Sequence[Bundle]) -> list[Reason]:
    """Every reason that the documents give to refuse. Raises EvidenceError for one that cannot be read."""
    shelf = Shelf(bundles)
    return [reason for path in documents for reason in _document(path, _text(path), shelf)]


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise EvidenceError(f"{path}: no such document")
        if path.stat().st_size > _MOST_BYTES:
            raise EvidenceError(f"{path}: {path.stat().st_size} bytes; at most {_MOST_BYTES} are read of a document")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise EvidenceError(f"{path}: not UTF-8 text") from None


def _document(path: Path, text: str, shelf: Shelf) -> Iterator[Reason]:
    marks = find_marks(text)
    quoted: dict[str, list[tuple[Bundle, str]]] = {}  # by sentence
    for mark in marks:
        where = f"{path.name}:{mark.line}"
        try:
            found = shelf.split(mark.target)
        except EvidenceError as error:
            yield Reason("quote-unknown", where, f"a bundle that can be read behind {mark.target[:100]!r}", str(error))
            continue
        if found is None:
            yield Reason("quote-unknown", where, "ID.FIELD of a bundle that is there", repr(mark.target[:100]))
            continue
        quoted.setdefault(mark.sentence, []).append(found)
        yield from _figure(where, mark, *found)
    for sentence, bundles in quoted.items():
        line = next(mark.line for mark in marks if mark.sentence == sentence)
        yield from _claims(f"{path.name}:{line}", sentence, [bundle for bundle, _ in bundles])
        yield from _range(f"{path.name}:{line}", sentence, bundles)
    for row in find_rows(text):
        yield from _row(path, row, shelf)


def _figure(where: str, mark: Mark, bundle: Bundle, field: str) -> Iterator[Reason]:
    figures = dict(leaves(bundle.figures))
    if field not in figures or figures[field] is None:
        yield Reason("quote-unknown", where, f"a figure of {bundle.id}: {', '.join(figures)}"[:300], repr(field[:100]))
        return
    if _other_work(bundle) and field.startswith(_COMPARING):
        yield Reason("claim", where, f"no {field} of {bundle.id}: {_OTHER_WORK}", _written(mark) or repr(mark.before[-24:]))
    figure = figures[field]
    if isinstance(figure, str):
        if not mark.before.endswith(figure):
            yield Reason("quote", where, f"{figure!r}, which is {field} of {bundle.id}", repr(mark.before[-len(figure) :]))
    elif mark.number is None:
        yield Reason("quote-bare", where, f"the number that is {field} of {bundle.id}, then the mark", repr(mark.before[-24:]))
    elif not agrees(mark.number, mark.unit, figure):
        yield Reason("quote", where, f"{figure / UNITS[mark.unit]:.6g} {mark.unit}".strip() + f", which is {field} of {bundle.id}", _written(mark))
    elif field == "ratio.median" and _LEAST.search(mark.lead.rstrip(" *_")):
        low = bundle.figures["ratio"]["low"]
        if low is not None and float(mark.number.replace(",", "")) > low:
            yield Reason("claim", where, f"at least {low:.4g}, the lower end of the interval of {bundle.id}", f"at least {_written(mark)}")


def _written(mark: Mark) -> str:
    return f"{mark.number or ''} {mark.unit}".strip()


def _other_work(bundle: Bundle) -> bool:
    """Whether both arms had witnessed prompts, and others."""
    return bool((bundle.figures.get("output") or {}).get("verdict") == OTHER_PROMPTS)


def _row(path: Path, row: Row, shelf: Shelf) -> Iterator[Reason]:
    where = f"{path.name}:{row.line}"
    bundles = []
    for name in row.ids:
        try:
            found = shelf.get(name)
        except EvidenceError as error:
            yield Reason("quote-unknown", where, f"a record {name} that can be read", str(error))
            return
        if found is None:
            yield Reason("quote-unknown", where, "a record that is there", repr(name))
            return
        bundles.append(found)
    for head, number, unit in row.numbers:
        fitting = [value for bundle in bundles for value in _fitting(bundle, head, row.text, unit)]
        if not any(agrees(number, unit, value) for value in fitting):
            near = ", ".join(f"{value / UNITS[unit]:.5g}" for value in fitting[:6])
            written = f"{number} {unit}".strip() + (f" in column {head!r}" if head else "")
            ids = ", ".join(row.ids)
            yield Reason("quote", where, f"a figure of {ids} ({near})" if near else f"a figure of {ids}; none has this unit", written)
    for text in [row.text] if row.table else [one for one in sentences(row.text) if any(name in one for name in row.ids)]:
        yield from _claims(where, text, bundles)


def _fitting(bundle: Bundle, head: str, text: str, unit: str) -> list[float]:
    """The figures, and the sizes that they are figures of, that a number can be: by its unit, and by the phases that column or row name."""
    parts = ("model", "run") if bundle.is_record else ("plan", "problem")
    facts = dict(leaves(bundle.figures)) | {f"{part}.{key}": value for part in parts for key, value in (bundle.manifest[part] or {}).items()}
    kinds, phases = _KINDS.get(unit), _phase_in(head, bundle) or _phase_in(text, bundle)
    return [
        value
        for name, value in facts.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and (kinds is None or name.endswith(kinds))
        and (not phases or not name.startswith("phases.") or name.split(".")[1] in phases)
        and not (name.startswith(_COMPARING) and _other_work(bundle))
    ]


def _phase_in(words: str, bundle: Bundle) -> set[str]:
    names = bundle.figures.get("phases", {}) if bundle.is_record else {}
    return {name for name in names if re.search(rf"\b{re.escape(name)}\b", words)}


def _claims(where: str, sentence: str, bundles: Sequence[Bundle]) -> Iterator[Reason]:
    """Faster, slower and equal need the verdict of each bundle that the sentence quotes; a record compares nothing."""
    for bundle in {bundle.id: bundle for bundle in bundles}.values():
        verdict = str((bundle.figures.get("output") or {}).get("verdict"))
        if (exact := _EXACT.search(sentence)) and verdict != TOKEN_EXACT:
            yield Reason("claim", where, f"{TOKEN_EXACT!r}, of which {bundle.id} says {verdict!r}", f"{exact[0]!r} in {shown(sentence)}")
    compared = {bundle.id: bundle for bundle in bundles if not bundle.is_record}
    for claim in _CLAIM.finditer(sentence):
        word = f"{claim[0]!r} in {shown(sentence)}"
        if not compared:
            yield Reason("claim", where, "a bundle with a verdict: a record measures one thing and compares nothing", word)
        for bundle in compared.values():
            verdict = str(bundle.figures["verdict"])
            if _other_work(bundle):
                yield Reason("claim", where, f"no comparison of the arms of {bundle.id}: {_OTHER_WORK}", word)
            elif claim["equal"]:
                if verdict != NO_DIFFERENCE:
                    yield Reason("claim", where, f"{verdict!r}, the verdict of {bundle.id}", word)
            elif verdict == NO_DIFFERENCE or _names_loser(sentence[: claim.start()], verdict[0], bundle, faster=bool(claim["faster"])):
                yield Reason("claim", where, f"{_in_words(bundle, verdict)!r}, the verdict of {bundle.id}", word)


def _names_loser(before: str, winner: str, bundle: Bundle, *, faster: bool) -> bool:
    """Whether the arm that is named last in front of the claim is not the one that it holds for."""
    labels = {arm: str(bundle.manifest["arms"][arm]["label"]) for arm in ("a", "b")}
    places = {
        arm: max((found.end() for found in re.finditer(rf"(?<!\w){re.escape(label)}(?![\w+-])", before)), default=-1) for arm, label in labels.items()
    }
    if max(places.values()) < 0 or labels["a"] == labels["b"]:
        return False
    named = max(places, key=lambda arm: places[arm])
    return (named == winner) != faster


def _in_words(bundle: Bundle, verdict: str) -> str:
    arm, _, rest = verdict.partition(" ")
    return f"{bundle.manifest['arms'][arm]['label']} {rest}" if arm in ("a", "b") else verdict


def _range(where: str, sentence: str, quoted: Sequence[tuple[Bundle, str]]) -> Iterator[Reason]:
    """A sentence that quotes bundles names no target, format, phase or m that none of them measured."""
    words = re.findall(r"[\w+-]+", sentence)
    known: dict[str, set[str]] = {"target": set(), "format": set(), "phase": set(), "m": set()}
    for bundle, field in quoted:
        for kind, values in _measured(bundle, field).items():
            known[kind] |= values
    for word in dict.fromkeys(words):
        if word in arch.TARGETS and not any(name.startswith(word) for name in known["target"]):
            yield Reason("range", where, f"targets that were measured: {', '.join(sorted(known['target']))}", word)
        if word in FORMATS and known["format"] and word not in known["format"]:
            yield Reason("range", where, f"formats that were measured: {', '.join(sorted(known['format']))}", word)
        if word.lower() in _PHASES and known["phase"] and _PHASES[word.lower()] not in known["phase"]:
            yield Reason("range", where, f"phases that were measured: {', '.join(sorted(known['phase']))}", word)
    for m in re.findall(r"\bm ?= ?(\d+)\b", sentence):
        if known["m"] and m not in known["m"]:
            yield Reason("range", where, f"m that was measured: {', '.join(sorted(known['m']))}", f"m = {m}")


def _measured(bundle: Bundle, field: str) -> dict[str, set[str]]:
    found, machine = bundle.manifest, {str(bundle.manifest["machine"].get("row"))}
    if bundle.is_record:
        name = field.split(".")[1] if field.startswith("phases.") else ""
        kinds = {phase["kind"] for key, phase in found["rounds"][0]["phases"].items() if key == name or not name}
        label = set(re.findall(r"[A-Z0-9_]+", str(found["model"]["name"])))
        return {"target": machine | {str(found["run"]["isa"])}, "format": set(found["model"]["formats"]) | label, "phase": kinds, "m": set()}
    problem = found["problem"] or {}
    witnesses = [arm["witness"] for arm in found["arms"].values()] if found["kind"] == "kernel" else []
    processes = [process for arm in found["arms"].values() if found["kind"] == "command" for process in processes_of(arm)]
    isas = {str(one["isa"]) for one in (*witnesses, *processes) if one}
    one = {kind: {str(problem[kind])} if kind in problem else set() for kind in ("format", "phase", "m")}
    ran = {phase for process in processes for phase in process["phases"]}
    return {"target": machine | isas, "format": one["format"], "phase": one["phase"] | ran, "m": one["m"]}
