"""Map a file read-only, and say in words what is wrong with a file or what it looks like instead.

Nothing here trusts a path: a pipe, a device, a directory, an empty file or one without permission is refused before it is read.
"""

import mmap
import os
import stat
from pathlib import Path

from lanewise.errors import ModelFileError

__all__ = ["Plain", "looks_like", "map_file", "reason", "shown"]


class Plain(str):
    """A word of our own as the value in an error: printed without quotes, unlike a value from the file."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def shown(text: str, limit: int = 64) -> str:
    """A name from a file, for an error: quoted, control characters escaped, cut to `limit` characters.

    >>> shown("a\\x1b[2J" + "b" * 70, 8)
    "'a\\\\x1b[2Jbbb'..."
    """
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}..."


def reason(error: OSError | ValueError) -> Plain:
    """The operating system's words for an error, without its number and path."""
    if isinstance(error, FileNotFoundError):
        return Plain("missing")
    words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return Plain(words.lower() or type(error).__name__)


def map_file(path: Path, accepted: str) -> mmap.mmap:
    """The file's bytes, mapped read-only; `accepted` says what should have been named. Raises ModelFileError.

    The map lives as long as anything that views it. A file that another process shortens while it is mapped ends the
    process with SIGBUS when the lost part is touched: no program can catch that from Python, so replace model files, do not rewrite them.
    """
    try:
        # O_NONBLOCK: opening a pipe must not wait for its writer; it is refused below.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise ModelFileError(path, "path", reason(error), accepted) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(path, "path", Plain(_kind(status.st_mode)), accepted)
        if status.st_size == 0:
            raise ModelFileError(path, "size", 0, f"an empty file is not a model; {accepted}")
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelFileError(path, "mapping", reason(error), accepted) from None
    finally:
        os.close(descriptor)


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in kinds if test(mode)), "a device")


# What users name by mistake, by first bytes. From the formats' own descriptions; ggml's old magics from llama.cpp's history.
_MAGICS = (
    (b"GGUF", "a GGUF model"),
    (b"FUGG", "a GGUF model with its magic reversed"),
    (b"PK\x03\x04", "a zip archive (PyTorch .pt and .bin checkpoints are zip archives)"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\x89HDF", "an HDF5 file (Keras)"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF"),
    (b"version https://git-lfs", "a Git LFS pointer: the model itself was not downloaded"),
    *((magic, "a ggml model from before GGUF") for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")),
)


def looks_like(head: bytes) -> str:
    """What a file with these first bytes seems to be, in words; for the error that it is not a model."""
    for magic, words in _MAGICS:
        if head.startswith(magic):
            return words
    if not head.strip(b"\0"):
        return "zero bytes only (an unfinished download)"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a Python pickle"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page (a download that answered with an error page)"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**32:
        return "a safetensors file"
    if text.startswith((b"{", b"[")):
        return "JSON text"
    return "text" if head.isascii() and head.replace(b"\n", b"").replace(b"\r", b"").replace(b"\t", b"").decode().isprintable() else "unknown data"
