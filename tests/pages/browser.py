"""A real browser for tests: Chromium, driven through chromedriver's protocol. Debian: apt install chromium chromium-driver."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def is_here() -> bool:
    return bool(shutil.which("chromedriver") and (shutil.which("chromium") or shutil.which("google-chrome")))


class Browser:
    def __init__(self, base: str, session: str):
        self._base, self._session = base, session

    def _call(self, method: str, path: str, body=None):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            f"{self._base}/session/{self._session}/{path}".rstrip("/"), data, method=method
        )
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.loads(error.read())["value"]["message"]) from None

    def open(self, path):
        self._call("POST", "url", {"url": f"file://{path}"})

    def run(self, script: str, *arguments):
        """What a script returns."""
        return self._call("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, seconds: float = 20.0):
        end = time.monotonic() + seconds
        while not (found := self.run(f"return {script}")):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)
        return found

    def _element(self, selector: str) -> str:
        return self._call("POST", "element", {"using": "css selector", "value": selector})[_ELEMENT]

    def click(self, selector: str, times: int = 1):
        """A click of the mouse into the middle of an element."""
        place = {"type": "pointerMove", "duration": 0, "origin": {_ELEMENT: self._element(selector)}, "x": 0, "y": 0}
        press = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        mouse = {
            "type": "pointer",
            "id": "mouse",
            "parameters": {"pointerType": "mouse"},
            "actions": [place, *press * times],
        }
        self._call("POST", "actions", {"actions": [mouse]})

    def wheel(self, selector: str, delta: int):
        turn = {
            "type": "scroll",
            "x": 0,
            "y": 0,
            "deltaX": 0,
            "deltaY": delta,
            "origin": {_ELEMENT: self._element(selector)},
        }
        self._call("POST", "actions", {"actions": [{"type": "wheel", "id": "wheel", "actions": [turn]}]})

    def type(self, selector: str, text: str):
        self._call("POST", f"element/{self._element(selector)}/value", {"text": text})

    def resize(self, width: int, height: int):
        self._call("POST", "window/rect", {"width": width, "height": height})

    def logs(self) -> list[str]:
        """What went wrong on the page, and what it asked for elsewhere."""
        return [
            entry["message"]
            for entry in self._call("POST", "se/log", {"type": "browser"})
            if entry["level"] == "SEVERE"
        ]

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._call("GET", "screenshot")))


@contextlib.contextmanager
def browser(width: int = 1400, height: int = 900, dark: bool = False):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        [shutil.which("chromedriver"), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    base = f"http://127.0.0.1:{port}"
    made = None
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            flags = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
            flags += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
            options = {"goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}
            body = json.dumps({"capabilities": {"alwaysMatch": options}}).encode()
            end = time.monotonic() + 60
            while made is None:
                try:
                    request = urllib.request.Request(f"{base}/session", body, {"Content-Type": "application/json"})
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        made = Browser(base, json.loads(answer.read())["value"]["sessionId"])
                except (urllib.error.URLError, ConnectionError):
                    if time.monotonic() > end or driver.poll() is not None:
                        raise
                    time.sleep(0.1)
            try:
                yield made
            finally:
                with contextlib.suppress(Exception):
                    made._call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(20)
