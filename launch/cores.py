"""Who runs on which CPU cores: prefill and decode apart, so that neither spoils the other's time.

Decode's latency must be deterministic, so a decode worker has a core to itself where there is one;
prefill is throughput and shares what is left, together with the gateway and the router.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.config import PoolConfig, PoolRole
from core.errors import ConfigError

Cores = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CorePlan:
    """CPU core numbers, ascending and never empty; `workers` by worker name (`prefill-0`)."""

    router: Cores
    gateway: Cores
    workers: Mapping[str, Cores]


def worker_names(pool: PoolConfig) -> tuple[str, ...]:
    """The names of a pool's workers: `decode-0`, `decode-1`, ..."""
    return tuple(f"{pool.name}-{index}" for index in range(pool.replicas))


def deal_cores(available: Sequence[int], pools: Sequence[PoolConfig]) -> CorePlan:
    """Deal `available` (the process's own affinity mask; at least one core) to the pools' workers.

    A pool with `cores` gets those, and no other pool does as long as something else is left. With
    one core everything is there. Workers of role `both` count as decode workers.

    Raises:
        ConfigError: a pool names a core that isn't available.
    """
    everything = tuple(sorted(set(available)))
    workers = _named_cores(everything, pools)
    named = {core for cores in workers.values() for core in cores}
    free = tuple(core for core in everything if core not in named) or everything
    automatic = [pool for pool in pools if pool.cores is None]
    prefill = _names(automatic, decode=False)
    decode = _names(automatic, decode=True)
    decode_cores, prefill_cores = _split(free, len(decode), len(prefill), has_named=bool(named))
    workers.update(_deal(decode, decode_cores))
    workers.update(_deal(prefill, prefill_cores))
    services = _service_cores(everything, pools, workers)
    return CorePlan(router=services, gateway=services, workers=workers)


def _named_cores(available: Cores, pools: Sequence[PoolConfig]) -> dict[str, Cores]:
    workers: dict[str, Cores] = {}
    for index, pool in enumerate(pools):
        if pool.cores is None:
            continue
        missing = sorted(set(pool.cores) - set(available))
        if missing or not pool.cores:
            problem = f"core {missing[0]} isn't available" if missing else "no core is named"
            raise ConfigError(
                f"pools[{index}].cores",
                f"{problem}; this process may use {format_cores(available)}",
            )
        workers.update(_deal(worker_names(pool), tuple(sorted(set(pool.cores)))))
    return workers


def _names(pools: Sequence[PoolConfig], *, decode: bool) -> list[str]:
    return [
        name
        for pool in pools
        if (pool.role is not PoolRole.PREFILL) is decode
        for name in worker_names(pool)
    ]


def _split(free: Cores, decode: int, prefill: int, *, has_named: bool) -> tuple[Cores, Cores]:
    """(decode's cores, prefill's): the upper ones to decode, interrupts tend to hit the lower."""
    if len(free) == 1 or not decode:
        return free, free
    if prefill:
        exclusive = min(decode, len(free) - 1)
        return free[-exclusive:], free[:-exclusive]
    # Nobody prefills here: one core is kept for the gateway and the router, unless another
    # pool's named cores can take them.
    return (free if has_named else free[1:]), free


def _deal(names: Sequence[str], cores: Cores) -> dict[str, Cores]:
    """Even, contiguous shares; with fewer cores than names, one core each, in turn."""
    if not names:
        return {}
    if len(cores) < len(names):
        return {name: (cores[index % len(cores)],) for index, name in enumerate(names)}
    small, larger = divmod(len(cores), len(names))
    shares, start = {}, 0
    for index, name in enumerate(names):
        end = start + small + (index < larger)
        shares[name] = cores[start:end]
        start = end
    return shares


def _service_cores(
    available: Cores, pools: Sequence[PoolConfig], workers: Mapping[str, Cores]
) -> Cores:
    """For gateway and router: prefill's cores, else any that isn't decode's, else all."""
    decode = {core for name in _names(pools, decode=True) for core in workers[name]}
    prefill = {core for name in _names(pools, decode=False) for core in workers[name]}
    return tuple(sorted(prefill - decode or set(available) - decode or set(available)))


def format_cores(cores: Sequence[int]) -> str:
    """`(0, 1, 2, 5)` → `0-2,5`, as `taskset` writes it."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
