"""`python -m lanewise.gates`: exit code 0 when every rule was asked and holds, 1 when one is broken or was skipped, 2 for a wrong call."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from lanewise.gates import GATES, check, green
from lanewise.gates.repo import checkout


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(GATES)), help="Ask this gate alone; may be repeated.")
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The checkout to look at; this one when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def main(only: tuple[str, ...], root: Path | None, as_json: bool) -> None:
    """Check the repository itself: settings, kernels, documents, layout, and the gates."""
    root = (root or checkout()).resolve()
    if not (root / "pyproject.toml").is_file() or not (root / "lanewise").is_dir():
        raise click.UsageError(f"{root} is no checkout of Lanewise: the gates read its documents and tests too")
    findings = check(root, only)
    if as_json:
        click.echo(json.dumps({"green": green(findings), "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        for finding in findings:
            click.echo(str(finding))
        counts = Counter(finding.state for finding in findings)
        click.echo(f"gates: {'green' if green(findings) else 'NOT green'}: {counts['ok']} ok, {counts['FAIL']} FAIL, {counts['SKIP']} SKIP")
    raise SystemExit(0 if green(findings) else 1)


if __name__ == "__main__":
    main(prog_name="python -m lanewise.gates")
