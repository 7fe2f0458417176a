"""The gate on machine code: each case of the catalogue, compiled for each target, against what is declared of it. Sources are never looked at.

A miss is one line: what was found, and what was declared. A target that the compiler refuses is no miss as long as dispatch refuses it too.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

from lanewise.arch import Arch
from lanewise.errors import CompilerError, LanewiseError
from lanewise.isa import catalogue
from lanewise.isa.catalogue import Case
from lanewise.isa.code_object import CodeObject
from lanewise.isa.compile import Body, compile_for
from lanewise.isa.cubin import Cubin
from lanewise.isa.expect import expected
from lanewise.isa.expectation import Expectation
from lanewise.isa.hazard import hazards, unwaited
from lanewise.isa.objdump import compared
from lanewise.isa.summary import Summary, summary

__all__ = ["Verdict", "facts", "judge", "judge_all", "unlisted"]


_FEW = 4  # cases that are judged before another process would have loaded Triton


@dataclass(frozen=True)
class Verdict:
    """case, kernel, target: by name
    state:  "ok", "refused" (by the compiler and by dispatch) or "MISS"
    misses: why, a line each; reason: the compiler's
    unread: why no disassembler of the system was asked too; empty where one was, and of NVIDIA
    bodies: of each kernel that was launched its name and what was counted
    """

    case: str
    kernel: str
    target: str
    state: str
    misses: tuple[str, ...] = ()
    reason: str = ""
    unread: str = ""
    bodies: tuple[tuple[str, dict[str, Any]], ...] = ()


def unlisted() -> list[str]:
    """GPU kernels that are registered and have no case, and kernels of cases that are not registered: each a miss of its own."""
    known = {name for names in catalogue.registered().values() for name in names}
    cased = {case.kernel for case in catalogue.CASES}
    found = [f"{name} is registered and the catalogue has no case of it" for name in sorted(known - cased)]
    return found + [f"{name} is in the catalogue and not registered" for name in sorted(cased - known)]


def judge(case: Case, row: Arch, compiled: Callable[[Case, Arch], tuple[Body, ...]] = compile_for) -> Verdict:
    """One case on one target."""
    names = (str(case), case.kernel, str(row))
    try:
        refusal = case.refusal(row)
        bodies = compiled(case, row)
    except CompilerError as error:
        misses: tuple[str, ...] = () if refusal else (f"dispatch gives it to a target that does not compile it: {error}",)
        return Verdict(*names, "MISS" if misses else "refused", misses, str(error))
    except LanewiseError as error:
        return Verdict(*names, "MISS", (str(error),))
    misses = (f"it compiles, and dispatch refuses it: {refusal}",) if refusal else ()
    counted, unread = [], ""
    try:
        for body in bodies:
            misses += tuple(f"{body.name}: {miss}" for miss in _misses(case, row, body))
            counted.append((body.name, facts(body)))
            unread = compared(body.code) if isinstance(body.code, CodeObject) else ""
    except LanewiseError as error:
        misses += (str(error),)
    return Verdict(*names, "MISS" if misses else "ok", misses, "", unread, tuple(counted))


def judge_all(cases: Iterable[Case], rows: Iterable[Arch], jobs: int = 1) -> Iterator[Verdict]:
    """Every case on every target, in order, in so many processes at most."""
    work = [(case, row) for row in rows for case in cases]
    if jobs <= 1 or len(work) <= _FEW:
        yield from (judge(case, row) for case, row in work)
        return
    # what is compiled before a fork would be shared; a fresh process has only what it needs
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(_judge, work, chunksize=1)


def _judge(work: tuple[Case, Arch]) -> Verdict:
    return judge(*work)


def facts(body: Body) -> dict[str, Any]:
    """What is known and counted of a kernel, for JSON."""
    code = body.code
    known: dict[str, Any] = {"shared": body.shared, "warps": body.warps}
    if isinstance(code, CodeObject):
        known |= {"vgprs": code.vgprs, "sgprs": code.sgprs, "scratch": code.scratch, "spills": code.spills, "bytes": len(code.code)}
    else:
        known |= {"registers": code.registers, "stack": code.stack, "local": code.local}
    return known | asdict(summary(code))


def _misses(case: Case, row: Arch, body: Body) -> Iterator[str]:
    if body.shared > row.lds:
        yield f"{body.shared} bytes of LDS, of {row.lds}"
    code, counted, wanted = body.code, summary(body.code), expected(case, row, body.name)
    yield from _counted(counted, wanted)
    if isinstance(code, Cubin):
        if code.stack > wanted.stack or code.local:
            yield f"{code.stack} bytes of stack, for {wanted.stack}, and {code.local} of local memory a thread"
        return
    if code.scratch or code.spills:
        yield f"{code.spills} registers spilled, {code.scratch} bytes of scratch a lane"
    if counted.waves < wanted.waves:
        yield f"{counted.waves} waves of a SIMD, for {wanted.waves}, by {code.vgprs} registers and {body.shared} bytes of LDS"
    yield from (*hazards(code)[:3], *unwaited(code)[:3])


def _counted(counted: Summary, wanted: Expectation) -> Iterator[str]:
    found = counted.dots.get(wanted.dot or "", 0)
    others = {name: count for name, count in counted.dots.items() if name != wanted.dot}
    if found not in wanted.dots:
        yield f"{found} {wanted.dot}, for {wanted.dots}"
    if others:
        yield f"dots that nobody asked for: {', '.join(f'{count} {name}' for name, count in others.items())}"
    if counted.own_dots:
        yield f"{counted.own_dots} dots that the compiler made of other arithmetic"
    if counted.unsigned:
        yield f"{counted.unsigned} products of bytes that are unsigned"
    for name, count, allowed in (
        ("instructions of the matrix unit", counted.matrix, wanted.matrix),
        ("integer products of 24 bits", counted.fast, wanted.fast),
        ("integer products of 32 bits", counted.slow, wanted.slow),
        ("loads of 16 bytes", counted.wide, wanted.wide),
        ("narrower loads", len(counted.loads) - counted.wide, wanted.other),
    ):
        if count not in allowed:
            yield f"{count} {name}, for {allowed}"
