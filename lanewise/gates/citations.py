"""What documents point to in the code: `file.py`, `file.py:symbol`, `module.symbol`, folders, and links to pages and headings.

A file is found from the root, from the package, or by its name alone. A symbol is one that the module defines or imports, or an attribute of
a class that it defines. Line numbers are refused: they move.
"""

import ast
import re
from collections.abc import Iterator

from lanewise.gates.finding import Complaint
from lanewise.gates.markdown import pieces, spans
from lanewise.gates.names import PACKAGE, Names, imported
from lanewise.gates.repo import Repo

__all__ = ["broken_links", "unresolved", "unresolved_imports"]

_PATH = re.compile(r"([\w./-]+\.py|(?:lanewise|tests|docs|tools|bench|\.ci)/[\w./-]*|\w+/)(?::([\w.]+))?")
_DOTTED = re.compile(r"([A-Za-z_]\w*(?:\.\w+)+)(?:[(\[].*)?")


def broken_links(repo: Repo) -> Iterator[Complaint]:
    """Relative links to a file that is not there, or to a heading that its page does not have."""
    for page, text in repo.documents.items():
        folder = page.rpartition("/")[0]
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            name, _, heading = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            target = _joined(folder, name) if name else page
            headings = re.findall(r"^#+ (.+)$", repo.text(target), re.MULTILINE) if heading else []
            if not repo.exists(target) or (heading and heading not in {_anchor(h) for h in headings}):
                yield Complaint(page, link, f"{page}: the link {link} leads nowhere")


def unresolved(repo: Repo) -> Iterator[Complaint]:
    """Code spans that name a file or a symbol that is not there."""
    files = [*repo.sources, *repo.tests, *(p.relative_to(repo.root).as_posix() for p in (repo.root / "tools").glob("*.py"))]
    for page, text in repo.documents.items():
        for line, span in spans(text):
            wrong = _wrong(repo, files, span)
            if wrong:
                yield Complaint(page, span, f"{page}:{line}: `{span}`: {wrong}")


def unresolved_imports(repo: Repo) -> Iterator[Complaint]:
    """Python blocks that do not parse, or import from the package what it does not have."""
    for page, text in repo.documents.items():
        for piece in pieces(text):
            if piece.kind != "```python":
                continue
            try:
                tree = ast.parse(piece.text)
            except SyntaxError as error:
                yield Complaint(page, "syntax", f"{page}:{piece.line}: this Python does not parse: {error.msg}")
                continue
            for line, _, name in imported("", tree):
                if name.split(".")[0] == PACKAGE and not repo.names.resolve(name):
                    yield Complaint(page, name, f"{page}:{piece.line + line - 1}: {name} is not there")


def _wrong(repo: Repo, files: list[str], span: str) -> str:
    path, dotted = _PATH.fullmatch(span), _DOTTED.fullmatch(span)
    if path and any(part.isupper() for part in path[1].split("/")):  # NAME stands for something
        return ""
    if path:
        name, symbol = path[1], path[2]
        found = [f for f in files if f in (name, f"{PACKAGE}/{name}") or f.endswith(f"/{name}")]
        if not found and not repo.exists(name) and not repo.exists(f"{PACKAGE}/{name}"):
            return "there is no such file"
        if symbol and symbol.isdigit():
            return "a line number moves; name the symbol"
        trees = {**repo.sources, **repo.tests}
        if symbol and not any(_has(Names({f: trees[f]}), f, symbol) for f in found if f in trees):
            return f"{name} has no {symbol}"
    elif dotted and not re.search(r"\.(json|gguf|html|md|toml|zip)$", dotted[1]):
        return _wrong_dotted(repo, dotted[1], "(" in span)
    return ""


def _wrong_dotted(repo: Repo, dotted: str, called: bool) -> str:
    """`lanewise.a.b`, `a.b` where lanewise.a is a module, `a.b(...)` where a is the last part of a module's name, or `Class.b`.

    Anything else is no citation: `arms.a` may be a field of a file that happens to be called like some module.
    """
    first, *rest = parts = dotted.split(".")
    if first == PACKAGE:
        end = max(n for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in repo.names.modules)
        candidates, rest = [".".join(parts[:end])], parts[end:]
    else:
        candidates = [m for m in repo.names.modules if m.split(".")[-1] == first and (called or rest[0][0].isupper() or m.count(".") == 1)]
    # `problem.arch` may be a module's, or that of some Problem
    same = [n for table in repo.names.symbols.values() for name in table if name.lower() == first.lower() for n in table[name]]
    if rest and any(rest[0] in _attributes(node) for node in same):
        return ""
    if first[0].isupper():
        return f"no class {first} has {rest[0]}"
    if not candidates or not rest or any(_has(repo.names, repo.names.paths[m], ".".join(rest)) for m in candidates):
        return ""
    return f"no module {candidates[0]} has {'.'.join(rest)}"


def _has(names: Names, path: str, symbol: str) -> bool:
    """Whether a module defines or imports a symbol, `Class.attribute` included; one name alone may be an attribute of any class of it."""
    module = next(m for m, p in names.paths.items() if p == path)
    first, *rest = symbol.split(".")
    if first in {name for _, name, _ in imported(path, names.modules[module])}:
        return True
    nodes = names.symbols[module].get(first, [])
    classes = [node for each in names.symbols[module].values() for node in each if isinstance(node, ast.ClassDef)]
    if not nodes:
        return not rest and any(first in _attributes(node) for node in classes)
    return not rest or any(not isinstance(node, ast.ClassDef) or rest[0] in _attributes(node) for node in nodes)


def _attributes(node: ast.stmt) -> set[str]:
    """What an instance of a class has by its source; nothing for what is no class."""
    if not isinstance(node, ast.ClassDef):
        return set()
    named = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    named |= {each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return named | {n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"}


def _joined(folder: str, name: str) -> str:
    parts = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
