"""The page's server: this machine only, three fixed addresses, GET only. No path of the file system is ever asked for."""

from __future__ import annotations

import socketserver
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from phylatent.errors import UserError
from phylatent.files import why
from phylatent.watching.live import Live
from phylatent.watching.page import page

ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
"""What a browser on this machine calls it. Any other name is a page from elsewhere whose name was made to lead here."""
FOREIGN = ("cross-site", "same-site")
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Server(ThreadingHTTPServer):
    """Listens on 127.0.0.1, and nowhere else."""

    daemon_threads = True

    def __init__(self, live: Live, port: int = 0) -> None:
        html, policy = page()
        self.policy = policy
        self.answers: dict[str, tuple[str, Callable[[], str] | None]] = {
            "/": ("text/html", lambda: html),
            "/state": ("application/json", live.state),
            "/films": ("application/json", live.pictures),
        }
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise UserError(f"port={port} cannot be used: {why(error)}; choose another, or leave it out") from error

    def server_bind(self) -> None:
        """As the standard library's, but without asking a name server what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.0"  # a connection for each question: none outlives the server
    server_version, sys_version = "phylatent", ""
    timeout = 30
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        kind, answer = self.server.answers.get(path, ("", None))
        if self._host() not in HOSTS:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, f"this page is at {self.server.address}")
        elif path != "/" and self.headers.get("Sec-Fetch-Site") in FOREIGN:
            self._refuse(HTTPStatus.FORBIDDEN, "asked for by a page from elsewhere")
        elif answer is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        else:
            self._send(HTTPStatus.OK, kind, answer().encode())

    def refuse_method(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this page can only be read", Allow="GET")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = refuse_method

    def _host(self) -> str:
        """The name that the browser knows this server by, without its port: a tunnel may have another one."""
        named = self.headers.get_all("Host") or [""]
        name, _, port = named[0].partition(":")
        return name.lower() if len(named) == 1 and (not port or port.isdecimal()) else ""

    def _refuse(self, code: HTTPStatus, sentence: str, **headers: str) -> None:
        self._send(code, "text/plain", f"{sentence}\n".encode(), **headers)

    def _send(self, code: HTTPStatus, kind: str, body: bytes, **headers: str) -> None:
        tag = f'"{sha256(body).hexdigest()[:32]}"'
        if code == HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            code, body = HTTPStatus.NOT_MODIFIED, b""
        sent = HEADERS | {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), "ETag": tag}
        sent |= {"Content-Security-Policy": self.server.policy, **headers}
        self.send_response(code)
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the user's."""
