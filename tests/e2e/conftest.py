"""Deployments that several tests share: starting one costs seconds."""

from collections.abc import Iterator

import pytest

from tests.e2e.running import RANDOM_MODEL, Running, deployment


@pytest.fixture(scope="session")
def disaggregated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One prefill and one decode worker; every prompt goes through the transfer."""
    with deployment(
        tmp_path_factory.mktemp("disaggregated"),
        *("--model", RANDOM_MODEL, "--kv-bytes", "64MiB"),
        *("--set", "router.local_prefill_tokens=0"),
    ) as running:
        yield running
