"""A headless Chromium, driven over a pipe by its DevTools protocol: nothing but the browser itself is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Page:
    """One tab, and what it complained of."""

    def __init__(self, process: subprocess.Popen[bytes], reading: int, writing: int) -> None:
        self._process, self._reading, self._writing = process, reading, writing
        self._number, self._left = 0, b""
        self._session: str | None = None
        self._loaded = False
        self.complaints: list[str] = []
        """Errors and warnings of the console, exceptions, and requests to anywhere but the file itself."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{room}.enable")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._writing, json.dumps(asked).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, said["error"]
                result: dict[str, Any] = said["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = os.read(self._reading, 1 << 16)
            assert part, "the browser has gone"
            self._left += part
        line, _, self._left = self._left.partition(b"\0")
        said: dict[str, Any] = json.loads(line)
        self._note(said)
        return said

    def _note(self, said: dict[str, Any]) -> None:
        params = said.get("params", {})
        match said.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith(("file:", "data:", "blob:")):
                self.complaints.append(f"asks for {params['request']['url']}")

    def open(self, file: Path, *, width: int, height: int, dark: bool = False, touch: bool = False) -> None:
        scale = 2 if touch else 1
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[feature])
        self._loaded = False
        self._call("Page.navigate", url=file.resolve().as_uri())
        while not self._loaded:
            self._next()
        self.until("document.body.dataset.ready === 'yes'")

    def evaluate(self, script: str) -> Any:
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str, tries: int = 200) -> None:
        """Waits for what must become true."""
        wait = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)))"
        for _ in range(tries):
            if self.evaluate(f"Boolean({condition})"):
                return
            self.evaluate(wait)
        raise AssertionError(f"never: {condition}")

    def move(self, x: float, y: float) -> None:
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, file: Path, whole: bool = True) -> None:
        found = self._call("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def opened(folder: Path) -> Iterator[Page]:
    """A browser with a profile of its own in a folder."""
    to_browser, writing = os.pipe()
    reading, from_browser = os.pipe()
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]

    def arrange() -> None:
        """The browser reads from 3 and writes to 4."""
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    process = subprocess.Popen(command, pass_fds=(3, 4), preexec_fn=arrange, stderr=subprocess.DEVNULL)
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(process, reading, writing)
    finally:
        os.close(writing)
        process.terminate()
        process.wait(timeout=30)
        os.close(reading)
