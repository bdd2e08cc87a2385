"""The page's files and their policy."""

import re

from tests.gateway.conftest import Gateway


async def test_the_page_is_served_with_a_strict_policy(gateway: Gateway) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/pages/chat.css", "text/css"),
        ("/pages/chat.js", "text/javascript"),
        ("/pages/completion.js", "text/javascript"),
    ):
        async with gateway.http.get(path) as response:
            assert response.status == 200
            assert response.content_type == kind
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
            # No other host, so that the page works where there is no network.
            text = re.sub(r"http://www\.w3\.org/2000/svg", "", await response.text())
            assert "http://" not in text
            assert "https://" not in text
    for path in ("/pages/../app.py", "/pages/%2e%2e%2fapp.py", "/pages/nothing.js"):
        async with gateway.http.get(path) as response:
            assert response.status == 404
