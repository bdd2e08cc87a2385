"""The model's names and limits."""

from pathlib import Path

import pytest

from core.config import ModelConfig
from core.errors import ModelError, UnknownModel
from engine.prepared_model import prepare_model
from gateway.served_model import ServedModel


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = "random:llama?layers=1,hidden=16,heads=2,kv_heads=1,vocab=300,max_context=512"
    cache = tmp_path_factory.mktemp("prepared")
    return prepare_model(source, "float32", cache, lambda *_: None).path


def test_what_the_configuration_says_of_it(prepared: Path) -> None:
    plain = ServedModel.open(prepared, ModelConfig(), 7)
    assert (plain.max_context, plain.vocab, plain.created_s) == (512, 300, 7)
    plain.require(plain.name)
    named = ServedModel.open(prepared, ModelConfig(served_name="mine", max_context=100), 7)
    assert (named.name, named.max_context) == ("mine", 100)
    with pytest.raises(UnknownModel):
        named.require(plain.name)
    beyond = ServedModel.open(prepared, ModelConfig(max_context=10_000), 7)
    assert beyond.max_context == 512, "a model can't see farther than it was made to"


def test_a_directory_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        ServedModel.open(tmp_path, ModelConfig(), 7)
