"""Who decides or serves HTTP loads no torch: seconds of start-up and a gigabyte of memory each."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = (
    "engine.scheduler",
    "engine.block_pool",
    "engine.tokenizer",
    "engine.detokenizer",
    "engine.model_spec",
    "engine.prepared_model",
)
PACKAGES = ("core", "wire", "router", "gateway", "planner")
HEAVY = {"torch", "triton", "transformers"}

PROGRAM = """
import importlib, sys
heavy = set(sys.argv[1].split(","))
for module in sys.argv[2:]:
    importlib.import_module(module)
    loaded = heavy.intersection(sys.modules)
    if loaded:
        sys.exit(f"{module} loads {', '.join(sorted(loaded))}")
"""


def first_heavy(*modules: str) -> str:
    """What a fresh interpreter that imports `modules` in turn says about the first heavy one."""
    command = [sys.executable, "-c", PROGRAM, ",".join(sorted(HEAVY)), *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    if done.returncode:
        return done.stderr.strip() or f"exit status {done.returncode}"
    return ""


def modules_of(package: str) -> list[str]:
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__init__.py"
    ]


def test_the_light_modules_stay_light() -> None:
    light = [*NAMED, *(module for package in PACKAGES for module in modules_of(package))]
    assert first_heavy(*light) == ""


def test_a_heavy_module_would_be_noticed() -> None:
    assert first_heavy("core.ids", "torch") == "torch loads torch"
