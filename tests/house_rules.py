"""The rules of the house that no linter knows, each a function `(path, text) -> findings`.

`tests/test_house_rules.py` applies them to every file, and feeds each a file that breaks it.
A finding is one line, `path:line: what is wrong`.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

BROAD_EXCEPTS_ALLOWED = {
    "engine/fast_tokenizer.py": "what the Rust tokenizer raises has no narrower class",
    "gateway/dispatcher.py": "the outermost loop of a request: its bug ends that request",
    "gateway/errors.py": "the outermost loop of an HTTP request",
    "launch/role_main.py": "the outermost loop of a process",
    "router/process.py": "the outermost loop of the router",
}
"""Where `except Exception` may stand, and why: outermost loops, foreign code without a tree."""

ENVIRONMENT_ALLOWED = {"core/environment.py"}

PURE_MODULES = (
    r"core/(?!clock|environment|config_file|ids)\w+\.py",
    r"engine/(scheduler|block_pool|block_tables|sequence|events|actions|step_plan|step_builder"
    r"|growth|group_\w+|admission|finish)\.py",
    r"kv_transfer/(send_session|receive_session|events|actions|node_actions|note)\.py",
    r"router/(?!process)\w+\.py",
    r"gateway/(request_session|session_\w+|attempt_state|choice_stream|stop_strings)\.py",
    r"planner/\w+\.py",
    r"wire/(codec|field_codec|messages|message_parts)\.py",
)
"""Objects that decide: events and `now_s` in, actions out."""
EDGE_IMPORTS = {
    "aiohttp",
    "asyncio",
    "random",
    "select",
    "selectors",
    "socket",
    "subprocess",
    "threading",
    "time",
    "torch",
    "zmq",
}

_UNSAFE_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
_UNSAFE_CALLS = {"eval", "exec", "__import__"}
_UNSAFE_ATTRIBUTES = {"torch.load", "yaml.load", "yaml.unsafe_load", "jinja2.Template"}
_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

Findings = list[str]
Rule = Callable[[str, str], Findings]


def file_length(path: str, text: str) -> Findings:
    lines = text.count("\n")
    return [f"{path}:1: {lines} lines; {MAX_FILE_LINES} at most"] if lines > MAX_FILE_LINES else []


def function_length(path: str, text: str) -> Findings:
    return [
        f"{path}:{_line(node)}: {node.name} has {lines} lines; {MAX_FUNCTION_LINES} at most"
        for node in _nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def empty_init(path: str, text: str) -> Findings:
    if path.endswith("__init__.py") and text.strip():
        return [f"{path}:1: package __init__ files are empty"]
    return []


def broad_except(path: str, text: str) -> Findings:
    if path in BROAD_EXCEPTS_ALLOWED:
        return []
    return [
        f"{path}:{_line(node)}: catches everything; name what you expect"
        for node in _nodes(text)
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type)
    ]


def environment(path: str, text: str) -> Findings:
    if path in ENVIRONMENT_ALLOWED or path.startswith("tests/"):
        return []
    names = {"environ", "environb", "getenv", "putenv", "unsetenv"}
    return [
        f"{path}:{_line(node)}: only core/environment.py reads environment variables"
        for node in _nodes(text)
        if (isinstance(node, ast.Attribute) and _dotted(node) in {f"os.{name}" for name in names})
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and any(alias.name in names for alias in node.names)
        )
    ]


def unsafe_code(path: str, text: str) -> Findings:
    found = []
    for node in _nodes(text):
        for module in _imported(node):
            if module.split(".")[0] in _UNSAFE_IMPORTS:
                found.append(f"{path}:{_line(node)}: {module} runs what it reads")
        if not isinstance(node, ast.Call):
            continue
        name = _dotted(node.func)
        if name in _UNSAFE_CALLS or name in _UNSAFE_ATTRIBUTES:
            found.append(f"{path}:{_line(node)}: {name}() runs what it is given")
        if any(keyword.arg == "allow_pickle" for keyword in node.keywords):
            found.append(f"{path}:{_line(node)}: allow_pickle runs what it reads")
    return found


def unfinished(path: str, text: str) -> Findings:
    return [
        f"{path}:{token.start[0]}: {match.group()} in a comment: do it or open an issue"
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and (match := _UNFINISHED.search(token.string))
    ]


def purity(path: str, text: str) -> Findings:
    if not any(re.fullmatch(pattern, path) for pattern in PURE_MODULES):
        return []
    return [
        f"{path}:{_line(node)}: a pure module imports {module}; take time and I/O as arguments"
        for node in _nodes(text)
        for module in _imported(node)
        if module.split(".")[0] in EDGE_IMPORTS
    ]


def sleeping_test(path: str, text: str) -> Findings:
    """`time.sleep` blocks the loop and hides a race; await the event instead."""
    if not re.search(r"(^|/)test_\w+\.py$", path):
        return []
    return [
        f"{path}:{_line(node)}: a test sleeps; wait for what you mean"
        for node in _nodes(text)
        if isinstance(node, ast.Call) and _dotted(node.func) == "time.sleep"
    ]


def bench_figures(path: str, text: str) -> Findings:
    """A bench is a program; one that measures without printing a figure says nothing."""
    if not re.fullmatch(r"bench/(\w+/)*\w+\.py", path) or "__main__" not in text:
        return []
    calls = {_dotted(node.func) for node in _nodes(text) if isinstance(node, ast.Call)}
    if {"report", "figures.report"} & calls:
        return []
    return [f"{path}:1: this bench prints no figure; call bench.figures.report"]


def defines_behaviour(text: str) -> bool:
    """Whether a module has functions of its own: only those need a test file."""
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in _nodes(text))


RULES: tuple[Rule, ...] = (
    file_length,
    function_length,
    empty_init,
    broad_except,
    environment,
    unsafe_code,
    unfinished,
    purity,
    sleeping_test,
    bench_figures,
)


def _nodes(text: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(text))


def _is_broad(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(item) for item in kind.elts)
    return _dotted(kind).split(".")[-1] in {
        "Exception",
        "BaseException",
        "ExceptionGroup",
        "BaseExceptionGroup",
    }


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)
