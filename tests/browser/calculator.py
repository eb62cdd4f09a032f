"""The calculator in a real browser: opening it, asking, waiting for what it answers, and hearing every complaint.

The page's policy forbids code made from text, which Playwright's own waiting makes; so everything here asks and waits by
itself, for a stated time at most.
"""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from inference_bench import bridge

PATIENCE_S = 60.0
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no other host exists
]
EXAMPLE = "#fit?model=Qwen3-8B"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
# Runs before the page's own scripts. It hands every message on unchanged and keeps what a test wants to know of it.
LISTEN = """
(() => {
  const heard = { asked: {}, steps: {}, numSteps: {}, violations: [], workers: 0 };
  const post = Worker.prototype.postMessage, known = new WeakSet();
  Worker.prototype.postMessage = function (...given) {
    if (!known.has(this)) {
      known.add(this);
      heard.workers += 1;
      this.addEventListener("message", ({ data }) => {
        if (data.kind !== "step") return;
        heard.steps[data.view] = { id: data.id, text: data.step };
        heard.numSteps[data.view] = (heard.numSteps[data.view] ?? 0) + 1;
      });
    }
    if (given[0].kind === "ask") heard.asked[given[0].view] = { id: given[0].id, request: given[0].request };
    return post.apply(this, given);
  };
  addEventListener("securitypolicyviolation", (event) => heard.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  Object.defineProperty(window, "heard", { value: heard });
})();
"""
LOOK = """(view) => {
  const step = heard.steps[view], { asked, answered, drawn } = document.getElementById(`view-${view}`).dataset;
  return {
    ready: document.documentElement.dataset.ready !== undefined, asked: heard.asked[view]?.id ?? null,
    id: step?.id ?? null, text: step?.text ?? null, answered: Number(answered ?? -1), drawn: Number(drawn ?? -1),
  };
}"""
# How far letters reach out of their drawing and how small they get, for each drawing that shows.
LOOK_AT_DRAWINGS = """(view) => [...document.querySelectorAll(`#answer-${view} .drawing svg`)]
  .filter(drawing => drawing.getBoundingClientRect().width > 0)
  .map(drawing => {
    const frame = drawing.getBoundingClientRect(), scale = frame.width / drawing.viewBox.baseVal.width;
    const texts = [...drawing.querySelectorAll('text')].filter(text => text.textContent.trim());
    const beyond = texts.map(text => {
      const box = text.getBoundingClientRect();
      return Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom);
    });
    return {
      place: drawing.closest('[data-chart]').dataset.chart, name: drawing.getAttribute('aria-label'), texts: texts.length,
      beyond: Math.max(...beyond), letters: scale * Math.min(...texts.map(text => parseFloat(getComputedStyle(text).fontSize))),
    };
  })"""

Json = dict[str, Any]


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def wait_for(look: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """What `look` gives as soon as it gives anything."""
    end = time.monotonic() + patience_s
    while not (found := look()):
        assert time.monotonic() < end, f"after {patience_s:.0f} s still not: {what}"
        time.sleep(0.02)
    return found


class Complaints(list[str]):
    """Everything a browser says that nobody wants to hear: console, errors, dialogs, requests to elsewhere."""

    def of(self, page: Any, origin: str) -> None:
        page.on("console", lambda message: self.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("crash", lambda _page: self.append("the page crashed"))
        page.on("request", lambda request: self._require_own(request.url, origin))

    def _require_own(self, address: str, origin: str) -> None:
        if not address.startswith((origin, "data:image/svg+xml,", f"blob:{origin.rstrip('/')}")):
            self.append(f"request to elsewhere: {address[:100]}")


class Calculator:
    """One open page."""

    def __init__(self, page: Any, address: str, complaints: Complaints) -> None:
        self.page = page
        self.address = address
        self.complaints = complaints
        complaints.of(page, address)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    def text(self, selector: str) -> str:
        return " ".join(str(self.page.locator(selector).first.inner_text()).split())

    def status(self) -> str:
        return self.text("#status")

    def answer_text(self, view: str = "fit") -> str:
        return self.text(f"#answer-{view}")

    def trouble(self) -> str:
        """What stands in the box for trouble; empty when it is hidden."""
        return self.text("#trouble") if self.page.locator("#trouble").is_visible() else ""

    def wrong(self, field: str, view: str = "fit") -> str:
        """The sentence at a field, if the field is marked as wrong and tied to that sentence."""
        holder = self.page.locator(f"#form-{view} [data-field={field}]")
        control = holder.locator("input:not([type=range]), textarea, select").first
        if control.get_attribute("aria-invalid") != "true":
            return ""
        note = holder.locator(".wrong")
        assert note.get_attribute("id") in (control.get_attribute("aria-describedby") or "").split()
        return " ".join(str(note.inner_text()).split())

    def values(self, view: str = "fit") -> dict[str, str]:
        found: dict[str, str] = self.page.evaluate(
            "(view) => Object.fromEntries(new FormData(document.getElementById(`form-${view}`)))", view
        )
        return found

    def href(self) -> str:
        """The address as it is now; Playwright's own copy of it lags behind."""
        return str(self.page.evaluate("() => location.href"))

    def violations(self) -> list[str]:
        found: list[str] = self.page.evaluate("() => heard.violations")
        return found

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────

    def ready(self) -> Calculator:
        wait_for(lambda: self.page.evaluate("() => 'ready' in document.documentElement.dataset"), "Python is ready")
        return self

    def settled(self, view: str = "fit", patience_s: float = PATIENCE_S) -> Json:
        """The last step of the newest question of a view, when it is shown and drawn: what the core said, parsed."""
        found: Json = wait_for(lambda: self._settled(view), f"{view} is answered and drawn", patience_s)
        return found

    def _settled(self, view: str) -> Json | None:
        seen = self.page.evaluate(LOOK, view)
        if not seen["ready"] or seen["asked"] is None or not seen["asked"] == seen["id"] == seen["answered"]:
            return None
        step: Json = json.loads(seen["text"])
        if "progress" in step or step.get("is_partial"):
            return None
        is_drawn = "error" in step or seen["drawn"] == seen["id"]
        return step if is_drawn else None

    def asked(self, view: str = "fit") -> Json:
        """The newest question as the page put it."""
        found: Json = self.page.evaluate("(view) => heard.asked[view].request", view)
        return found

    # ── doing ────────────────────────────────────────────────────────────────────────────────────

    def open(self, state: str) -> Calculator:
        """Go to a state as a link within the page would."""
        self.page.evaluate("(to) => { history.replaceState(null, '', '#-'); location.hash = to; }", state)
        return self

    def type(self, field: str, text: str, view: str = "fit") -> Json:
        """Put a text in a field and wait for what follows."""
        before = self.page.evaluate(LOOK, view)["asked"]
        control = self.page.locator(f"#{view}-{field}")
        control.evaluate("(control) => control.closest('details')?.setAttribute('open', '')")
        if control.evaluate("(control) => control.tagName") == "SELECT":
            control.select_option(text)
        else:
            control.fill(text)
        wait_for(lambda: self.page.evaluate(LOOK, view)["asked"] != before, f"{field} asks")
        return self.settled(view)

    def drop(self, *paths: Path, view: str = "fit") -> Json:
        """Choose files, as dropping them does, and wait for what follows."""
        before = self.page.evaluate(LOOK, view)["asked"]
        self.page.locator(f"#file-{view}").set_input_files([str(path) for path in paths])
        wait_for(lambda: self.page.evaluate(LOOK, view)["asked"] != before, "the file asks")
        return self.settled(view)

    def reset(self) -> None:
        """The page as it was after loading, as far as the next test can see."""
        self.page.set_viewport_size(WIDE)
        self.page.emulate_media(color_scheme="light")
        self.page.context.set_offline(False)
        if self.page.locator("#view-fit .forget").is_visible():
            self.page.locator("#view-fit .forget").click()
        self.open(EXAMPLE)
        self.settled()
        del self.complaints[:]


def in_cpython(asked: Json) -> Json:
    """The whole answer to a question here, through JSON."""
    found: Json = json.loads(json.dumps(bridge.answer(asked), allow_nan=False))
    return found


@contextmanager
def plain_host(root: Path) -> Iterator[str]:
    """A static host as simple as there is: no headers of its own, no compression, no list of files."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_details: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def origin_of(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
