import pytest
from hypothesis import given, strategies as st

from core.size import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096),
        ("1GiB", 1 << 30),
        ("1 GiB", 1 << 30),
        ("512MB", 512_000_000),
        ("1.5gib", 3 << 29),
        ("2Ti", 2 << 40),
        ("7b", 7),
    ],
)
def test_sizes_as_people_write_them(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 GiB x", "1e9", "٣", "1XB", "1..5GiB", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


def test_a_bare_letter_is_ambiguous() -> None:
    with pytest.raises(ValueError, match="write 2GiB or 2GB"):
        parse_size("2g")


@given(st.integers(0, 1 << 50))
def test_a_number_of_bytes_is_itself(size_bytes: int) -> None:
    assert parse_size(str(size_bytes)) == size_bytes


def test_formats() -> None:
    assert format_size(1 << 30) == "1 GiB"
    assert format_size(3 << 29) == "1.5 GiB"
    assert format_size(1023) == "1023 B"
    assert format_size(1 << 43) == "8 TiB"
