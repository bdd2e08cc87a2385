"""Templates in the styles models come with, rendered as transformers renders them."""

from typing import Any

import pytest

from engine.chat_template import ChatTemplate

QWEN_STYLE = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and not message.content.startswith('<x>') %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" and '</think>' in message.content %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
        {{- '<|im_start|>' ~ message.role ~ '\n' ~ content.strip() ~ '<|im_end|>\n' }}
    {%- elif message.role == "assistant" and message.tool_calls %}
        {{- '<|im_start|>' + message.role }}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
            {{- '\n{"name": "' + call.name + '", "arguments": ' + call.arguments | tojson + '}' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

LLAMA_STYLE = r"""
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\nToday Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- set arguments = message.tool_calls[0].function.arguments %}
        {%- for name, value in arguments | items %}{{ name + '="' ~ value ~ '"' }}
            {%- if not loop.last %}{{ ", " }}{%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endfor %}
{%- if tools is not none %}{{ tools[0] | tojson(indent=4) }}{%- endif %}
"""

MISTRAL_STYLE = r"""
{%- macro turn(role, text) -%}
  {% if role == 'user' %}[INST] {{ text }} [/INST]{% else %} {{ text }}{{ eos_token }}{% endif %}
{%- endmacro -%}
{{ bos_token }}
{%- set loop_messages = messages | rejectattr('role', 'equalto', 'system') | list -%}
{%- for message in loop_messages if message['content'] -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- '!' * 2 -}}
    {%- endif -%}
    {{ turn(message['role'], message['content'] | replace('\n', ' ')) }}
{%- endfor -%}
{%- set names = messages | map(attribute='role') | unique | sort | join(',') -%}
{{ names | upper }}{{ "%s of %d" | format("x", 3) }}{{ names is string and names is not mapping }}
"""

SYSTEM = {"role": "system", "content": "  Be brief. "}
USER = {"role": "user", "content": "What's\n2 < 3 & é?\n"}
THOUGHT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes. "}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "b": "<ü>"}}}],
}
TOOL = {"type": "function", "function": {"name": "f", "description": "ünïcode <b> 'quoted'"}}


@pytest.mark.parametrize("source", [QWEN_STYLE, LLAMA_STYLE, MISTRAL_STYLE])
@pytest.mark.parametrize(
    "messages", [[USER], [SYSTEM, USER], [SYSTEM, USER, THOUGHT, USER], [USER, CALL, USER]]
)
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_rendered_as_transformers_does(
    source: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    for variables in ({}, {"enable_thinking": False, "date_string": "1 Jan 2030"}):
        rendered, _ = utils.render_jinja_template(
            conversations=[messages],
            tools=tools,
            chat_template=source,
            add_generation_prompt=True,
            **names,
            **variables,
        )
        ours = ChatTemplate(source, names).render(messages, tools=tools, variables=variables)
        assert ours == rendered[0]
