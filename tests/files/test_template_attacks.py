"""Templates that reach out, never end or grow without bound: each ends as a TemplateError, soon, and without much memory."""

import sys
import threading
import time
import tracemalloc

import pytest

from lanewise.errors import TemplateError
from lanewise.files.template import ChatTemplate
from lanewise.files.template_limits import TimeUp, Watch

TALK = [{"role": "user", "content": "x"}]
SECONDS, MEMORY = 0.3, 8 << 20
# An operation in C that has begun is not interrupted; none may be larger than one value, and then the watch comes every 50 ms.
PATIENCE = 2.0


def grow(step: str, start: str = "'ab'", then: str = "") -> str:
    return "{% set ns = namespace(s=" + start + ") %}{% for i in range(999) %}{% set ns.s = " + step + " %}{% endfor %}" + then


REACHING = {
    "mro": "{{ ''.__class__.__mro__ }}",
    "class": "{{ ''.__class__ }}",
    "class by subscript": "{{ ''['__class__'] }}",
    "class by filter": "{{ ''|attr('__class__') }}",
    "class by map": "{{ ['']|map(attribute='__class__')|list }}",
    "class by format": "{{ '{0.__class__}'.format('') }}",
    "class by format_map": "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "globals of cycler": "{{ cycler.__init__.__globals__ }}",
    "globals of self": "{{ self.__init__.__globals__ }}",
    "globals of a function": "{{ raise_exception.__globals__ }}",
    "globals of a macro": "{% macro m() %}{% endmacro %}{{ m.__init__ }}",
    "frame of a generator": "{% set g = [1]|map('upper') %}{{ g.gi_frame }}",
    "throw into a generator": "{% set g = [1]|map('upper') %}{{ g.throw(1) }}",
    "subclasses": "{{ dict.mro() }}",
    "environment": "{{ self._TemplateReference__context.environment }}",
    "append": "{{ messages.append(1) }}",
    "update": "{{ messages[0].update({'role': 'system'}) }}",
    "pop": "{{ messages[0].pop('role') }}",
    "dunder in a namespace": "{% set ns = namespace(__class__=1) %}",
    "dunder set on a namespace": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "include": "{% include '/etc/passwd' %}",
    "include, missing allowed": "{% include '/etc/passwd' ignore missing %}",
    "import": "{% import 'os' as os %}",
    "from import": "{% from 'os' import system %}",
    "extends": "{% extends '/etc/passwd' %}",
    "autoescape": "{% autoescape true %}{% endautoescape %}",
    "calling a string": "{{ 'a'() }}",
    "bytes": "{{ 'a'.encode() }}",
    "fromkeys": "{{ {}.fromkeys([1]) }}",
}
ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "nested loops that print": "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a block that calls itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "a loop that calls itself": "{% for x in [[]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "filters over and over": "{% for i in range(99999) %}{{ range(9999)|map('string')|list|sort|unique|join }}{% endfor %}",
    "sorting": "{% for i in range(99999) %}{{ range(9999)|sort(reverse=true)|first }}{% endfor %}",
    "keys that collide": "{{ dict(range(0, 49998 * (2 ** 61 - 1), 2 ** 61 - 1)|batch(2)|list) }}",
    "stripping": "{{ ('b' * 400000).strip('c' * 400000 ~ 'b') }}",
    "trimming": "{{ ('b' * 400000)|trim('c' * 400000 ~ 'b') }}",
    "searching from the end": "{{ ('a' * 400000).rfind('a' * 100000 ~ 'b' ~ 'a' * 100000) }}",
    "splitting from the end": "{{ ('a' * 400000).rsplit('a' * 100000 ~ 'b' ~ 'a' * 100000) }}",
    "unclosed keys": "{{ ('%(' * 200000) % 1 }}",
    "much to compile": "{{ a ~ b }}{% if x %}{% endif %}" * 2100,
    "more to compile": "x" * 70_000,
}
GROWING = {
    "times": "{{ 'a' * 10 ** 8 }}",
    "times, turned round": "{{ 10 ** 8 * 'a' }}",
    "list times": "{{ [0] * 10 ** 8 }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "power of power": "{{ (10 ** 1000) ** 1000 }}",
    "squares": grow("ns.s * ns.s", "3"),
    "subtraction": grow("ns.s - -ns.s", "3").replace("999", "99999"),
    "long literal": "{{ 0x" + "f" * 60_000 + " }}",
    "int": "{{ ('9' * 4000)|int }}",
    "int of base 32": "{{ ('v' * 100000)|int(0, 32) }}",
    "bytes of an int": "{{ (1).to_bytes(10 ** 10, 'big') }}",
    "doubling by ~": grow("ns.s ~ ns.s"),
    "doubling by +": grow("ns.s + ns.s"),
    "doubling a list": grow("ns.s + ns.s", "[1]"),
    "doubling by replace": grow("ns.s|replace('a', ns.s)"),
    "doubling by .replace": grow("ns.s.replace('a', ns.s)"),
    "replace of many": "{{ ('a' * 10000)|replace('a', 'b' * 10000) }}",
    ".replace of many": "{{ ('a' * 10000).replace('a', 'b' * 10000) }}",
    "doubling by join": grow("ns.s|join(ns.s)"),
    "doubling by .join": grow("ns.s.join(ns.s|list)"),
    "doubling by format": grow("'{0}{0}'.format(ns.s)"),
    "doubling by %": grow("'%s%s' % (ns.s, ns.s)"),
    "doubling by a macro": "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}" + "{% call m() %}" * 24 + "abcd" * 500 + "{% endcall %}" * 24,
    "doubling by set": "{% set s = 'abcd' %}" + "{% set s %}{{ s }}{{ s }}{% endset %}" * 40,
    "many slices": "{% set s = 'a' * 400000 %}" + "".join(f"{{% set s{i} = s[{i}:] %}}" for i in range(99)),
    "numbers printed": "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
    "letters in a block": "{% set x %}{% for a in range(99999) %}{% for b in range(99999) %}y{% endfor %}{% endfor %}{% endset %}",
    "nested lists": grow("[ns.s, ns.s]"),
    "nested tuples": grow("(ns.s, ns.s)"),
    "nested dicts": grow("{'a': ns.s, 'b': ns.s}"),
    "nested dicts by dict()": grow("dict(a=ns.s, b=ns.s)"),
    "nested by batch": grow("[1]|batch(3, ns.s)|first"),
    "nested by slice": grow("[1, 1]|slice(3, ns.s)|list"),
    "nested by arguments": "{% macro m(s, n) %}{{ m(varargs, n + 1, s, s, varargs) if n < 99 }}{% endmacro %}{{ m('x', 0, 'x') }}",
    "nested and compared": grow("[ns.s, ns.s]") + grow("[nt.s, nt.s]").replace("ns", "nt") + "{{ ns.s == nt.s }}",
    "deep tuples as a key": grow("(ns.s,)", "()", "{{ {ns.s: 1}|length }}").replace("999", "99999"),
    "deep lists": grow("[ns.s]", "[]"),
    "center": "{{ 'a'|center(10 ** 8) }}",
    ".center": "{{ 'a'.center(10 ** 8) }}",
    ".ljust": "{{ 'a'.ljust(10 ** 8) }}",
    ".zfill": "{{ 'a'.zfill(10 ** 8) }}",
    "expandtabs": "{{ '\t'.expandtabs(10 ** 10) }}",
    "translate": "{{ ('a' * 100000).translate({97: 'b' * 100000}) }}",
    "indent": "{{ ('\n' * 100000)|indent(100000) }}",
    "indent by text": "{{ ('a\n' * 10000)|indent('b' * 100000) }}",
    "replace of nothing": "{{ ('a' * 100000)|replace('', 'b' * 100000) }}",
    "join of many": "{{ range(99999)|join('a' * 10000) }}",
    ".join of many": "{{ ('a' * 10000).join(['b'] * 10000) }}",
    "% with a width": "{{ '%999999999d' % 1 }}",
    "% with flags and a width": "{{ '%-+ #0999999999d' % 1 }}",
    "% with a precision": "{{ '%5.999999999f' % 1 }}",
    "% with a width from an argument": "{{ '%*d' % (999999999, 1) }}",
    "% with a key": "{{ '%(a)999999999d' % {'a': 1} }}",
    "% with a key in parentheses": "{{ '%(a(b)c)999999999d' % {'a(b)c': 1} }}",
    "% after %%": "{{ '%%%999999999d' % 1 }}",
    "% many times": "{{ ('%(a)s' * 1000) % {'a': 'b' * 100000} }}",
    "format filter": "{{ '%999999999d'|format(1) }}",
    "format with a width": "{{ '{:>999999999}'.format(1) }}",
    "format with a width from an argument": "{{ '{:{}}'.format(1, 999999999) }}",
    "format many times": "{{ ('{0}' * 1000).format('a' * 100000) }}",
    "format_map": "{{ '{a:999999999}'.format_map({'a': 1}) }}",
    "round to the left": "{{ 5|round(-10 ** 9) }}",
    "round down": "{{ 5.5|round(10 ** 9, 'floor') }}",
    "list of lists": "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [range(9999)|list] %}{% endfor %}",
    "list of texts": "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + ['a' * 100000 ~ i] %}{% endfor %}",
    "list of slices": "{% set s = 'a' * 100000 %}{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [s[i:]] %}{% endfor %}",
    "characters": "{{ ('中' * 500000)|list|length }}",
    "characters sorted": "{{ ('中' * 500000)|sort|length }}",
    "words": "{{ ('a ' * 250000).split()|length }}",
    "lines": "{{ ('\n' * 500000).splitlines()|length }}",
    "titles": "{{ ('a ' * 250000)|title|length }}",
    "sum of lists": "{{ ([[1]] * 30000)|sum(start=[])|length }}",
    "batch": "{{ [1]|batch(10 ** 7, 0)|list }}",
    "slices": "{{ [1]|slice(10 ** 9)|list }}",
    "range": "{{ range(10 ** 9)|list }}",
    "json indented": "{{ [[1]]|tojson(indent=10 ** 9) }}",
    "json separated": "{{ ([1] * 10000)|tojson(separators=('a' * 10000, ':')) }}",
    "json of control characters": "{{ ('\x01' * 400000)|tojson }}",
    "output": "{% for i in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
    "dates": "{{ strftime_now('%Y' * 100000) }}",
}


@pytest.mark.parametrize("name", REACHING)
def test_a_template_that_reaches_out_is_stopped(name: str) -> None:
    _stopped(REACHING[name])


@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_that_does_not_end_is_stopped(name: str) -> None:
    _stopped(ENDLESS[name])


@pytest.mark.parametrize("name", GROWING)
def test_a_template_that_grows_is_stopped(name: str) -> None:
    tracemalloc.start()
    try:
        # with time enough that only the limit on memory can stop it
        words = _stopped(GROWING[name], seconds=30)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "seconds" not in words
    assert peak < 2 * MEMORY


@pytest.mark.parametrize("part", ["((((", "[[[[", "{% if a %}", "{% for a in [1] %}", "a.b", "not ", "-"])
def test_a_template_that_is_nested_too_deeply_is_refused(part: str) -> None:
    inside = {"{% if a %}": "{% endif %}", "{% for a in [1] %}": "{% endfor %}"}
    source = part * 600 + inside[part] * 600 if part in inside else "{{ " + part * 3000 + " }}"
    _stopped(source)


def _stopped(source: str, seconds: float = SECONDS) -> str:
    start = time.perf_counter()
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source, "bad", seconds=seconds, memory=MEMORY).render(TALK)
    assert time.perf_counter() - start < seconds + PATIENCE
    words = str(caught.value)
    assert words.startswith("chat template 'bad'")
    assert "\n" not in words
    assert len(words) < 450
    # what the template made is not kept alive by the error
    assert caught.value.__context__ is None
    return words


def test_the_time_limit_holds_in_any_thread() -> None:
    errors: list[TemplateError] = []

    def render() -> None:
        try:
            ChatTemplate(ENDLESS["nested loops"], seconds=0.1).render(TALK)
        except TemplateError as error:
            errors.append(error)

    threads = [threading.Thread(target=render) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [str(error) for error in errors] == ["chat template 'default' was stopped after 0.1 seconds; templates take milliseconds"] * 3


def test_the_time_limit_holds_under_a_trace_function_and_leaves_it_there() -> None:
    lines: list[int] = []

    def trace(frame: object, event: str, arg: object) -> object:
        lines.append(1)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        with pytest.raises(TemplateError, match=r"after 0\.05 seconds"):
            ChatTemplate(ENDLESS["nested loops"], seconds=0.05).render(TALK)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert lines


def test_a_watch_leaves_nothing_behind() -> None:
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(TemplateError):
            ChatTemplate(ENDLESS["nested loops"], seconds=0.01).render(TALK)
    deadline = time.perf_counter() + 0.3
    # a TimeUp that came late would be raised here
    while time.perf_counter() < deadline:
        pass
    assert threading.active_count() <= before


def test_a_swallowed_interruption_comes_again() -> None:
    watch, swallowed = Watch(0.01), 0
    try:
        watch.start()
        while swallowed < 3:
            try:
                while True:
                    pass
            except TimeUp:
                swallowed += 1
    finally:
        watch.over = True
        watch.stop()
    assert swallowed == 3


def test_an_ordinary_conversation_is_far_from_the_limits() -> None:
    source = "{% for m in messages %}{% set c = m.content|trim %}<{{ m.role }}>{{ c ~ '\n' }}{{ (messages[:loop.index])|length }}{% endfor %}"
    talk = [{"role": "user", "content": "word " * 200}, {"role": "assistant", "content": "reply " * 200}] * 200
    template = ChatTemplate(source)
    assert len(template.render(talk)) > 400 * 1000


def test_a_template_that_failed_renders_the_next_conversation() -> None:
    template = ChatTemplate("{% for i in range(n) %}{% for j in range(n) %}{% endfor %}{% endfor %}done", seconds=0.1)
    with pytest.raises(TemplateError):
        template.render(TALK, n=99_999)
    assert template.render(TALK, n=2) == "done"
