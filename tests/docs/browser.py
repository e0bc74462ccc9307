"""``python -m tests.docs.browser build/site``: the documentation site in headless chromium, as a reader with a mouse has it.

A server of our own serves the site with a line in each page that notes errors, and a page that opens every other one at the
widths of a desktop and of a phone, types into the search box and follows the first answer; it sends back what it saw.
"""

import argparse
import functools
import http.server
import json
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

WIDTHS = {"desktop": 1280, "phone": 390}
QUERIES = ("recompile_limit", "mark_dynamic", "graph break")
PICTURED = ["index.html", "guides/torch-compile.html", "reference/options.html"]
EARLY = """<script>
window.seenErrors = [];
addEventListener("error", (e) => seenErrors.push(e.message || "could not load " + (e.target.src || e.target.href)), true);
addEventListener("unhandledrejection", (e) => seenErrors.push(String(e.reason)));
for (const kind of ["error", "warn"]) { const say = console[kind]; console[kind] = (...all) => { seenErrors.push(all.join(" ")); say(...all); }; }
</script>"""
DRIVER = """<!doctype html><body><script>
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
async function until(found) { for (let i = 0; i < 400; i++) { const it = found(); if (it) return it; await wait(50); } return null; }
function open(path, width) {
  return new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.style.cssText = `width:${width}px;height:844px;border:0`;
    frame.onload = () => done(frame); frame.src = path; document.body.append(frame);
  });
}
async function look(path, width) {
  const frame = await open(path, width), inside = frame.contentWindow, doc = inside.document;
  await wait(60);
  const seen = { errors: inside.seenErrors, wide: doc.documentElement.scrollWidth > width + 1,
    title: doc.querySelector("h1") ? doc.querySelector("h1").innerText : "",
    pictures: [...doc.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src) };
  frame.remove();
  return seen;
}
async function search(text) {
  const frame = await open("/index.html", 1280), doc = frame.contentWindow.document;
  const box = await until(() => doc.querySelector("input.md-search__input"));
  doc.querySelector("#__search").checked = true; box.focus();
  await wait(200);
  box.value = text; box.dispatchEvent(new Event("keyup")); box.dispatchEvent(new Event("input"));
  const first = await until(() => doc.querySelector(".md-search-result__list a.md-search-result__link"));
  const answer = { count: doc.querySelectorAll(".md-search-result__item").length, first: first && first.href, errors: frame.contentWindow.seenErrors };
  if (first) { const there = await fetch(first.href); answer.found = there.ok && (await there.text()).includes(text); }
  frame.remove();
  return answer;
}
(async () => {
  const { pages, widths, queries } = await (await fetch("/__task")).json(), seen = { pages: {}, search: {} };
  for (const [name, width] of Object.entries(widths)) for (const page of pages) seen.pages[name + " " + page] = await look("/" + page, width);
  for (const text of queries) seen.search[text] = await search(text);
  await fetch("/__seen", { method: "POST", body: JSON.stringify(seen) });
})().catch((error) => fetch("/__seen", { method: "POST", body: JSON.stringify({ failed: String(error.stack || error) }) }));
</script></body>"""


class Server(http.server.SimpleHTTPRequestHandler):
    """The site, the page that drives it, and the place where it tells what it saw."""

    def __init__(self, *given, root, task, answers, missing):
        self.task, self.answers, self.missing = task, answers, missing
        super().__init__(*given, directory=str(root))

    def do_GET(self):
        path = self.path.partition("?")[0]
        file = Path(self.directory) / path.lstrip("/")
        if path == "/__drive":
            self._send(DRIVER)
        elif path == "/__task":
            self._send(json.dumps(self.task))
        elif path.startswith("/__phone/"):
            page = path.removeprefix("/__phone")
            self._send(
                f'<body style="margin:0"><iframe src="{page}" style="width:390px;height:1400px;border:0"></iframe></body>'
            )
        elif path.endswith(".html") and file.is_file():
            self._send(file.read_text().replace("<head>", f"<head>{EARLY}", 1))
        else:
            super().do_GET()

    def do_POST(self):
        self.answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._send("")

    def _send(self, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code, message=None, explain=None):
        """A file that is not there is a problem, but for the icon that every browser asks for."""
        if not self.path.endswith("/favicon.ico"):
            self.missing.append(self.path)
        super().send_error(code, message, explain)

    def log_message(self, *given):
        pass


def chromium(*flags):
    return ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *flags]


def problems(seen):
    """What is wrong with what was seen, a line each."""
    if "failed" in seen:
        return [seen["failed"]]
    found = []
    for page, saw in seen["pages"].items():
        found += [f"{page}: {error}" for error in saw["errors"]]
        found += [f"{page}: wider than the window"] if saw["wide"] else []
        found += [f"{page}: has no title"] if not saw["title"] and "404" not in page else []
        found += [f"{page}: a picture that does not load: {picture}" for picture in saw["pictures"]]
    for text, saw in seen["search"].items():
        found += [f"search {text!r}: {error}" for error in saw["errors"]]
        found += [] if saw["count"] and saw.get("found") else [f"search {text!r}: {saw}"]
    return found


def drive(address, answers):
    with tempfile.TemporaryDirectory() as profile:
        command = chromium(
            f"--user-data-dir={profile}", "--remote-debugging-port=0", f"{address}/__drive"
        )
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return answers.get(timeout=900)
        finally:
            browser.terminate()
            browser.wait(timeout=60)


def take_pictures(address, folder, pages):
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages:
        name = page.replace("/", "-").removesuffix(".html")
        for kind, width, where in (("desktop", 1280, page), ("phone", 390, f"__phone/{page}")):
            flags = (
                f"--screenshot={folder.resolve()}/site-{name}-{kind}.png",
                f"--window-size={max(width, 500)},1400",
            )
            subprocess.run(
                chromium(*flags, f"{address}/{where}"), capture_output=True, timeout=300, check=True
            )


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of pages")
    parser.add_argument(
        "--pages", nargs="*", default=PICTURED, help="pages to take pictures of (all: every page)"
    )
    options = parser.parse_args()
    pages = sorted(
        str(path.relative_to(options.site))
        for path in options.site.rglob("*.html")
        if path.name != "404.html"
    )
    answers, missing = queue.Queue(), []
    task = {"pages": pages, "widths": WIDTHS, "queries": QUERIES}
    serve = functools.partial(
        Server, root=options.site.resolve(), task=task, answers=answers, missing=missing
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        found = problems(drive(address, answers))
        if options.pictures:
            take_pictures(
                address, options.pictures, pages if options.pages == ["all"] else options.pages
            )
        server.shutdown()
    found += [f"a file that is not there: {path}" for path in sorted(set(missing))]
    print("\n".join(found))
    print(
        f"{len(pages)} pages at {len(WIDTHS)} widths, {len(QUERIES)} searches, {len(found)} problems"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
