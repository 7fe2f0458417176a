"""Kernels: whatever is registered has a contract, an oracle, cases and a row in the documents; whatever has a file is registered.

A file under `kernels/` holds kernels where a symbol of it makes one: it calls `CpuKernel`, writes a function with `ir.Function`, or is
compiled by `triton.jit`. Such a symbol must be reached, by names that code uses, from the body of a registered kernel or from a command,
which is how a backend's list of kernels is reached.
"""

import ast
from collections.abc import Iterator

from lanewise.gates.finding import Complaint, Finding, Rule, judge
from lanewise.gates.markdown import rows_of
from lanewise.gates.names import PACKAGE, PREFIX, Names, module_name
from lanewise.gates.repo import Repo

__all__ = ["RULES", "gate"]

_PAGE = "docs/kernel-author.md"
_HOME = f"{PACKAGE}/kernels/"
_CATALOGUE = f"{PACKAGE}/isa/catalogue.py"
_MAKERS = ((f"{PACKAGE}.kernels.cpu.kernel", "CpuKernel"), ("", "llvmlite.ir.Function"))
_JIT = {("", "triton.jit"), ("", "triton.runtime.jit.jit")}
_KERNEL, _REGISTER = (f"{PACKAGE}.contract", "Kernel"), (f"{PACKAGE}.dispatch", "register")


def gate(repo: Repo) -> list[Finding]:
    """Ask every rule about kernels."""
    return judge("kernels", RULES, repo)


def without_contract(repo: Repo) -> Iterator[Complaint]:
    """Kernels, oracles and cases of an op that the contract does not have, and ops of the contract that nothing computes."""
    ops, kernels = repo.inventory["ops"], {k["op"] for k in repo.inventory["kernels"]}
    for kind, names in (("kernel", kernels), ("oracle", repo.inventory["oracles"]), ("case", repo.inventory["cases"])):
        for op in sorted(set(names) - set(ops)):
            yield Complaint(f"{PACKAGE}/contract.py", op, f"{op} has a {kind} and no row in contract.OPS")
    for op in sorted(set(ops) - kernels):
        yield Complaint(f"{PACKAGE}/contract.py", op, f"{op} is in contract.OPS and no kernel is registered for it")


def without_oracle(repo: Repo) -> Iterator[Complaint]:
    """Kernels of an op without an oracle."""
    for kernel in repo.inventory["kernels"]:
        if kernel["op"] not in repo.inventory["oracles"]:
            yield Complaint(f"{PACKAGE}/oracle/__init__.py", kernel["name"], f"{kernel['name']}: {kernel['op']} has no row in oracle.ORACLES")


def without_cases(repo: Repo) -> Iterator[Complaint]:
    """Kernels of an op that there is nothing to try with."""
    for kernel in repo.inventory["kernels"]:
        if not repo.inventory["cases"].get(kernel["op"]):
            yield Complaint(f"{PACKAGE}/oracle/cases.py", kernel["name"], f"{kernel['name']}: {kernel['op']} has no case in oracle.cases.CASES")


def without_row(repo: Repo) -> Iterator[Complaint]:
    """Kernels whose row in the table is missing or says something else, and rows of kernels that are not registered."""
    rows = {cells[0].strip("`"): [cell.strip("`") for cell in cells[1:4]] for cells in rows_of(repo.text(_PAGE), "kernel")}
    asked = [kernel["name"] for kernel in repo.inventory["kernels"]]
    if sorted(rows) == sorted(asked) and list(rows) != asked:
        yield Complaint(_PAGE, "order", f"{_PAGE}: the kernels are not in the order in which dispatch asks them")
    for kernel in repo.inventory["kernels"]:
        said, true = rows.pop(kernel["name"], None), [kernel["op"], kernel["body"], f"{PREFIX}{kernel['switch']}" if kernel["switch"] else "none"]
        if said is None:
            yield Complaint(_PAGE, kernel["name"], f"{_PAGE} has no row for the kernel {kernel['name']}")
        elif said != true:
            yield Complaint(_PAGE, kernel["name"], f"{_PAGE}: {kernel['name']} is {', '.join(true)}; its row says {', '.join(said)}")
    for name in rows:
        yield Complaint(_PAGE, name, f"{_PAGE} has a row for {name}, which is not registered")


def unregistered(repo: Repo) -> Iterator[Complaint]:
    """Kernels that are made and not handed to `dispatch.register`."""
    names = repo.names
    for path, tree in repo.sources.items():
        module = module_name(path)
        handed = {id(argument) for call in names.calls(module, tree, _REGISTER) for argument in call.args}
        for call in names.calls(module, tree, _KERNEL):
            if id(call) not in handed:
                what = ast.unparse(call.args[0]) if call.args else "kernel"
                yield Complaint(path, what, f"{path}:{call.lineno}: the kernel {what} is made and not registered")


def unreached(repo: Repo) -> Iterator[Complaint]:
    """What makes a kernel under `kernels/`, and files there, that nothing registered and no command comes to."""
    names, reached = repo.names, repo.reached
    for module, path in names.paths.items():
        if not path.startswith(_HOME) or path.endswith("__init__.py"):
            continue
        if not any(symbol[0] == module for symbol in reached):
            yield Complaint(path, "file", f"{path}: no registered kernel and no command comes to this file")
            continue
        for name in names.symbols[module]:
            if _makes(names, module, name) and (module, name) not in reached:
                yield Complaint(path, name, f"{path}: {name} makes a kernel, and no registered kernel and no command comes to it")


def without_machine_code(repo: Repo) -> Iterator[Complaint]:
    """GPU kernels that `lanewise isa --gate` has no launcher for, and launchers of what is not registered."""
    tree = repo.sources.get(_CATALOGUE, ast.Module([], []))
    tables = [node.value for node in tree.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_LAUNCHERS"]
    launched = {key.value for table in tables if isinstance(table, ast.Dict) for key in table.keys if isinstance(key, ast.Constant)}
    there = {kernel["name"] for kernel in repo.inventory["kernels"] if kernel["body"] == "gpu"}
    for name in sorted(there - launched):
        yield Complaint(_CATALOGUE, name, f"{_CATALOGUE}: {name} is registered and has no row in _LAUNCHERS, so nobody looks at its machine code")
    for name in sorted(str(name) for name in launched - there):
        yield Complaint(_CATALOGUE, name, f"{_CATALOGUE}: {name} has a row in _LAUNCHERS and is not registered")


def _makes(names: Names, module: str, name: str) -> bool:
    for node in names.symbols[module][name]:
        if any(names.calls(module, node, *_MAKERS)):
            return True
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        if any(names.meant(module, d.func if isinstance(d, ast.Call) else d) & _JIT for d in decorators):
            return True
    return False


RULES = (
    Rule("contract", "every kernel, oracle and case is of an op in contract.OPS, and each of these has a kernel", without_contract),
    Rule("oracle", "every registered kernel's op has an oracle", without_oracle),
    Rule("cases", "every registered kernel's op has cases", without_cases),
    Rule("documented", f"every registered kernel has a true row in {_PAGE}", without_row),
    Rule("registered", "every kernel that is made is registered", unregistered),
    Rule("machine_code", "every GPU kernel is in the catalogue of the gate on machine code", without_machine_code),
    Rule("reached", "everything under kernels/ is reached from a registered kernel or a command", unreached),
)
