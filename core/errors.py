"""Every error of baton's own, by whose fault it is.

    BatonError
    ├── ClientError      the caller's: answered 4xx, never retried
    ├── SetupError       the operator's: a wrong key, a missing file; ends the start
    ├── CapacityError    nobody's: too much at once; answered 429, 503 or 504
    ├── PeerError        another process's: retried elsewhere, else 502
    └── BugError         ours: 500, with the whole story in the log

Each boundary (HTTP, wire, command line) maps them once; nothing in between catches them broadly.
The split follows httpx and h11 (LocalProtocolError, RemoteProtocolError).
"""


class BatonError(Exception):
    """Base of all; never raised itself."""

    http_status = 500
    code = "internal_error"

    def __init__(self, message: str) -> None:
        if type(self) is BatonError:
            raise TypeError("raise one of BatonError's children: say whose fault it is")
        super().__init__(message)
        self.message = message


class ClientError(BatonError):
    """The caller asked for something that can't be given. `param` names the offending field."""

    http_status = 400
    code = "invalid_request"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class PromptTooLong(ClientError):
    code = "context_length_exceeded"


class UnknownModel(ClientError):
    http_status = 404
    code = "model_not_found"


class NotFound(ClientError):
    http_status = 404
    code = "not_found"


class Unauthorized(ClientError):
    http_status = 401
    code = "invalid_api_key"


class Forbidden(ClientError):
    http_status = 403
    code = "forbidden"


class BodyTooLarge(ClientError):
    http_status = 413
    code = "request_too_large"


class SetupError(BatonError):
    """The operator's: said before any port is opened, without a traceback."""

    code = "setup_error"


class ConfigError(SetupError):
    """A wrong key or value; names itself and its place."""

    code = "config_error"

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place


class ModelError(SetupError):
    """A model that can't be loaded: missing, truncated, of an unknown architecture or dtype."""

    code = "model_error"


class CapacityError(BatonError):
    """Too much at once; says when to come back."""

    http_status = 503
    code = "unavailable"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Overloaded(CapacityError):
    http_status = 429
    code = "overloaded"


class NoWorker(CapacityError):
    code = "no_worker"


class DeadlineExceeded(CapacityError):
    http_status = 504
    code = "deadline_exceeded"


class PeerError(BatonError):
    """Another process failed us; the work can be tried again elsewhere."""

    http_status = 502
    code = "peer_error"


class PeerLost(PeerError):
    code = "peer_lost"


class LeaseExpired(PeerError):
    code = "lease_expired"


class TransportError(PeerError):
    code = "transport_error"


class ChecksumMismatch(PeerError):
    code = "checksum_mismatch"


class MalformedMessage(PeerError):
    code = "malformed_message"


class FrameTooLarge(MalformedMessage):
    code = "frame_too_large"


class VersionMismatch(MalformedMessage):
    code = "version_mismatch"


class BugError(BatonError):
    """An invariant of ours is broken."""


class IllegalTransition(BugError):
    """A move that the life cycle's table doesn't have; carries the recorded story."""

    code = "illegal_transition"


class PoolCorrupt(BugError):
    """A KV block has two stories, or none."""

    code = "pool_corrupt"


class IndexCorrupt(BugError):
    """An index contradicts itself."""

    code = "index_corrupt"
