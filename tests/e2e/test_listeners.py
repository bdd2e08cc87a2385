"""What a deployment lets in from other machines: nothing, unless told otherwise."""

import ipaddress

import psutil

from tests.e2e.running import Running


def test_every_process_listens_on_loopback_only(disaggregated: Running) -> None:
    launcher = psutil.Process(disaggregated.launcher.pid)
    family = [launcher, *launcher.children(recursive=True)]
    listening = {
        (process.name(), connection.laddr.ip)
        for process in family
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening
    assert all(ipaddress.ip_address(ip).is_loopback for _, ip in listening), listening
