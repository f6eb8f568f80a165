"""A web server of its own thread that can fail in every way a download must survive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What the server has and how it misbehaves; ``asked`` notes the Range of each request."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    tag: str | None = '"v1"'
    cut_after: list[int] = field(default_factory=list)  # bytes after which each next connection is cut
    answers: list[int] = field(default_factory=list)  # statuses given before anything else
    announce: bool = True
    shift: int = 0  # by how much a resumed part begins too early
    asked: list[str | None] = field(default_factory=list)
    url: str = ""


@contextmanager
def serve(site: Site) -> Iterator[Site]:
    """Serves a site on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            site.asked.append(self.headers.get("Range"))
            if site.answers:
                self.send_error(site.answers.pop(0))
                return
            body = site.files.get(self.path.lstrip("/"))
            if body is None:
                self.send_error(404)
                return
            self._send(body)

        def _send(self, body: bytes) -> None:
            wanted, same = self.headers.get("Range"), self.headers.get("If-Range") == site.tag
            start = 0
            if wanted and site.ranges and same:
                start = int(wanted.removeprefix("bytes=").rstrip("-")) - site.shift
                if start >= len(body):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(body)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            if site.tag is not None:
                self.send_header("ETag", site.tag)
            if site.announce:
                self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            stop = start + site.cut_after.pop(0) if site.cut_after else len(body)
            self.wfile.write(body[start:stop])

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A connection cut on purpose is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
