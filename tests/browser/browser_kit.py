"""Chromium and kubesched for tests of the dashboard: programs that show it, and a window on it.

``window.faults()`` is asked after each test: whatever the console complained of, and each request to another origin.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

__all__ = ["AXE", "Keys", "Program", "Window", "missing", "pod_address", "until"]

ROOT: Final = Path(__file__).parents[2]
CHROMIUM: Final = shutil.which("chromium") or ""
CHROMEDRIVER: Final = shutil.which("chromedriver") or ""
#: Checks of accessibility: ``make browser`` installs them.
AXE: Final = ROOT / "ui/node_modules/axe-core/axe.min.js"

#: Seconds after which something that should have happened has not; generous, as other tests run beside.
_LIMIT: Final = 40.0
_LINK: Final = re.compile(r"http://127\.0\.0\.1:(\d+)/ui/\?key=[\w-]+")
_FLAGS: Final = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--window-size=1400,900", "--force-device-scale-factor=1"),
)

T = TypeVar("T")


def missing() -> str:
    """Return what the tests lack here, in words; empty if everything is there."""
    absent = [name for name, path in (("chromium", CHROMIUM), ("chromedriver", CHROMEDRIVER)) if not path]
    return f"no {' and no '.join(absent)}: `make browser` installs what tests of the dashboard need" if absent else ""


def until(what: str, ask: Callable[[], T | None]) -> T:
    """Return the first true answer. Parts of the page that are replaced meanwhile are asked again.

    Raises:
        AssertionError: there was none in time.
    """
    end = time.monotonic() + _LIMIT
    while True:
        try:
            if found := ask():
                return found
        except (StaleElementReferenceException, NoSuchElementException):
            pass
        if time.monotonic() > end:
            raise AssertionError(f"not seen in {_LIMIT:g} s: {what}")
        time.sleep(0.03)


def done(act: Callable[[], None]) -> bool:
    """Do what has no answer, and return True, so that :func:`until` ends with it."""
    act()
    return True


class Program:
    """A command of kubesched that shows a dashboard, as a process of its own. It prints links that work once."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder, self._arguments = folder, arguments
        self._output = folder / "output"
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it, on the port that it had before if there was one, and wait for its link."""
        port = ("--port" if self._arguments[0] == "view" else "--ui", str(self.port))
        command = [sys.executable, "-m", "kubesched.cli", *self._arguments, *port]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "XDG_STATE_HOME": str(self._folder)}
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, env=environment, cwd=self._folder, text=True
            )
        until(
            f"a link of kubesched {' '.join(self._arguments)}", lambda: self._process.poll() is not None or self.links
        )
        assert self.links, self._output.read_text()
        self.port = int(self.links[0].partition("127.0.0.1:")[2].partition("/")[0])

    def stop(self) -> None:
        """Stop it as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def links(self) -> list[str]:
        """Links that were printed, the newest last."""
        return [found[0] for found in _LINK.finditer(self._output.read_text())]

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(self, path: str, body: Mapping[str, Any] | None = None, method: str | None = None) -> Any:
        """Ask the API server of ``kubesched up``, and return its JSON."""
        server = until("the address", lambda: re.search(r"cluster at (http://\S+)", self._output.read_text()))
        data = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(f"{server[1]}{path}", data, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=_LIMIT) as answer:
            return json.load(answer)


class Window:
    """Window of a browser that shows a dashboard. Parts of the page are named by their ``data-testid``."""

    def __init__(self, folder: Path, *, logs: bool = True) -> None:
        options = ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*_FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        if logs:  # they take time and memory, of which measurements must be free
            options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = Chrome(options, Service(CHROMEDRIVER))
        self.program: Program | None = None
        #: Parts of complaints of the console that a test provokes, such as answers of status 401.
        self.expected: list[str] = []
        self.driver.get("about:blank")
        if logs:
            self.faults()  # of the browser's own first page
        self.prefer("light")

    def close(self) -> None:
        self.driver.quit()

    # -- where ---------------------------------------------------------------------------------------------

    def open(self, program: Program, address: str = "/map") -> None:
        """Show a view of a program; log in by a link if there was no login yet."""
        self.expected = []
        if self.program is not program:
            self.driver.get(program.links[-1])
            self.program = program
        self.go(address)

    def go(self, address: str) -> None:
        """Follow an address within the page, as a link does."""
        origin = self.program.origin if self.program is not None else ""
        if not self.driver.current_url.startswith(f"{origin}/ui/"):
            self.driver.get(f"{origin}/ui/#{address}")
        else:
            self.script("location.hash = arguments[0]", address)
        view = address.strip("/").partition("/")[0].partition("?")[0]
        self.see(f"view-{view}")

    @property
    def address(self) -> str:
        return str(self.script("return location.hash")).removeprefix("#")

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, theme: str) -> None:
        """Let the system have a theme, and no motion: colours that change slowly are not the ones that are meant."""
        features = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
        media = [{"name": name, "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})

    def show(self, theme: str, width: int) -> None:
        self.resize(width, 800)
        self.prefer(theme)

    # -- what is seen --------------------------------------------------------------------------------------

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def see(self, part: str, text: str = "") -> WebElement:
        """Wait until a part is there and has a text in it."""
        return self.find(f'[data-testid="{part}"]', text)

    def find(self, selector: str, text: str = "") -> WebElement:
        """Wait until an element is there and has a text in it."""

        def found() -> WebElement | None:
            return next((each for each in self.all(selector) if not text or text in each.text), None)

        return until(f"{selector} with {text!r} at {self.driver.current_url}", found)

    def text(self, part: str) -> str:
        return self.see(part).text

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    # -- what a person does --------------------------------------------------------------------------------

    def click(self, part: str) -> None:
        until(f"a click on {part}", lambda: done(self.see(part).click))

    def follow(self, text: str, within: str = "main") -> None:
        """Click on the link of a text."""
        link = until(f"link {text}", lambda: next((e for e in self.all(f"{within} a") if e.text == text), None))
        link.click()

    def choose(self, part: str, value: str) -> None:
        """Choose an option by its value."""

        def option() -> WebElement | None:
            options = Select(self.see(part)).options
            return next((each for each in options if each.get_attribute("value") == value), None)

        until(f"{value} in {part}", option).click()

    def write(self, part: str, *keys: str) -> None:
        self.see(part).send_keys(*keys)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    @property
    def focused(self) -> str:
        """Name of the part that has the focus."""
        return str(self.script("return document.activeElement.dataset.testid ?? document.activeElement.id"))

    # -- what must not happen ------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """Return complaints of the console since the last time, violations of the policy among them, and requests elsewhere."""
        said = [entry["message"] for entry in self._log("browser") if entry["level"] != "INFO"]
        faults = [text for text in said if not any(part in text for part in self.expected)]
        for entry in self._log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.webSocketCreated":
                faults.append(f"socket to {message['params']['url']}")
            elif message["method"] == "Network.requestWillBeSent":
                page, url = message["params"]["documentURL"], message["params"]["request"]["url"]
                # Requests of a page that the window has left may come late, so each is compared with its own page.
                if not url.startswith((f"{page.partition('/ui/')[0]}/ui/", "data:", "about:")):
                    faults.append(f"request of {page} to {url}")
        return faults

    def _log(self, kind: str) -> list[Any]:
        """Return what was logged since the last time."""
        entries: list[Any] = self.driver.get_log(kind)  # type: ignore[no-untyped-call]
        return entries

    def violations(self) -> list[str]:
        """Return what axe finds wrong with the page for people with disabilities: rule and elements."""
        if not self.script("return 'axe' in window"):
            self.script(AXE.read_text(encoding="utf-8"))
        code = """const done = arguments[arguments.length - 1];
            const failed = (error) => done([{id: String(error), nodes: []}]);
            axe.run({resultTypes: ["violations"]}).then((found) => done(found.violations), failed);"""
        found: Sequence[Any] = self.driver.execute_async_script(code)
        return [f"{each['id']}: {node['html'][:160]}" for each in found for node in each["nodes"] or [{"html": ""}]]


def pod_address(namespace: str, name: str) -> str:
    return f"/pod/{quote(namespace, '')}/{quote(name, '')}"
