"""A real browser without a window, driven by its debugging protocol over two pipes."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import time

import pytest


class Browser:
    """Chromium with one page. Skips the test where there is none.

    with Browser() as page:
        page.open(url)
        page.run("document.title")
    """

    def __init__(self):
        self._program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if self._program is None:
            pytest.skip("needs Chromium")
        self._numbers = itertools.count(1)
        self._rest = b""
        self.problems: list[str] = []  # what the page wrote to its console as errors

    def __enter__(self) -> Browser:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def as_three_and_four():
            first, second = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._folder = subprocess.check_output(["mktemp", "-d"], text=True).strip()
        command = [self._program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   f"--user-data-dir={self._folder}", "--remote-debugging-pipe", "about:blank"]  # fmt: skip
        self._process = subprocess.Popen(
            command, preexec_fn=as_three_and_four, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        return self

    def __exit__(self, *exc):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._folder, ignore_errors=True)

    _session: str | None = None

    def open(self, url: str):
        self._ask("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def run(self, script: str):
        """The value of a script in the page; waits for promises."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, script: str, seconds: float = 30):
        """Until a script gives what is true; its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{script} did not become true")

    def drag(self, points):
        """Presses the mouse at the first point (x, y), moves it through the others and lets it go."""
        for i, (x, y) in enumerate(points):
            kind = "mousePressed" if i == 0 else "mouseMoved"
            self._mouse(kind, x, y, 1)
        self._mouse("mouseReleased", *points[-1], 0)

    def click(self, x: float, y: float):
        self.drag([(x, y)])

    def _mouse(self, kind: str, x: float, y: float, buttons: int):
        self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1)

    def _ask(self, method: str, **parameters) -> dict:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict):
        kind, about = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.problems.append(str(about["exceptionDetails"].get("exception", about["exceptionDetails"])))
        elif kind == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.problems.append(about["entry"]["text"] + " " + about["entry"].get("url", ""))

    def _read(self) -> dict:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], 60)
            data = os.read(self._in, 1 << 16) if ready else b""
            if not data:
                raise AssertionError("the browser does not answer")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)
