"""Every page of the site in Chromium, driven by its own protocol."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import shutil
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.websocket import WebSocketClientConnection, websocket_connect

NARROW, WIDE, HEIGHT = 360, 1600, 900
STOPS = 16
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"),
)
_DRAWN, _DRAWERS = "concepts.html", (("__navigation", ".sidebar-drawer"), ("__toc", ".toc-drawer"))
_PROBES = (Path(__file__).parent / "_browser.js").read_text(encoding="utf-8")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *words: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def _served(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


class Tab:
    """Page of Chromium: sends commands, returns their answers, and collects events."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket, self._numbers = socket, itertools.count()
        self.events: list[dict[str, Any]] = []

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its answer."""
        number = next(self._numbers)
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = await self._next()
            if told.get("id") == number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']['message']}")
                return told["result"]

    async def open(self, address: str) -> None:
        """Open a page, and wait until it is loaded and its formulas are set."""
        self.events.clear()
        await self.send("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            await self._next()
        await self.value("window.MathJax?.startup?.promise?.then(() => true) ?? true")

    async def value(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        told = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, timeout=30000
        )
        if "exceptionDetails" in told:
            raise RuntimeError(str(told["exceptionDetails"]))
        return told["result"].get("value")

    async def press(self, key: str) -> None:
        """Press Tab, Enter or Escape, once."""
        number = {"Tab": 9, "Enter": 13, "Escape": 27}[key]
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=number)

    async def resize(self, width: int) -> None:
        """Set the width of the window, in CSS pixels."""
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **size)

    async def scheme(self, name: str) -> None:
        """Emulate a reader's preference for ``light`` or ``dark``."""
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    async def _next(self) -> dict[str, Any]:
        told = await asyncio.wait_for(self._socket.read_message(), 60)
        if told is None:
            raise RuntimeError("Chromium has gone")
        event = json.loads(told)
        if "method" in event:
            self.events.append(event)
        return event


@contextlib.asynccontextmanager
async def _tab() -> AsyncIterator[Tab]:
    browser = next(filter(None, map(shutil.which, _NAMES)), None)
    if browser is None:
        raise SystemExit(f"expected one of {', '.join(_NAMES)}; none is installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [browser, *_FLAGS, f"--user-data-dir={folder}", "about:blank"], stderr=subprocess.DEVNULL
        )
        try:
            port = await _port(Path(folder) / "DevToolsActivePort")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                page = next(one for one in json.load(answer) if one["type"] == "page")
            tab = Tab(await websocket_connect(page["webSocketDebuggerUrl"], max_message_size=1 << 28))
            for domain in ("Page", "Network", "Runtime", "Log"):
                await tab.send(f"{domain}.enable")
            yield tab
        finally:
            process.terminate()
            process.wait()


async def _port(file: Path) -> str:
    for _ in range(300):
        if file.exists() and file.read_text():
            return file.read_text().splitlines()[0]
        await asyncio.sleep(0.1)
    raise RuntimeError("Chromium did not start")


async def examine(site: Path, pages: list[str]) -> dict[str, Any]:
    """Examine each page, and return what was measured, with its faults."""
    with _served(site) as address:
        async with _tab() as tab:
            seen = {name: await _examined(tab, address, name) for name in pages}
            seen[_DRAWN]["faults"] += [fault for drawer in _DRAWERS for fault in await _shut_in(tab, address, *drawer)]
    sums = {what: sum(page[what] for page in seen.values()) for what in ("formulas", "requests")}
    sums["stops of the Tab key"] = sum(len(page["stops"]) for page in seen.values())
    least = min(ratio for page in seen.values() for ratio in page["least_contrast"].values())
    summary = f"{len(seen)} pages, {', '.join(f'{n} {what}' for what, n in sums.items())}; least contrast {least:.2f}"
    return {"summary": summary, "pages": seen}


async def _shut_in(tab: Tab, address: str, box: str, drawer: str) -> list[str]:
    """Test the keyboard in a drawer of a narrow page: Tab leads to it, Enter into it, Escape out of it."""
    inside = f"document.activeElement.closest('{drawer}') !== null"
    opened = f"document.getElementById('{box}').checked"
    await tab.resize(NARROW)
    await tab.open(f"{address}/{_DRAWN}")
    for _ in range(STOPS):
        await tab.press("Tab")
        if await tab.value(inside):
            return [f"{_DRAWN}: Tab enters {drawer}, which is shut"]
        if await tab.value(f"document.activeElement.htmlFor === '{box}'"):
            break
    else:
        return [f"{_DRAWN}: Tab does not lead to what opens {drawer}"]
    await tab.press("Enter")
    faults = [] if await tab.value(f"{opened} && {inside}") else [f"{_DRAWN}: Enter does not lead into {drawer}"]
    await tab.press("Escape")
    return faults + ([f"{_DRAWN}: Escape leaves {drawer} open"] if await tab.value(f"{opened} || {inside}") else [])


async def _examined(tab: Tab, address: str, name: str) -> dict[str, Any]:
    faults, beyond, least = [], {}, {}
    await tab.resize(WIDE)
    await tab.scheme("light")
    await tab.open(f"{address}/{name}")
    await tab.value(_PROBES)
    requests = [
        event["params"]["request"]["url"] for event in tab.events if event["method"] == "Network.requestWillBeSent"
    ]
    strange = [url for url in requests if urlsplit(url).scheme != "data" and not url.startswith(address)]
    faults += [f"asks another host: {url}" for url in strange]
    told = [event["params"] for event in tab.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    faults += [f"says on the console: {json.dumps(one)[:300]}" for one in told]
    formulas = await tab.value("site.formulas()")
    faults += [f"does not set a formula: {text}" for text in formulas["failed"]]
    for scheme in ("light", "dark"):
        await tab.scheme(scheme)
        contrast = await tab.value("site.contrast()")
        least[scheme] = contrast["least"]
        faults += [f"has too little contrast in {scheme}: {one}" for one in contrast["faint"]]
    await tab.scheme("light")
    stops = []
    for _ in range(STOPS):
        await tab.press("Tab")
        stops.append(await tab.value("site.focus()"))
    faults += [f"hides the focus: {stop['what']}" for stop in stops if not stop["seen"]]
    faults += [f"has its focus go up the page: {stop['what']}" for stop in stops if stop["back"]]
    for width in (WIDE, NARROW):
        await tab.resize(width)
        seen = await tab.value("site.overflow()")
        beyond[width] = seen["beyond"]
        if seen["beyond"] > 0:
            faults.append(f"is {seen['beyond']} px too wide at {width}: {seen['what']}")
    return {
        "faults": [f"{name} {fault}" for fault in faults],
        "requests": len(requests),
        "formulas": formulas["set"],
        "beyond_the_window": beyond,
        "least_contrast": least,
        "stops": [stop["what"] for stop in stops],
    }
