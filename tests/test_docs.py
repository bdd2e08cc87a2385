"""What the documentation says about the code is so."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from core.config import Config
from tests import lifecycle_tables
from wire.messages import MESSAGES

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda path: path.as_posix()
)


def test_the_life_cycles_page_is_drawn_from_todays_tables() -> None:
    drawn = (ROOT / "docs/lifecycles.md").read_text()
    assert drawn == lifecycle_tables.page(), (
        "draw it again: python -m tests.lifecycle_tables > docs/lifecycles.md"
    )


def test_the_architecture_page_names_every_message_once() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split("## Who says what to whom")[1].split("\n## ")[0]
    named = re.findall(r"^\| (\w+) \|", section, re.MULTILINE)[1:]
    assert named == [cls.__name__ for cls in MESSAGES.values()]


def test_every_dependency_is_accounted_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(line for extra in extras for line in extra)]
    names = {re.split(r"[=<>~ ]", line, maxsplit=1)[0] for line in wanted}
    page = (ROOT / "docs/dependencies.md").read_text()
    assert not [name for name in sorted(names) if not re.search(rf"\b{re.escape(name)}\b", page)]


def test_the_readmes_configuration_is_one() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        Config.model_validate(yaml.safe_load(block))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    broken = [
        target
        for target in targets
        if not re.match(r"https?:", target) and not (page.parent / target).exists()
    ]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text())
    assert not [name for name in named if not (ROOT / name).exists()]
