"""The `baton` command."""

import sys
from collections.abc import Callable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from core.config import GatewayConfig
from core.environment import read_environment
from core.errors import SetupError
from launch.run_slot import running_deployments, state_dir as resolve_state_dir

EXIT_SETUP = 2

main = typer.Typer(
    name="baton",
    help="Disaggregated prefill/decode serving of LLMs that keeps its latency promises.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

StateDir = Annotated[
    str | None, typer.Option(help="Logs, caches, run files. [default: ~/.cache/baton]")
]
ApiKey = Annotated[str | None, typer.Option(help="The deployment's key; better: BATON_API_KEY.")]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]


@main.command()
def serve(
    config: Annotated[
        Path | None, typer.Option("-c", "--config", help="The scaling.yaml to serve by.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="demo, a GGUF file, a Hugging Face directory, or random:llama?layers=4."),
    ] = None,
    prefill: Annotated[int | None, typer.Option(help="Number of prefill workers.")] = None,
    decode: Annotated[int | None, typer.Option(help="Number of decode workers.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen at; beyond loopback with --api-key only.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="HTTP port; 0 picks a free one.")] = None,
    api_key: ApiKey = None,
    state_dir: StateDir = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    kv_bytes: Annotated[
        str | None, typer.Option(help="KV memory of each worker, such as 1GiB.")
    ] = None,
    max_context: Annotated[
        int | None, typer.Option(help="Longest prompt and answer together, in tokens.")
    ] = None,
    transport: Annotated[str | None, typer.Option(help="How KV moves: nixl (UCX) or tcp.")] = None,
    allow_fallback: Annotated[
        bool, typer.Option("--allow-fallback", help="Fall back to tcp where UCX doesn't work.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting: engine.max_batch=32."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="Of the log files: debug, info, warning or error.")
    ] = None,
) -> None:
    """Start a deployment on this machine and stay until Ctrl-C."""
    from launch.serve import serve as run
    from launch.serve_options import ServeOptions

    options = ServeOptions(
        config_file=config,
        model=model,
        prefill=prefill,
        decode=decode,
        host=host,
        port=port,
        api_key=api_key,
        state_dir=state_dir,
        dtype=dtype,
        kv_bytes=kv_bytes,
        max_context=max_context,
        transport=transport,
        allow_fallback=allow_fallback,
        settings=tuple(settings or ()),
        log_level=log_level,
    )
    _exit_with(lambda: run(options, read_environment(), Console()))


@main.command()
def status(state_dir: StateDir = None, as_json: Json = False) -> None:
    """List the processes of the running deployments; exit code 1 if there is none."""
    from launch.status import status as run

    _exit_with(lambda: run(_state_dir(state_dir), as_json, Console()))


@main.command()
def chat(
    url: Annotated[
        str | None, typer.Option(help="The deployment. [default: the one that runs here]")
    ] = None,
    api_key: ApiKey = None,
    model: Annotated[str, typer.Option(help="The model's name in the API.")] = "default",
    temperature: Annotated[
        float | None, typer.Option(help="0 is greedy; small models want less than 1.")
    ] = 0.3,
    state_dir: StateDir = None,
) -> None:
    """Chat in the terminal; from a pipe, each line is a turn."""
    from launch.chat import ChatSettings, chat as run

    environment = read_environment()
    where = url or environment.url or _running_url(_state_dir(state_dir))
    key = api_key or environment.api_key
    notes = Console(stderr=True)
    settings = ChatSettings(where, key, model, temperature)
    _exit_with(lambda: run(settings, sys.stdin, sys.stdout, notes))


@main.command()
def doctor(
    state_dir: StateDir = None,
    host: Annotated[str, typer.Option(help="The address to serve at.")] = GatewayConfig().host,
    port: Annotated[int, typer.Option(help="The port to serve at.")] = GatewayConfig().port,
    as_json: Json = False,
) -> None:
    """Check this machine and say how to mend what isn't right; exit code 1 on errors."""
    from launch.doctor import checks_of_this_machine, doctor as run

    root = _state_dir(state_dir)
    _exit_with(lambda: run(checks_of_this_machine(root, host, port), as_json, Console()))


@main.command()
def version() -> None:
    """Print baton's version."""
    print(installed_version("baton-serve"))


def _exit_with(action: Callable[[], int]) -> None:
    """Map the outcome to an exit code; what the operator must mend is one line, no traceback."""
    try:
        code = action()
    except SetupError as error:
        print(f"baton: {error}", file=sys.stderr)
        code = EXIT_SETUP
    raise typer.Exit(code)


def _state_dir(given: str | None) -> Path:
    return resolve_state_dir(given or read_environment().state_dir)


def _running_url(root: Path) -> str:
    """The first deployment that lives, else where one would be."""
    default = GatewayConfig()
    found = next(running_deployments(root), None)
    return found.url if found else f"http://{default.host}:{default.port}"


if __name__ == "__main__":
    main()
