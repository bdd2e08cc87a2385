"""Who may talk to a mailbox: ZeroMQ's authentication protocol (ZAP, RFC 27), answered on the loop.

CURVE alone proves that a client holds *some* key pair and knows our public key. The doorkeeper
admits only the deployment's own pair, and sockets that ask for it (`guard`) admit nobody while
there is no doorkeeper.
"""

import hmac

import zmq
from zmq.utils import z85

from wire.keys import DeploymentKeys
from wire.socket_reader import SocketReader

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_VERSION = b"1.0"
DOMAIN = b"baton"
REQUEST_FRAMES = 7
"""Version, request id, domain, address, identity, mechanism, client key."""


class Doorkeeper:
    """Answers every handshake in `context`, as long as it isn't closed."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", keys: DeploymentKeys) -> None:
        self._admitted_key: bytes = z85.decode(keys.public)
        self.refused_total = 0
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(ZAP_ENDPOINT)
        self._reader = SocketReader(self._socket, self._answer)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def _answer(self, frames: list[bytes]) -> None:
        request_id = frames[1] if len(frames) > 1 else b""
        if self._admits(frames):
            verdict = (b"200", b"OK")
        else:
            self.refused_total += 1
            verdict = (b"400", b"not of this deployment")
        self._socket.send_multipart([ZAP_VERSION, request_id, *verdict, b"", b""])

    def _admits(self, frames: list[bytes]) -> bool:
        if len(frames) != REQUEST_FRAMES:
            return False
        version, _, domain, _, _, mechanism, client_key = frames
        return (
            (version, domain, mechanism) == (ZAP_VERSION, DOMAIN, b"CURVE")
            and hmac.compare_digest(client_key, self._admitted_key)
        )  # fmt: skip


def guard(socket: "zmq.Socket[bytes]", keys: DeploymentKeys) -> None:
    """Make `socket`, before it is bound, a CURVE server that the doorkeeper answers for."""
    socket.curve_server = True
    socket.curve_publickey = keys.public
    socket.curve_secretkey = keys.secret
    socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
