import time
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings, strategies as st

from core.errors import BugError, FrameTooLarge, MalformedMessage, VersionMismatch
from core.ids import Attempt, Epoch, Incarnation, ProcessId, RequestId, WorkerName
from core.request import Request
from core.sampling import SamplingParams
from core.slo import Slo
from tests.wire.message_strategies import ANY_MESSAGE, SENDERS, records_of
from wire.codec import MAX_FRAME_BYTES, WIRE_VERSION, decode, encode
from wire.messages import (
    MESSAGES,
    Cancel,
    KvRenew,
    PrefillReport,
    Reregister,
    Stage,
    Submit,
    Tokens,
)

ME = ProcessId(WorkerName("decode-0"), Incarnation(7))
ATTEMPT = Attempt(RequestId("req-1"), Epoch(1))
CANCEL = Cancel(ATTEMPT, "client gone")
CANCEL_ITEMS = [WIRE_VERSION, 16, "decode-0", 7, ["req-1", 1], "client gone"]


def a_request(prompt: tuple[int, ...], deadline_left_ms: float = 1e3) -> Request:
    return Request(
        attempt=ATTEMPT,
        prompt=prompt,
        sampling=SamplingParams(),
        slo=Slo(),
        deadline_left_ms=deadline_left_ms,
    )


def submit_items() -> list[Any]:
    """A Submit's frame as plain arrays, to be spoilt."""
    peer = [["gateway", 1], "tcp://127.0.0.1:1"]
    sampling = [1.0, 0, 1.0, 0.0, 0, 1.0, 0.0, 0.0, [], [], 0, 16, False, None, 1]
    slo = ["standard", 2e3, 1e2, 6e5]
    request = [["req-1", 1], [1, 2], [], sampling, slo, 1e3, "", ""]
    return [WIRE_VERSION, 15, "gateway", 1, request, peer, None]


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=lambda cls: cls.__name__)
def test_every_message_survives_the_wire(cls: type[Any]) -> None:
    @settings(max_examples=20)
    @given(SENDERS, records_of(cls))
    def check(sender: ProcessId, message: Any) -> None:
        frame = encode(sender, message)
        assert decode(frame) == (sender, message)
        assert type(decode(frame)[1]) is cls

    check()


def test_a_frame_is_the_documented_array() -> None:
    assert msgpack.unpackb(encode(ME, CANCEL)) == CANCEL_ITEMS
    assert decode(msgpack.packb(submit_items()))[1].request.prompt == (1, 2)


def test_tags_are_never_reused_and_every_class_has_one() -> None:
    assert len(set(MESSAGES.values())) == len(MESSAGES)
    assert all(1 <= tag < 1 << 16 for tag in MESSAGES)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_no_bytes_whatever_raise_anything_else(noise: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(noise)


@settings(max_examples=300)
@given(ANY_MESSAGE, st.data())
def test_spoilt_frames_decode_or_are_malformed(message: Any, data: st.DataObject) -> None:
    frame = bytearray(encode(ME, message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(frame) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                frame[at] = data.draw(st.integers(0, 255))
            case "cut" if len(frame) > 1:
                del frame[at : at + data.draw(st.integers(1, 4))]
            case _:
                frame[at:at] = data.draw(st.binary(max_size=4))
        if not frame:
            break
    try:
        _, decoded = decode(bytes(frame))
    except MalformedMessage:
        return
    assert type(decoded) in MESSAGES.values()


WIRE_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.sampled_from(sorted(MESSAGES)), st.lists(WIRE_VALUES, max_size=8))
def test_well_formed_nonsense_decodes_or_is_malformed(tag: int, fields: list[Any]) -> None:
    try:
        _, decoded = decode(msgpack.packb([WIRE_VERSION, tag, "x", 1, *fields]))
    except MalformedMessage:
        return
    assert type(decoded) is MESSAGES[tag]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda items: items.append(0), "array of 3"),
        (lambda items: items.pop(), "array of 3"),
        (lambda items: items.__setitem__(1, 0), "unknown tag 0"),
        (lambda items: items.__setitem__(1, 9_999), "unknown tag"),
        (lambda items: items.__setitem__(1, True), "unknown tag"),
        (lambda items: items.__setitem__(2, b"gateway"), "no sender"),
        (lambda items: items.__setitem__(3, 1.0), "no sender"),
        (lambda items: items[4][0].__setitem__(1, True), r"Request.attempt: Attempt.epoch: int"),
        (lambda items: items[4][0].__setitem__(0, 5), r"Attempt.request: str expected, not int"),
        (lambda items: items[4].__setitem__(1, [1, True]), "Request.prompt: array of int"),
        (lambda items: items[4].__setitem__(1, [1, 2.0]), "Request.prompt: array of int"),
        (lambda items: items[4].__setitem__(5, 1_000), "deadline_left_ms: float expected, not int"),
        (lambda items: items[4].__setitem__(5, float("nan")), "deadline_left_ms: NaN"),
        (lambda items: items[4].__setitem__(2, [[1], "x"]), "Request.generated: array of int"),
        (lambda items: items[4][3].__setitem__(0, -1.0), "SamplingParams: temperature must be"),
        (lambda items: items[4][3].__setitem__(8, [[1]]), "logit_bias: array of 2"),
        (lambda items: items[4][3].__setitem__(12, 1), "ignore_eos: bool expected, not int"),
        (lambda items: items[4][4].__setitem__(1, -1.0), "Slo: slo.ttft_ms must be"),
        (lambda items: items.__setitem__(5, None), "Submit.gateway: Peer is an array of 2"),
    ],
)
def test_one_wrong_thing_is_named(spoil: Any, says: str) -> None:
    items = submit_items()
    spoil(items)
    with pytest.raises(MalformedMessage, match=says):
        decode(msgpack.packb(items))


def test_an_unknown_enum_value_is_malformed() -> None:
    frame = msgpack.packb([WIRE_VERSION, 17, "decode-0", 7, ["req-1", 1], "halfway"])
    with pytest.raises(MalformedMessage, match=f"'halfway' is no {Stage.__name__}"):
        decode(frame)


def test_trailing_bytes_and_truncation_are_malformed() -> None:
    frame = encode(ME, CANCEL)
    for spoilt in (frame + b"\x00", frame[:-1], b""):
        with pytest.raises(MalformedMessage):
            decode(spoilt)


@pytest.mark.parametrize("version", [0, WIRE_VERSION + 1, True, "1", None])
def test_another_version_is_told_apart(version: object) -> None:
    with pytest.raises(VersionMismatch):
        decode(msgpack.packb([version, *CANCEL_ITEMS[1:]]))


def test_size_is_limited_both_ways() -> None:
    with pytest.raises(FrameTooLarge):
        decode(bytes(MAX_FRAME_BYTES + 1))
    with pytest.raises(FrameTooLarge):
        encode(ME, Cancel(ATTEMPT, "x" * MAX_FRAME_BYTES))


@pytest.mark.parametrize(
    "message",
    [
        object(),
        ATTEMPT,
        Cancel,
        Cancel(ATTEMPT, 5),  # type: ignore[arg-type]
        Cancel(ATTEMPT, "\ud800"),
        KvRenew(("req-1", 1)),  # type: ignore[arg-type]
        KvRenew(Attempt(RequestId("r"), Epoch(1 << 64))),
        KvRenew(Attempt(RequestId("r"), Epoch(True))),
        Tokens([]),  # type: ignore[arg-type]
        Submit(request=a_request((1, 2.0)), gateway=None, prefill=None),  # type: ignore[arg-type]
        PrefillReport(attempt=ATTEMPT, queue_ms=float("nan"), prefill_ms=0.0, cached_tokens=0),
    ],
)
def test_what_is_no_message_is_our_own_bug(message: object) -> None:
    with pytest.raises(BugError):
        encode(ME, message)


def test_an_int_in_a_float_field_travels_as_the_float() -> None:
    message = PrefillReport(attempt=ATTEMPT, queue_ms=5, prefill_ms=0, cached_tokens=0)
    decoded = decode(encode(ME, message))[1]
    assert decoded == message
    assert type(decoded.queue_ms) is float


def test_infinities_travel() -> None:
    message = Submit(
        request=a_request((), float("inf")),
        gateway=decode(msgpack.packb(submit_items()))[1].gateway,
        prefill=None,
    )
    assert decode(encode(ME, message)) == (ME, message)


def test_a_message_without_fields_is_its_header() -> None:
    assert decode(encode(ME, Reregister())) == (ME, Reregister())


def test_two_hundred_thousand_tokens_take_milliseconds() -> None:
    prompt = tuple(range(200_000))
    message = Submit(
        request=a_request(prompt),
        gateway=decode(msgpack.packb(submit_items()))[1].gateway,
        prefill=None,
    )
    encode_s = decode_s = float("inf")
    for _ in range(5):
        start_s = time.thread_time()
        frame = encode(ME, message)
        middle_s = time.thread_time()
        decoded = decode(frame)[1]
        end_s = time.thread_time()
        assert decoded.request.prompt == prompt
        encode_s = min(encode_s, middle_s - start_s)
        decode_s = min(decode_s, end_s - middle_s)
    # Thread CPU time, best of five: about 7 and 10 ms on one core of a shared machine.
    assert encode_s < 0.020
    assert decode_s < 0.020
