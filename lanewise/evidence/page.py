"""One self-contained page of a bundle: light or dark as the reader's system is, nothing loaded from elsewhere, no script."""

from collections.abc import Sequence
from html import escape
from math import exp

from lanewise.bench.stats import control_logs, pair_logs
from lanewise.evidence import svg
from lanewise.evidence.bundle import Bundle
from lanewise.evidence.reasons import Reason
from lanewise.evidence.summary import about, arms, headline, phases, title

__all__ = ["page"]

_WITHIN = (1e-6, 1e6)  # ratios that an axis can show
_STYLE = """
:root { color-scheme: light dark; --page: #fbfbfa; --ink: #1d2023; --soft: #646a70; --line: #dfe1e3; --card: #ffffff;
  --effect: #0b6bcb; --quiet: #8a9097; --bad: #b3261e; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --page: #15171a; --ink: #e6e8ea; --soft: #9aa1a8; --line: #2d3135; --card: #1c1f23;
  --effect: #6cb2ff; --quiet: #808890; --bad: #ff8a80; --good: #6fdd8b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 10px; }
.verdict { font-size: 1.15rem; color: var(--effect); margin: 0 0 24px; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; margin: 0 0 18px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
tr:last-child > * { border-bottom: 0; }
td { overflow-wrap: anywhere; }
.wide td { white-space: nowrap; }
.whole { display: inline-block; max-width: 100%; overflow-wrap: anywhere; }
section > p:last-child { margin-bottom: 0; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
@media (max-width: 560px) { svg { font-size: 17px; } section { padding: 14px 12px; } h1 { font-size: 1.2rem; }
  .wide { font-size: .76rem; } .wide th, .wide td { padding-right: 8px; } }
svg text { fill: var(--soft); }
svg .grid { stroke: var(--line); }
svg .one { stroke: var(--soft); stroke-dasharray: 4 4; }
svg line.effect { stroke: var(--effect); } svg line.quiet { stroke: var(--quiet); }
svg circle.effect { fill: var(--effect); stroke: var(--card); }
svg circle.quiet { fill: var(--card); stroke: var(--quiet); stroke-width: 1.5; }
svg circle.dropped { fill: none; stroke: var(--bad); stroke-width: 1.5; }
.note { color: var(--soft); font-size: .88rem; margin: 8px 0 0; }
.verdict.refused { color: var(--bad); }
.bad { color: var(--bad); } .good { color: var(--good); }
li { overflow-wrap: anywhere; }
"""


def page(bundle: Bundle, reasons: Sequence[Reason] | None = None) -> str:
    """The page. With `reasons`, what a verification found (nothing, when it is empty)."""
    verdict = (
        f'<p class="verdict refused">{_words(f"refused: {headline(bundle)}")}</p>'
        if reasons
        else f'<p class="verdict">{_words(headline(bundle))}</p>'
    )
    parts = [f"<h1>{_words(title(bundle))}</h1>", verdict]
    if reasons is not None:
        parts.append(_section("Verification", _verification(reasons)))
    if bundle.is_record:
        parts.append(_section("Phases", _table(*phases(bundle), kind="wide")))
    else:
        parts += _charts(bundle)
        parts.append(_section("Arms", _table(*_turned(*arms(bundle)))))
    parts.append(_section("How it was measured", _table((), [(name, value) for name, value in about(bundle)])))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title(bundle))}</title>\n<style>{_STYLE}</style>\n</head>\n<body><main>\n" + "\n".join(parts) + "\n</main></body>\n</html>\n"
    )


def _charts(bundle: Bundle) -> list[str]:
    """The ratio with its control, and every pair; nothing where the bundle holds no samples that could be drawn."""
    rounds, ratio, control = bundle.manifest["rounds"], bundle.figures["ratio"], bundle.figures["control"]
    if bundle.faults:
        return []
    kept = [one["left_out"] is None for one in rounds]
    try:
        logs = [(exp(log), keep) for group, keep in zip(pair_logs(rounds), kept, strict=True) for log in group]
        controls = [(exp(log), keep) for group, keep in zip(control_logs(rounds), kept, strict=True) for log in group]
    except (ArithmeticError, ValueError):  # times that no clock gives
        return []
    ends = [one[key] for one in (ratio, control) for key in ("median", "low", "high")]
    note = "b / a of the measured values; the line at 1 is no difference. The control is the same arm twice: what the machine alone makes of it."
    found = []
    if all(end is not None and _WITHIN[0] < end < _WITHIN[1] for end in ends):
        found.append(_section("Ratio", svg.ratios([("b / a", ratio), ("control", control)]) + f'<p class="note">{note}</p>'))
    if all(_WITHIN[0] < value < _WITHIN[1] for value, _ in (*logs, *controls)):
        legend = '<p class="note">Dots: pairs. Rings: controls. Red: left out by the rule.</p>'
        found.append(_section("Every pair", svg.pairs(logs, controls) + legend))
    return found


def _verification(reasons: Sequence[Reason]) -> str:
    if not reasons:
        return '<p class="good">Every figure follows from the samples, and nothing speaks against them.</p>'
    return f'<p class="bad">Refused.</p><ul>{"".join(f"<li>{_words(str(reason))}</li>" for reason in reasons)}</ul>'


def _section(heading: str, body: str) -> str:
    return f"<section><h2>{heading}</h2>{body}</section>"


def _turned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Rows as columns: two arms with much to say fit a narrow page so."""
    first, *others = zip(head, *rows, strict=True)
    return first, list(others)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    top = f"<tr>{''.join(f'<th>{_text(name)}</th>' for name in head)}</tr>" if head else ""
    lines = [f"<tr><th>{_text(row[0])}</th>{''.join(f'<td>{_words(cell)}</td>' for cell in row[1:])}</tr>" for row in rows]
    return f'<table class="{kind}">{top}{"".join(lines)}</table>'


def _words(value: object) -> str:
    """What a bundle says, without a break at the hyphens of options and names where a whole word fits the line."""
    return " ".join(f'<span class="whole">{one}</span>' if "-" in one else one for one in _text(value).split(" "))


def _text(value: object) -> str:
    """What a bundle says, as text: it cannot become markup, and control characters are shown as such."""
    return escape("".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value)))
