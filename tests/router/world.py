"""Cards, configurations and routes for the router's tests."""

from collections.abc import Iterable

from core.config import Config, MatchConfig, PoolConfig, PoolRole
from core.cost_model import CostModel, DecodeCost, PrefillCost, TransferCost
from core.ids import Attempt, Epoch, Incarnation, ProcessId, RequestId, WorkerName
from core.kv_layout import KvLayout
from core.slo import Slo
from router.events import Action, FromPeer, Send
from router.router import Router
from wire.messages import (
    Heartbeat,
    Message,
    Peer,
    Register,
    Role,
    Route,
    RoutePath,
    WorkerCard,
    WorkerLoad,
)

LAYOUT = KvLayout(layers=2, kv_heads=2, head_dim=8, block_tokens=16, dtype="float32")
COST = CostModel(
    prefill=PrefillCost(base_s=0.01, per_token_s=0.001),
    decode=DecodeCost(base_s=0.02, per_sequence_s=0.001, per_context_token_s=1e-6),
    transfer=TransferCost(latency_s=0.001, bytes_per_s=1e9),
)
ROLES = {"prefill": (Role.PREFILL,), "decode": (Role.DECODE,), "both": (Role.PREFILL, Role.DECODE)}
ROUTER = ProcessId(WorkerName("router"), Incarnation(1))
LAUNCHER = ProcessId(WorkerName("launcher"), Incarnation(1))
GATEWAY = Peer(ProcessId(WorkerName("gateway"), Incarnation(1)), "tcp://gateway")


def process(name: str, incarnation: int = 1) -> ProcessId:
    return ProcessId(WorkerName(name), Incarnation(incarnation))


def address_of(who: ProcessId) -> str:
    return f"tcp://{who.name}:{who.incarnation}"


def card(
    name: str,
    incarnation: int = 1,
    *,
    pool: str | None = None,
    roles: tuple[Role, ...] | None = None,
    fingerprint: str = "f1",
    model: str = "m",
    layout: KvLayout = LAYOUT,
    blocks: int = 100,
    max_context: int = 4_096,
    transport: str = "nixl",
    cost: CostModel = COST,
) -> WorkerCard:
    """A worker called `<pool>-<number>`, unless told otherwise."""
    pool = pool or name.rsplit("-", 1)[0]
    who = process(name, incarnation)
    return WorkerCard(
        peer=Peer(who, address_of(who)),
        pool=pool,
        roles=ROLES[pool.split("-")[0]] if roles is None else roles,
        model=model,
        fingerprint=fingerprint,
        max_context=max_context,
        layout=layout,
        blocks_total=blocks,
        transport=transport,
        cost=cost,
    )


def pool(
    name: str, role: str | None = None, low: int = 0, high: int | None = None, replicas: int = 1
) -> PoolConfig:
    return PoolConfig(
        name=name,
        role=PoolRole(role or name.split("-")[0]),
        replicas=replicas,
        match=MatchConfig(min_prompt_tokens=low, max_prompt_tokens=high),
    )


def config(*pools: PoolConfig, max_context: int | None = None, **router: float) -> Config:
    tree: dict[str, object] = {"router": router, "model": {"max_context": max_context}}
    if pools:
        tree["pools"] = pools
    return Config.model_validate(tree)


def route(
    request: str = "r",
    *,
    epoch: int = 1,
    prompt: int = 200,
    max_tokens: int = 16,
    choices: int = 1,
    path: RoutePath = RoutePath.ANY,
    avoid: tuple[ProcessId, ...] = (),
    deadline_ms: float = 60_000.0,
    gateway: Peer = GATEWAY,
) -> Route:
    return Route(
        attempt=Attempt(RequestId(request), Epoch(epoch)),
        gateway=gateway,
        prompt_tokens=prompt,
        max_tokens=max_tokens,
        choices=choices,
        slo=Slo(),
        deadline_left_ms=deadline_ms,
        path=path,
        avoid=avoid,
    )


def register(of: WorkerCard) -> FromPeer:
    return FromPeer(of.peer.process, Register(of))


def beat(of: WorkerCard, load: WorkerLoad | None = None) -> FromPeer:
    load = load or WorkerLoad(blocks_free=of.blocks_total)
    return FromPeer(of.peer.process, Heartbeat(load, of.peer.address))


def ask(wanted: Route) -> FromPeer:
    return FromPeer(wanted.gateway.process, wanted)


def router_with(cards: Iterable[WorkerCard], tree: Config | None = None) -> Router:
    """A router whom these workers have joined at 0 s."""
    router = Router(process=ROUTER, config=tree or config())
    for each in cards:
        router.handle(register(each), 0.0)
    return router


def sent(actions: Iterable[Action], kind: type[Message]) -> list[tuple[str, Message]]:
    """(address, message) of every message of this class."""
    return [
        (a.address, a.message) for a in actions if isinstance(a, Send) and type(a.message) is kind
    ]
