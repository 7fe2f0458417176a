"""What a package says of itself, as one line of JSON. `Repo.inventory` runs this text in the tree that is checked, in a process of its own.

Modules are imported by name: what runs here is that tree's command line and registry, which stand above the gates.
"""

import importlib
import json
import sys
from typing import Any

# What a CPU user does not have: loading the rooms may not load them.
HEAVY = ("torch", "triton", "transformers", "xllamacpp", "matplotlib")
ROOMS = ("contract", "dispatch", "settings", "formats", "files.recipes", "oracle.cases", "models", "backends", "engine", "cli")


def inventory() -> dict[str, Any]:
    """The tables of the package by name: kernels with where their bodies are, commands with their options, `heavy` with what should not be loaded."""
    rooms = {name: importlib.import_module(f"lanewise.{name}") for name in ROOMS}
    oracle = importlib.import_module("lanewise.oracle")
    heavy = [name for name in HEAVY if name in sys.modules]
    return {
        "ops": dict(rooms["contract"].OPS),
        "oracles": list(oracle.ORACLES),
        "cases": {op: len(cases) for op, cases in rooms["oracle.cases"].CASES.items()},
        "kernels": [
            {"name": k.name, "op": k.op, "body": k.body, "switch": k.switch, "module": k.run.__module__, "function": k.run.__qualname__}
            for k in rooms["dispatch"].kernels()
        ],
        "settings": {name: _plain(setting.default) for name, setting in rooms["settings"].SETTINGS.items()},
        "help": {name: [setting.variable, setting.accepts, setting.help] for name, setting in rooms["settings"].SETTINGS.items()},
        "formats": list(rooms["formats"].FORMATS),
        "families": list(rooms["models"].FAMILIES),
        "types": list(rooms["files.recipes"].names()),
        "commands": _command(rooms["cli"].app)["commands"],
        "front_door": list(importlib.import_module("lanewise").__all__),
        "heavy": heavy,
    }


def _command(command: Any) -> dict[str, Any]:
    callback = command.callback
    names = [option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)]
    return {
        "options": sorted({name for name in names if name.startswith("-")}),
        "needs": sum(parameter.required for parameter in command.params),
        "module": callback.__module__ if callback else "",
        "function": callback.__qualname__ if callback else "",
        "commands": {name: _command(below) for name, below in getattr(command, "commands", {}).items()},
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


if __name__ == "__main__":
    json.dump(inventory(), sys.stdout)
    sys.stdout.write("\n")
