"""Chat templates: what Hugging Face's templates rely on, and what no template may do."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from core.errors import ClientError, ModelError
from engine import template_sandbox
from engine.chat_template import MAX_TEMPLATE_CHARS, ChatTemplate
from engine.tokenizer import Tokenizer
from engine.tokenizer_files import write_synthetic

USER: dict[str, Any] = {"role": "user", "content": "hi"}


def render(source: str, *messages: dict[str, Any], **more: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(messages or [USER], **more)


def test_blocks_are_trimmed() -> None:
    source = (
        "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}"
    )
    assert render(source) == "hi\n"


def test_what_a_template_is_given() -> None:
    assert render("{{ bos_token }}{{ messages[0]['role'] }}") == "<s>user"
    assert render("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"
    assert render("{{ tools }}") == "None"
    assert render("{{ tools[0].name }}", tools=[{"name": "clock"}]) == "clock"
    assert render("{{ deep }}{{ unknown }}", variables={"deep": 1}) == "1"


def test_tojson_leaves_characters_alone() -> None:
    assert render("{{ {'b': '<é\"&>', 'a': 1} | tojson }}") == '{"b": "<é\\"&>", "a": 1}'
    assert render("{{ [1] | tojson(indent=2) }}") == "[\n  1\n]"


def test_generation_and_loop_controls() -> None:
    assert render("{% generation %}a{{ 1 }}{% endgeneration %}b") == "a1b"
    assert render(
        "{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    )


def test_loop_variables_survive_the_counting() -> None:
    source = (
        "{% for m in messages %}{{ loop.index0 }}/{{ loop.length }}"
        "{{ '.' if loop.last else ',' }}{{ loop.previtem.role if not loop.first }}{% endfor %}"
    )
    assert render(source, USER, {"role": "assistant", "content": "yo"}) == "0/2,1/2.user"
    pairs = "{% for key, value in messages[0].items() %}{{ key }}={{ value }};{% endfor %}"
    assert render(pairs) == "role=user;content=hi;"
    users = "messages | selectattr('role', 'equalto', 'user')"
    assert render("{% for m in " + users + " %}{{ loop.length }}{% endfor %}") == "1"
    assert render("{% for m in nothing %}x{% else %}none{% endfor %}") == "none"


def test_concatenation_survives_the_counting() -> None:
    assert render("{{ 'a' ~ 1 ~ ('b' ~ none) ~ unknown }}") == "a1bNone"
    assert render("{% set ns = namespace(s='') %}{% for i in range(3) %}{% set ns.s = ns.s ~ i %}"
                  "{% endfor %}{{ ns.s }}") == "012"  # fmt: skip
    assert render("{{ ['a', 'b'] | join(', ') ~ 'x'.replace('x', 'y') }}") == "a, by"
    assert render("{{ '%s-%d' % ('a', 3) }}{{ '%s' | format('b') }}{{ '{}'.format(4) }}") == "a-3b4"


def test_strftime_now_tells_the_given_time() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2024, 7, 26))
    assert template.render([USER]) == "26 Jul 2024"


def test_content_may_be_text_parts_or_missing() -> None:
    source = "{% for m in messages %}[{{ m['content'] + '' }}]{% endfor %}"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
    assert render(source, {"role": "user", "content": parts}, call, {"role": "x"}) == "[ab][][]"
    for part in ({"type": "image_url", "image_url": {}}, {"type": "text", "text": 1}, 7):
        with pytest.raises(ClientError, match="text only"):
            render(source, {"role": "user", "content": [part]})


def test_a_refusal_is_the_callers() -> None:
    source = "{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}"
    with pytest.raises(ClientError, match=r"^user first$") as caught:
        render(source, {"role": "system", "content": ""})
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[7].content.x }}",
        "{{ messages[0].name.strip() }}",
        "{{ 1 // 0 }}",
        "{{ messages | tojson(separators=3) }}",
        "{% include 'other' %}",
    ],
)
def test_messages_that_do_not_fit_are_the_callers(source: str) -> None:
    with pytest.raises(ClientError, match="can't render"):
        render(source)


def test_names_of_ours_stay_ours() -> None:
    with pytest.raises(ClientError, match="messages"):
        render("x", variables={"messages": []})


@pytest.mark.parametrize(
    "source",
    ["{% if %}", "{{ x | no_such_filter }}", "{{", "{% for x in y %}", "{{" + "(" * 5_000],
)
def test_a_faulty_template_is_the_models(source: str) -> None:
    with pytest.raises(ModelError, match="faulty"):
        ChatTemplate(source)


def test_a_template_has_a_largest_size() -> None:
    ChatTemplate("x" * MAX_TEMPLATE_CHARS)
    with pytest.raises(ModelError, match="characters"):
        ChatTemplate("x" * (MAX_TEMPLATE_CHARS + 1))


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__']['__base__'] }}",
        "{{ (messages | attr('__class__')).x }}",
        "{{ raise_exception.__globals__['__builtins__'] }}",
        "{{ strftime_now.__self__._sandbox }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ '{0.__class__.__base__}'.format(1) }}",
        "{{ ('{0.__class__}'.format)(1) }}",
        "{{ '{x.__class__}'.format_map({'x': 1}) }}",
        "{{ messages | map(attribute='__class__') | first | string | length / 0 }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0].pop('role') }}",
    ],
)
def test_a_template_reaches_nothing(source: str) -> None:
    messages = [dict(USER)]
    try:
        output = ChatTemplate(source).render(messages)
    except (ModelError, ClientError):
        output = ""
    assert output == ""  # jinja2 makes nothing of some forbidden names, and refuses the others
    assert messages == [USER]


GROWING = (
    "n.x ~ n.x",
    "n.x + n.x",
    "n.x | replace('a', 'aa')",
    "n.x.replace('a', 'aa')",
    "[n.x, n.x] | join",
    "''.join([n.x, n.x])",
    "'%s%s' % (n.x, n.x)",
    "'%s%s' | format(n.x, n.x)",
    "'{0}{0}'.format(n.x)",
    "double(n.x)",
)
RUNAWAYS = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999) | first }}{% endfor %}",
    "{% for i in range(999999999999) %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "{% for m in [1, 2] recursive %}{{ loop([1, 2]) }}{{ loop([1, 2]) }}{% endfor %}",
    "{{ 'a' * 999999999999 }}",
    "{{ [0] * 999999999999 }}",
    "{{ 9 ** 9 ** 9 ** 9 ** 9 }}",
    "{% set n = namespace(x=3) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%*d' % (999999999, 1) }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ '{:999999999d}'.format(1) }}",
    "{{ '{:{}d}'.format(1, 999999999) }}",
    "{{ 'x'.ljust(999999999) }}",
    "{{ 'x'.encode().center(999999999) }}",
    "{{ (1).to_bytes(999999999, 'big') }}",
    "{{ '\t'.expandtabs(999999999) }}",
    "{{ 'a\na' | indent(999999999) }}",
    "{{ 'a'.translate({97: 'b' * 9999}) }}",
    "{% for i in range(9999) %}" + "x" * 2_000 + "{% endfor %}",
    "{% set x %}{% for i in range(99999) %}" + "x" * 2_000 + "{% endfor %}{% endset %}",
    "{{ strftime_now('%999999999d') }}",
)


@pytest.mark.parametrize("source", RUNAWAYS, ids=lambda source: source[:60])
def test_a_template_does_not_run_away(source: str) -> None:
    with pytest.raises(ModelError):
        ChatTemplate(source).render([USER])


@pytest.mark.parametrize("step", GROWING)
def test_a_text_does_not_grow_without_end(step: str) -> None:
    source = (
        "{% macro double(x) %}{{ x }}{{ x }}{% endmacro %}{% set n = namespace(x='a') %}"
        "{% for i in range(60) %}{% set n.x = " + step + " %}{% endfor %}"
    )
    with pytest.raises(ModelError, match="runs away"):
        ChatTemplate(source).render([USER])


@pytest.mark.parametrize("use", ["n.x", "n.x | tojson", "n.x | string", "n.x ~ ''", "n.x | join"])
def test_lists_within_lists_are_not_written_out(use: str) -> None:
    source = (
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
        "{% endfor %}{{ " + use + " }}"
    )
    with pytest.raises(ModelError, match="runs away"):
        ChatTemplate(source).render([USER])


def test_a_runaway_template_is_the_models_fault() -> None:
    with pytest.raises(ModelError, match="runs away"):
        render("{{ 'a' * 999999999999 }}")


def test_long_honest_chats_fit() -> None:
    source = (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] "
        "+ '<|im_end|>' + '\\n' }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "x" * 400}] * 10_000
    assert len(ChatTemplate(source).render(messages)) > 4_000_000
    assert len(render(source, {"role": "user", "content": "x" * 4_000_000})) > 4_000_000


def test_bounds_belong_to_one_rendering() -> None:
    template = ChatTemplate("{% for i in range(90000) %}{% endfor %}ok")
    assert template_sandbox.MAX_ROUNDS < 90_000 * 10
    assert [template.render([USER]) for _ in range(10)] == ["ok"] * 10


@given(st.text(max_size=80))
def test_messages_are_never_templates(text: str) -> None:
    assert render("{{ messages[0]['content'] }}", {"role": "user", "content": text}) == text


@pytest.mark.parametrize("content", ["{{ 7 * 7 }}", "{% raise %}", "{{ ''.__class__ }}"])
def test_template_syntax_in_messages_is_text(content: str) -> None:
    assert render("{{ messages[0].content }}", {"role": "user", "content": content}) == content


def test_a_model_without_a_template(tmp_path: Path) -> None:
    write_synthetic(260, tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["chat_template"]
    path.write_text(json.dumps(config))
    with pytest.raises(ClientError, match="no chat template"):
        Tokenizer.load(tmp_path).render_chat([USER])
