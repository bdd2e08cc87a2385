"""A jinja2 sandbox for the chat templates that come with models.

jinja2's ImmutableSandboxedEnvironment keeps a template away from the system; the bounds here keep
it from eating the gateway: so many loop rounds and calls per rendering, so many characters built.
The syntax tree is rewritten once, at compilation, so that loops, `~` and output pass through
functions that count. An ordinary chat stays far below every bound.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_ROUNDS = 250_000
"""Loop rounds and calls of one rendering."""
MAX_CHARS = 1 << 24
"""Of the output, and of any one text or list built on the way."""
MAX_CHARS_TOTAL = 1 << 27
"""Of all of those together."""
_MAX_INT_BITS = 4_096
_MAX_ELEMENTS = 1 << 20
_NOT_ALLOWED = MAX_CHARS + 1
_WIDE_FIELD = re.compile(r"\d{5,}|\*|:[^{}]*\{")
"""A printf or format field whose width is huge or given by a value."""
_REMOVED_FILTERS = [
    "batch",
    "center",
    "pprint",
    "random",
    "slice",
    "sum",
    "urlize",
    "wordwrap",
    "xmlattr",
]
"""They can make much out of little, and no chat template needs them."""


class TemplateOverrun(SecurityError):
    """The template computes more than any chat template needs."""


@dataclass(slots=True)
class _Budget:
    rounds: int = MAX_ROUNDS
    chars: int = MAX_CHARS_TOTAL


_budget: ContextVar[_Budget] = ContextVar("budget of the rendering")


def _spend_rounds(rounds: int) -> None:
    budget = _budget.get()
    budget.rounds -= rounds
    if budget.rounds < 0:
        raise TemplateOverrun(f"it takes more than {MAX_ROUNDS} loop rounds and calls")


def _spend_chars(size: int) -> None:
    if size > MAX_CHARS:
        raise TemplateOverrun(f"it builds a text or list of more than {MAX_CHARS} elements")
    budget = _budget.get()
    budget.chars -= size
    if budget.chars < 0:
        raise TemplateOverrun(f"it builds more than {MAX_CHARS_TOTAL} characters in all")


class _Counting(NodeTransformer):
    """Puts counting filters around what loops iterate over, what `~` joins and what is put out."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - jinja2's naming
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_counted")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.Tuple(node.nodes, "load", lineno=node.lineno), "_joined")

    def visit_Output(self, node: nodes.Output) -> nodes.Output:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(part, "_emitted") for part in node.nodes]
        return node


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks the assistant's part for training:
    here its body alone."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class BoundedSandbox(ImmutableSandboxedEnvironment):
    """The environment of one template: `compile_bounded`, then `render` as often as wanted."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, filters: Mapping[str, Any], functions: Mapping[str, Any]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        for name in _REMOVED_FILTERS:
            del self.filters[name]
        for name, size in _FILTER_SIZES.items():
            self.filters[name] = _sized(self.filters[name], size)
        for name, function in filters.items():
            self.filters[name] = _sized(function, lambda value, **_: _text_size(value))
        self.filters |= {"_counted": _counted, "_joined": _joined, "_emitted": _emitted}
        del self.globals["lipsum"]
        self.globals |= {"range": _counted_range, **functions}

    def compile_bounded(self, source: str) -> jinja2.Template:
        """Raises jinja2.TemplateSyntaxError (and its kin) for a faulty template."""
        tree: nodes.Template = _Counting().visit(self.parse(source))
        return self.from_string(tree)

    def render(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """The output. Raises TemplateOverrun beyond the bounds, and whatever the template does."""
        mark = _budget.set(_Budget())
        try:
            text = template.render(**variables)
            _spend_chars(len(text))
            return text
        finally:
            _budget.reset(mark)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        _spend_rounds(1)
        method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, (str, bytes, int)):
            # jinja2 hands its own `_loop_vars` and `_block_vars` along.
            named = {name: value for name, value in kwargs.items() if name[0] != "_"}
            for value in (*args, *named.values()):
                if isinstance(value, int):  # a width, a length, or harmless
                    _spend_chars(max(value, 0))
            size = _METHOD_SIZES.get(method.__name__)
            if size is not None:
                _spend_chars(size(owner, *args, **named))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _spend_chars(_operation_size(operator, left, right))
        return super().call_binop(context, operator, left, right)


def _counted(values: Any) -> Any:
    """`values`, each costing a round; what has a length keeps it, for `loop.length`."""
    if hasattr(values, "__len__"):
        _spend_rounds(len(values))
        return values
    return _counted_lazily(values) if isinstance(values, Iterable) else values


def _counted_lazily(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _spend_rounds(1)
        yield value


def _counted_range(*args: int) -> range:
    numbers = range(*args)
    _spend_rounds(len(numbers))
    return numbers


def _joined(parts: tuple[Any, ...]) -> str:
    _spend_chars(sum(map(_text_size, parts)))
    return "".join(map(str, parts))


def _emitted(value: Any) -> str:
    _spend_chars(_text_size(value))
    return str(value)


def _text_size(value: Any) -> int:
    """About the length of `str(value)` or its JSON, without making it: lists may hold one
    another many times over."""
    size, elements, todo = 0, 0, [value]
    while todo:
        item = todo.pop()
        elements += 1
        if elements > _MAX_ELEMENTS:
            return _NOT_ALLOWED
        if isinstance(item, (str, bytes)):
            size += len(item) + 2
        elif isinstance(item, Mapping):
            size += 2
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            size += 2
            todo += item
        else:
            size += 8
    return size


def _operation_size(operator: str, left: Any, right: Any) -> int:
    """Upper bound of the elements in `left operator right`."""
    if operator == "%" and isinstance(left, (str, bytes)):
        return _format_size(left, right)
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length()
        return 0 if bits + right.bit_length() <= _MAX_INT_BITS else _NOT_ALLOWED
    sizes = [len(side) for side in (left, right) if isinstance(side, (str, bytes, list, tuple))]
    if operator == "*" and sizes:
        count = next((side for side in (left, right) if isinstance(side, int)), 0)
        return sizes[0] * max(count, 0)
    return sum(sizes)


def _format_size(template: str | bytes, *values: Any, **named: Any) -> int:
    text = template if isinstance(template, str) else template.decode("latin-1")
    fields = text.count("{") + text.count("%")
    largest = max(map(_text_size, (*values, *named.values())), default=0)
    return _NOT_ALLOWED if _WIDE_FIELD.search(text) else len(text) + fields * largest


def _replace_size(text: Any, old: Any, new: Any, _count: int = -1) -> int:
    if isinstance(text, bytes):
        return len(text) + text.count(old) * len(new)
    return _text_size(text) + str(text).count(str(old)) * len(str(new))


def _join_size(separator: Any, parts: Any) -> int:
    if not hasattr(parts, "__len__"):  # lazily made: its size can't be known before
        return 0
    return _text_size(list(parts)) + len(parts) * len(separator)


def _expand_size(text: str | bytes, tabsize: int = 8) -> int:
    tabs = text.count("\t") if isinstance(text, str) else text.count(b"\t")
    return len(text) + tabs * tabsize


def _indent_size(text: str, width: int | str = 4, *_more: Any, **_named: Any) -> int:
    return len(text) + (text.count("\n") + 1) * (width if isinstance(width, int) else len(width))


_METHOD_SIZES: Mapping[str, Callable[..., int]] = {
    "format": _format_size,
    "format_map": _format_size,
    "replace": _replace_size,
    "expandtabs": _expand_size,
    "join": _join_size,
    "translate": lambda *_: _NOT_ALLOWED,
}
_FILTER_SIZES: Mapping[str, Callable[..., int]] = {
    "format": _format_size,
    "indent": _indent_size,
    "join": lambda parts, d="", *_more, **_named: _join_size(d, parts),
    "replace": lambda text, old, new, *_more: _replace_size(text, old, new),
    "string": lambda value: _text_size(value),
}


def _sized(function: Any, size: Callable[..., int]) -> Any:
    """A filter that pays for its result before making it. Keeps jinja2's mark on filters that
    take the context or the environment as first argument."""
    taken = int(hasattr(function, "jinja_pass_arg"))

    def paying(*args: Any, **kwargs: Any) -> Any:
        _spend_chars(size(*args[taken:], **kwargs))
        return function(*args, **kwargs)

    if taken:
        paying.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
    return paying
