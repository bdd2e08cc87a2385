"""A step's tensors from plain lists."""

import pytest
import torch

from engine.models.forward_batch import make_forward_batch


def test_a_step_of_three_sequences() -> None:
    batch = make_forward_batch([[7], [1, 2, 3], [9, 9]], [31, 0, 16], [[4, 2], [0], [1, 3]], [0, 3])
    assert batch.tokens.tolist() == [7, 1, 2, 3, 9, 9]
    assert batch.positions.tolist() == [31, 0, 1, 2, 16, 17]
    assert batch.query_starts.tolist() == [0, 1, 4, 6]
    assert batch.context_lengths.tolist() == [32, 3, 18]
    assert batch.block_tables.tolist() == [[4, 2], [0, 0], [1, 3]]
    assert batch.logit_rows.tolist() == [0, 3]
    assert batch.block_tables.dtype == torch.int64


def test_a_sequence_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        make_forward_batch([[1], []], [0, 3], [[0], [1]], [0])


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        make_forward_batch([[1], [2]], [0], [[0], [1]], [0])
