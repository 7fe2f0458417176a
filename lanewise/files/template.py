"""Chat templates: a model's own jinja2 program that turns messages into its prompt text, run as what it is, a stranger's program.

>>> ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", "default").render([{"role": "user", "content": "Hi"}])
'<user>Hi'
"""

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from lanewise.errors import TemplateError
from lanewise.files.template_limits import METER, LimitError, Meter, TimeUp, Watch

if TYPE_CHECKING:
    from jinja2 import Template

    from lanewise.files.template_sandbox import Environment

__all__ = ["ChatTemplate"]

_T = TypeVar("_T")
# The longest published template has 20 kB; compiling what is longer than this could take seconds inside one call of C.
_MOST_SOURCE = 1 << 16


class ChatTemplate:
    """One chat template, compiled when it is first used. Any number of threads may render it.

    source:  jinja2 text, as transformers would run it: trimmed blocks, tojson without HTML escapes, raise_exception, strftime_now, loop controls
    name:    what errors call it
    seconds: the wall-clock time that compiling, and then each rendering, may take
    memory:  the bytes of all values that a rendering makes; one value may weigh a sixteenth of it
    """

    __slots__ = ("_compiled", "memory", "name", "seconds", "source")

    def __init__(self, source: str, name: str = "default", *, seconds: float = 2.0, memory: int = 128 << 20) -> None:
        self.source, self.name, self.seconds, self.memory = source, name, seconds, memory
        self._compiled: Template | None = None

    def __repr__(self) -> str:
        return f"ChatTemplate({self.name!r}, {len(self.source)} characters)"

    def render(self, messages: Sequence[Mapping[str, Any]], /, add_generation_prompt: bool = True, **names: Any) -> str:
        """The prompt text. `names` are further variables: bos_token, eos_token, tools, whatever the template reads.

        Everything is passed on as plain JSON-like data; keys of a message whose value is None are left out (as transformers does), so that a
        template does not print None. Raises TemplateError, in one line: a syntax error with its line, the template's own raise_exception, an
        operation that the sandbox refuses, or a limit that it reached.
        """
        if self._compiled is None:
            self._compiled = self._guard("does not compile", self._compile)
        return self._guard("failed", lambda: self._run(messages, {**names, "add_generation_prompt": add_generation_prompt}))

    def _compile(self) -> "Template":
        if len(self.source) > _MOST_SOURCE:
            raise LimitError(f"it has {len(self.source)} characters, more than {_MOST_SOURCE}")
        return _environment().from_string(self.source)

    def _run(self, messages: Sequence[Mapping[str, Any]], names: dict[str, Any]) -> str:
        if isinstance(messages, str | Mapping) or not all(isinstance(message, Mapping) for message in messages):
            raise TemplateError("messages are not a list of dicts; [{'role': ..., 'content': ...}, ...] is expected")
        template = self._compiled
        assert template is not None
        meter = Meter(self.memory)
        names["messages"] = [{key: value for key, value in message.items() if value is not None} for message in messages]
        context = template.new_context({name: meter.plain(value) for name, value in names.items()})
        token = METER.set(meter)
        try:
            # not template.render(): that rewrites tracebacks, which for a deep recursion takes longer than all else
            return template.environment.concat(template.root_render_func(context))
        finally:
            METER.reset(token)

    def _guard(self, verb: str, work: Callable[[], _T]) -> _T:
        """What `work` gives, within the time limit. Any way for it to fail becomes a TemplateError."""
        from jinja2 import TemplateError as JinjaError
        from jinja2 import TemplateSyntaxError

        _environment()  # imported before the watch starts
        watch, tracer = Watch(self.seconds), sys.gettrace()
        try:
            try:
                watch.start()
                return work()
            finally:
                watch.over = True
                watch.stop()
        except TemplateError:
            raise
        except TimeUp:
            # a trace function that TimeUp was raised in has been dropped
            sys.settrace(tracer)
            words = f" was stopped after {self.seconds:g} seconds; templates take milliseconds"
        except RecursionError as error:
            words = f"{_line(error)} calls itself, or is nested, too deeply"
        except LimitError as error:
            words = f"{_line(error)} was stopped: {error}"
        except TemplateSyntaxError as error:
            words = f", line {error.lineno}, {verb}: {_short(error.message)}"
        except JinjaError as error:
            words = f"{_line(error)} {verb}: {_short(error)}"
        except Exception as error:  # noqa: BLE001 - the template is a program: it may raise anything
            words = f"{_line(error)} {verb}: {type(error).__name__}: {_short(error)}"
        # outside the handlers: what the template made goes when they end, and is not kept by the error's context
        raise TemplateError(f"chat template {self.name!r}{words}")


@cache
def _environment() -> "Environment":
    """One environment for all templates; jinja2 is imported when the first is used."""
    from lanewise.files.template_sandbox import Environment

    return Environment()


def _line(error: BaseException) -> str:
    """ ", line n" of the template, where the traceback has one."""
    line = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        template = frame.f_globals.get("__jinja_template__")
        if template is not None:
            line = f", line {template.get_corresponding_lineno(number)}"
    return line


def _short(error: object) -> str:
    return str(error)[:300]
