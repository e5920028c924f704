"""A registry of images on the loopback, for tests: one image, and a password in front of it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """What it has, and what it was asked for."""

    def __init__(self, archive: Path, username: str, password: str) -> None:
        with tarfile.open(archive) as opened:
            members = {m.name: opened.extractfile(m) for m in opened if m.isreg()}
            contents = {name: file.read() for name, file in members.items() if file is not None}
        index = json.loads(contents["index.json"])
        self.manifest_digest: str = index["manifests"][0]["digest"]
        self.blobs = {
            f"sha256:{hashlib.sha256(content).hexdigest()}": content
            for name, content in contents.items()
            if name.startswith("blobs/")
        }
        word = base64.b64encode(f"{username}:{password}".encode()).decode()
        self.authorization = f"Basic {word}"
        self.refused = 0
        self.served: list[str] = []


def _handler(registry: Registry) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            if self.headers.get("Authorization") != registry.authorization:
                registry.refused += 1
                self._send(401, b"{}", "application/json", with_body=with_body)
                return
            _, _, rest = self.path.partition("/v2/")
            kind, _, name = rest.rpartition("/")
            digest = name if name.startswith("sha256:") else registry.manifest_digest
            content = registry.blobs.get(digest)
            if content is None:
                self._send(404, b"{}", "application/json", with_body=with_body)
                return
            registry.served.append(self.path)
            media_type = (
                MANIFEST_TYPE if kind.endswith("/manifests") else "application/octet-stream"
            )
            self._send(200, content, media_type, with_body=with_body)

        def _send(self, code: int, content: bytes, kind: str, *, with_body: bool) -> None:
            self.send_response(code)
            if code == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="test"')
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """A test's output is for the test."""

    return Handler


@contextlib.contextmanager
def serving(registry: Registry) -> Iterator[str]:
    """The address of the registry, HOST:PORT."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
