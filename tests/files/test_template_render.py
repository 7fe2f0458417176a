"""Chat templates render what transformers renders from the same source."""

import threading
from typing import Any

import pytest

from lanewise.errors import TemplateError
from lanewise.files.template import ChatTemplate

USER, SYSTEM = {"role": "user", "content": "Hi, wörld 中文 <b>"}, {"role": "system", "content": "  Be nice.\n"}
REPLY = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "image"}, {"type": "text", "text": " this?"}]}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {"city": "Zürich", "n": 2}}}],
}
RESULT = {"role": "tool", "content": '{"t": 3}'}
TOOLS = [{"type": "function", "function": {"name": "look", "description": 'Look "up" <here> & é', "parameters": {"n": [1, 2.5, None, True]}}}]
CONVERSATIONS = {
    "one": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, REPLY, USER],
    "parts": [PARTS],
    "tools": [USER, CALL, RESULT],
    "long": [SYSTEM] + [USER, REPLY] * 40,
}
EXPRESSIONS = r"""
r|first
r|last|upper|lower|capitalize|title
messages|selectattr('role', 'equalto', 'user')|list|length
messages|rejectattr('role', 'in', ['user'])|map(attribute='role')|join(' + ')
'a-b-c'|replace('-', '+')
' x '|trim
'[x]'|trim('[]')
[3, 1, 2]|sort|reverse|list
[1, 2, 3]|sum
[{'a': 1}, {'a': 2}]|sum('a', 3)
[{'a': 1}, {'a': 2}]|join('-', 'a')
[1, 2, 3]|max
{'b': 1, 'a': 2}|dictsort
{'b': 1}|items|list
3.14159|round(2)
'7'|int + 1
'l1\nl2'|indent(2)
'l1\nl2'|indent(2, true)
'l1\nl2'|indent('>>')
'%s is %d'|format('x', 3)
'%05.1f' % 3.14159
'%(a)s %%' % {'a': 1}
'%-5s|' % 'ab'
'{} {x}'.format(1, x=2)
'{:>5}|{!r}'.format(1, 'a')
'{{"a": {} }}'.format(3)
'ab'|center(6)
[1, 2, 3, 4, 5]|batch(2, 0)|list
[1, 2, 3]|slice(2)|list
'abc'|list
'héllo'|length
-5|abs
1 // 2
7 % 3
2 ** 8
2 ** -1
'x' * 3
[0] * 2
(1, 2) + (3,)
'abc'[1:] ~ 'abc'[-1] ~ 4 ~ none ~ true ~ [1]
range(3)|list
dict(a=1)
dict([['a', 1]], b=2)
'truncate this'|truncate(9)
','.join(['a', 'b'])
','.join(r)
'a,b'.split(',')
' a  b '.split()
'x\ny'.splitlines()
'ab'.ljust(4, '.')
'Hello'.startswith('He')
[[1, 'a'], [1, 'b']]|groupby(0)|list|length
{'a': {'b': [1]}}.a.b[0]
{'k': 'v'}.get('k')
{'k': 'v'}.get('z', 'd')
{'k': 1}.keys()|list
'a' in 'abc' and 1 not in [2]
5 if true else 6
'abc'.find('c')
'a.b.c'.rsplit('.', 1)
'abcabc'.rfind('b')
[1, 2].index(2)
'ß'|upper
none|string
'z'|safe
[1, [2, {'a': 'é'}], none]
messages[0]
tools
""".strip().splitlines()
TEMPLATES = {
    "chatml": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are helpful<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content']|string + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}""",
    "blocks are trimmed": """
{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{ system }}
    {% for message in messages %}
      {# a comment #}
      {% if message.role == 'user' %}
[{{ loop.index }}/{{ loop.length }}] {{ message.content }}
      {% elif not loop.last %}
{{ message['content'] if message['content'] is string else '-' }}
      {% endif %}
    {% endfor %}
{{ '>' if add_generation_prompt else '' }}{{ eos_token }}
""",
    "parts of every kind": """{% macro show(content) %}
{%- if content is string %}{{ content }}
{%- elif content is iterable and content is not mapping %}
{%- for part in content %}
{%- if part.type == 'text' %}{{ part.text }}{% elif 'image' in part or part['type'] == 'image' %}<image>{% endif %}
{%- endfor %}
{%- else %}{{ content }}{% endif %}
{%- endmacro %}
{% for m in messages %}{{ m.role }}: {{ show(m.content) }}
{% endfor %}""",
    "tools as json": """{% for tool in tools or [] %}{{ tool | tojson }} {{ tool.function | tojson(indent=2) }}{% endfor %}
{% for m in messages %}{% for call in m.tool_calls or [] %}{{ call.function.name }}(
{%- for k, v in call.function.arguments.items() %}{{ k ~ '=' ~ v|tojson }}{{ ', ' if not loop.last }}{% endfor %})
{% endfor %}{% endfor %}
{{ tools|tojson(separators=(',', ':'), sort_keys=true) }}{{ 'é'|tojson(ensure_ascii=true) }}""",
    "last user turn by namespace": r"""{% set ns = namespace(last=-1, seen=[], text='') %}
{% for m in messages[::-1] %}
{% set i = messages|length - 1 - loop.index0 %}
{% if m.role == 'user' and ns.last < 0 %}{% set ns.last = i %}{% endif %}
{% set ns.seen = ns.seen + [m.role] %}
{% endfor %}
{{ ns.last }} {{ ns.seen|join(',') }} {{ ns.seen|unique|sort|list }}
{% for m in messages if m.role == 'assistant' and '</think>' in (m.content or '') %}
{{ m.content.split('</think>')[-1].lstrip('\n') }}{{ m.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].strip() }}
{% endfor %}""",
    "loop controls and generation": """{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}
{% generation %}{{ m.content }}{% endgeneration %}
{% if loop.index > 4 %}{% break %}{% endif %}{% endfor %}""",
    "undefined values": """{{ nothing }}[{{ messages[0].nothing }}]{{ nothing is defined }}{{ nothing or 'x' }}
{{ nothing|default('d') }}{{ tools is none }}""",
    "expressions": "{% set r = messages|map(attribute='role')|list %}" + "".join(f"{{{{ {expression} }}}}\n" for expression in EXPRESSIONS),
    "macros": """{% macro tree(n, depth=0) %}{{ depth }}{% if n > 0 %}({{ tree(n - 1, depth + 1) }}){% endif %}
{{ varargs|length }}{{ kwargs|length }}{% endmacro %}{{ tree(3) }}{{ tree(0, 1, 2, z=3) }}
{% macro box() %}[{{ caller('x') }}]{% endmacro %}{% call(a) box() %}{{ a }}{% endcall %}
{% set block %}{% filter upper %}abc{{ 1 }}{% endfilter %}{% endset %}{{ block }}
{% block b %}B{% endblock %}{{ self.b() }}{% raw %}{{ x }}{% endraw %}""",
    "loops": """{% for x in [1, [2, [3]]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}
{% with y = 2 %}{{ y }}{% endwith %}
{% for x in [3, 4] if x > 3 %}{{ x }}{{ loop.cycle('p', 'q') }}{% else %}none{% endfor %}
{% for a, b in [(1, 2), (1, 3)] %}{{ a }}{{ b }}{{ loop.changed(a) }}{{ loop.previtem is defined }}{{ loop.revindex }}{% endfor %}
{% for c in 'héy' %}{{ c }}.{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}""",
    "dates": "{{ strftime_now('%Y')|length }}",
}


def _theirs(source: str, messages: list[dict[str, Any]], **names: Any) -> str:
    from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

    return render_jinja_template([_normalize_chat_messages(messages)], chat_template=source, **names)[0][0]


@pytest.mark.parametrize("talk", CONVERSATIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_renders_as_in_transformers(name: str, talk: str) -> None:
    names = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": talk != "turns"}
    for tools in (None, TOOLS):
        ours = ChatTemplate(TEMPLATES[name]).render(CONVERSATIONS[talk], tools=tools, documents=None, **names)
        assert ours == _theirs(TEMPLATES[name], CONVERSATIONS[talk], tools=tools, **names)


def test_the_models_own_template_renders_its_prompt() -> None:
    text = ChatTemplate(TEMPLATES["chatml"]).render([USER], add_generation_prompt=True)
    assert text == "<|im_start|>system\nYou are helpful<|im_end|>\n<|im_start|>user\nHi, wörld 中文 <b><|im_end|>\n<|im_start|>assistant\n"


def test_text_is_never_escaped_for_html() -> None:
    assert ChatTemplate("{{ '<a>'|safe + '<b>' + messages|tojson }}").render([{"role": "<x> & é \u2028"}]) == '<a><b>[{"role": "<x> & é \u2028"}]'


def test_escape_gives_html_and_plain_text() -> None:
    assert ChatTemplate("{{ '<a>'|e + '<b>'|escape + '<c>' }}").render([]) == "&lt;a&gt;&lt;b&gt;<c>"


def test_raise_exception_speaks_for_the_template() -> None:
    source = "{{ 'x' }}\n{% if messages[0].role != 'user' %}\n{{ raise_exception('Roles must\n alternate: ' ~ messages[0].role) }}{% endif %}"
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source, "mine").render([SYSTEM])
    assert str(caught.value) == "chat template 'mine', line 3 failed: Roles must alternate: system"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("a\n\n{% if %}", "line 3, does not compile: Expected an expression"),
        ("a\n{{ 'x' ", "line 2, does not compile: unexpected end of template"),
        ("{% for %}", "line 1, does not compile"),
        ("\n{% nope %}", "line 2, does not compile: Encountered unknown tag 'nope'"),
        ("\n{{ 1|nope }}", "line 2, does not compile: No filter named 'nope'"),
        ("{% endif %}", "line 1, does not compile"),
        ("a\n{{ 1 / 0 }}", "line 2 failed: ZeroDivisionError"),
        ("a\n\n\n{{ nope.x.y }}", "line 4 failed: 'nope' is undefined"),
        ("{{ 'a' + 1 }}", "line 1 failed: TypeError"),
        ("{{ {}|tojson(indent=[]) }}", "line 1 failed: TypeError"),
        ("{{ nothing|tojson }}", "line 1 failed: TypeError: Object of type Undefined"),
    ],
)
def test_errors_name_the_template_and_its_line(source: str, words: str) -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source, "t").render([USER])
    assert str(caught.value).startswith("chat template 't', " + words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("messages", ["text", {"role": "user"}, ["text"], [USER, None], 3])
def test_messages_that_are_none_are_refused(messages: Any) -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate("x").render(messages)
    assert "\n" not in str(caught.value)


def test_values_that_are_not_json_are_refused() -> None:
    class Thing:
        def __str__(self) -> str:
            return "secret"

    with pytest.raises(TemplateError, match="was given a Thing; strings, numbers"):
        ChatTemplate("{{ messages[0].content }}").render([{"content": Thing()}])
    with pytest.raises(TemplateError, match="was given a bytes"):
        ChatTemplate("x").render([], tools=[b"x"])


def test_a_conversation_that_holds_itself_is_refused() -> None:
    talk: dict[str, Any] = {"role": "user"}
    talk["content"] = [talk]
    with pytest.raises(TemplateError, match="nested, too deeply"):
        ChatTemplate("x").render([talk])


def test_subclasses_come_as_plain_values() -> None:
    class Loud(str):
        def upper(self) -> str:
            return "subclass"

    assert ChatTemplate("{{ messages[0].content.upper() }}{{ n + 1 }}").render([{"content": Loud("a")}], n=True) == "A2"


def test_the_callers_messages_are_not_changed() -> None:
    talk = [dict(CALL)]
    ChatTemplate("{{ messages }}").render(talk)
    assert talk == [CALL]


def test_a_name_may_be_any_that_a_client_sends() -> None:
    assert ChatTemplate("{{ messages|length }}{{ self is defined }}{{ name }}").render([USER], messages="x", self=1, name=2) == "1True2"


@pytest.mark.parametrize(
    "source",
    ["{{ dict([], []) }}", "{{ namespace([[1, 2]]) }}", "{{ namespace(_a=1) }}", "{{ range() }}", "{{ ''.join() }}", "{{ strftime_now(1) }}"],
)
def test_wrong_arguments_are_errors_of_the_template(source: str) -> None:
    with pytest.raises(TemplateError, match=r"^chat template 'default', line 1 failed: "):
        ChatTemplate(source).render([USER])


def test_its_repr_is_short() -> None:
    assert repr(ChatTemplate("x" * 10**6, "t")) == "ChatTemplate('t', 1000000 characters)"


def test_many_threads_render_one_template() -> None:
    template, found = ChatTemplate(TEMPLATES["chatml"]), []

    def render(i: int) -> None:
        found.extend(template.render([{"role": "user", "content": f"{i}-{k}"}]).split("user\n")[1].split("<")[0] == f"{i}-{k}" for k in range(20))

    threads = [threading.Thread(target=render, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 120
