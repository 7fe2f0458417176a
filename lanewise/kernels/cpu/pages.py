"""Giving memory back: pages that a file has need not stay, and come back from the file where they are used again."""

import contextlib
import ctypes
import mmap

__all__ = ["release", "release_code"]

_LIBC = ctypes.CDLL(None)


def release(address: int, nbytes: int) -> None:
    """Give back the whole pages among `nbytes` of a read-only mapping of a file."""
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (address + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        _LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED)


def release_code(library: str) -> None:
    """Give back the machine code of a shared library that is done with for now. Nothing happens on a system without /proc."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            place, rights, *_ = line.split()
            if rights == "r-xp" and library in line:
                start, end = (int(part, 16) for part in place.split("-"))
                release(start, end - start)
