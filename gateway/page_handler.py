"""The chat page at `/`: three files, read once, served with a strict policy."""

from pathlib import Path

from aiohttp import web

from core.errors import NotFound

PAGES = Path(__file__).parent / "pages"
CONTENT_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    # Nothing from elsewhere, nothing inline, nobody's frame.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class PageHandler:
    def __init__(self) -> None:
        self._files = {
            path.name: (path.read_bytes(), CONTENT_TYPES[path.suffix])
            for path in sorted(PAGES.iterdir())
            if path.suffix in CONTENT_TYPES
        }

    async def index(self, _request: web.Request) -> web.Response:
        return self._file("index.html")

    async def file(self, request: web.Request) -> web.Response:
        """Raises:
        NotFound: no such file (only those of the folder exist; nothing is looked up on disk).
        """
        return self._file(request.match_info["name"])

    def _file(self, name: str) -> web.Response:
        if name not in self._files:
            raise NotFound(f"There is no page file '{name:.80}'.")
        data, content_type = self._files[name]
        return web.Response(body=data, content_type=content_type, charset="utf-8", headers=HEADERS)
