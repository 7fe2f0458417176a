"""Parse JSON that came with a model: size, node count and depth bounded, keys unique, text that can be encoded again."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

from lanewise.errors import ModelFileError
from lanewise.files.mapped import Plain, map_file, shown

__all__ = ["parse_object", "read_object"]

# Twice what the largest published checkpoint's index needs (140k tensors). A node costs Python up to about 220 bytes.
_MOST_BYTES: Final = 24 << 20
_MOST_NODES: Final = 1 << 19
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class _DuplicateError(ValueError):
    pass


def read_object(path: Path, accepted: str) -> dict[str, Any]:
    """The JSON object that a file holds. Raises ModelFileError."""
    with map_file(path, accepted) as data:
        if len(data) > _MOST_BYTES:
            raise ModelFileError(path, "size", len(data), f"at most {_MOST_BYTES} bytes of JSON are read")
        raw = bytes(data)
    return parse_object(path, path.name, raw)


def parse_object(path: Path, field: str, raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`; `field` is what errors call it. NaN and Infinity are taken, since configs have them."""
    # Before parsing: every value follows a comma, a bracket or a brace. Those inside strings count too, which only makes this stricter.
    nodes = sum(raw.count(mark) for mark in (b",", b"[", b"{"))
    if len(raw) > _MOST_BYTES or nodes > _MOST_NODES:
        size = Plain(f"{len(raw)} bytes with {nodes} values")
        raise ModelFileError(path, field, size, f"at most {_MOST_BYTES} bytes and {_MOST_NODES} values are read")
    try:
        parsed = json.loads(raw.decode(), object_pairs_hook=_unique)
        if _SURROGATE.search(raw):
            # half a UTF-16 pair parses, but cannot be printed or tokenized
            json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeError:
        raise ModelFileError(path, field, Plain("not UTF-8"), "JSON in UTF-8 is expected") from None
    except RecursionError:
        raise ModelFileError(path, field, Plain("nested too deeply"), "a model's JSON is a few levels deep") from None
    except ValueError as error:  # JSONDecodeError, a duplicate, or an integer of thousands of digits
        raise ModelFileError(path, field, Plain("not valid JSON"), f"one object without duplicate keys is expected ({error})") from None
    if not isinstance(parsed, dict):
        raise ModelFileError(path, field, Plain(f"a JSON {type(parsed).__name__}"), "a JSON object is expected")
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _DuplicateError(f"duplicate key {shown(twice)}")
    return items
