"""``python -m tests.report.browser``: a report in headless chromium: drawing, links, search, no errors; pictures if asked.

The page is copied with a script behind its own that uses it as a reader does and writes down what it saw; chromium prints
the page as it is then.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import argand

PROBE = """
<script>
window.addEventListener("load", () => {
  const seen = { errors: window.seenErrors };
  const search = document.getElementById("search");
  const type = (text) => { search.value = text; search.dispatchEvent(new Event("input")); };
  const shown = () => [...document.querySelectorAll("#texts-list > details")].filter((box) => !box.hidden).length;
  seen.texts = shown();
  type("no text has this"); seen.none = shown();
  type("softmax"); seen.some = shown();
  const box = [...document.querySelectorAll("#texts-list > details")].find((each) => !each.hidden);
  box.open = true; fill(box, Number(box.id.slice(5)));
  seen.marks = box.querySelectorAll("mark").length;
  type("");
  seen.broken = [...document.querySelectorAll('a[href^="#"]')].filter((a) => !document.getElementById(a.hash.slice(1))).map((a) => a.hash);
  seen.outside = [...document.querySelectorAll("[src], [href]")].map((e) => e.getAttribute("src") || e.getAttribute("href")).filter((to) => !/^(#|data:)/.test(to));
  seen.bars = document.querySelectorAll("#timeline-chart rect").length;
  seen.memory = document.querySelectorAll("#memory-chart path").length;
  seen.perfetto = perfetto().traceEvents.length;
  seen.wide = document.documentElement.scrollWidth > window.innerWidth + 1;
  document.body.setAttribute("data-seen", btoa(JSON.stringify(seen)));
});
</script>
"""
EARLY = "<script>window.seenErrors = []; addEventListener('error', (e) => seenErrors.push(String(e.message)));</script>"


def program(x, w, scale):
    h = torch.softmax(x @ w, -1)
    if h.sum() > 0:  # a break
        h = h * scale  # a recompile
    print(end="")  # another break
    return torch.sort(h, -1)[0] + 1


def make(path):
    with argand.report(path) as made, torch.no_grad():
        made.program = "browser.py"  # a picture names no folder of this machine
        compiled = argand.compile(program, options={"measure": False}, dynamic=False)
        x, w = torch.randn(256, 256), torch.randn(256, 256)
        for step in range(16):
            compiled(x, w, 1.0 if step < 8 else 2.0)


def chromium(*flags, page):
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        *flags,
        f"file://{page}",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def look(page, width):
    probe = page.with_name("probe.html")
    text = page.read_text()
    probe.write_text(
        text.replace("<head>", f"<head>{EARLY}", 1).replace("</body>", f"{PROBE}</body>", 1)
    )
    shown = chromium(
        "--dump-dom", "--virtual-time-budget=4000", f"--window-size={width},900", page=probe
    )
    import base64

    return json.loads(base64.b64decode(re.search(r'data-seen="([^"]+)"', shown)[1]))


def check(seen):
    """What is wrong with what was seen."""
    wrong = [f"errors: {seen['errors']}"] if seen["errors"] else []
    wrong += [f"links to nowhere: {seen['broken']}"] if seen["broken"] else []
    wrong += [f"not in the file: {seen['outside']}"] if seen["outside"] else []
    wrong += (
        ["search"]
        if not (seen["none"] == 0 < seen["some"] < seen["texts"] and seen["marks"])
        else []
    )
    wrong += (
        ["drawings"]
        if not (seen["bars"] > 5 and seen["memory"] == 2 and seen["perfetto"] > 5)
        else []
    )
    return wrong + (["wider than the window"] if seen["wide"] else [])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        make(page)
        wrong = {width: check(look(page, width)) for width in (1280, 500)}
        print(json.dumps(wrong))
        if options.pictures:
            options.pictures.mkdir(parents=True, exist_ok=True)
            for name, width, height, more in (
                ("report", 1280, 1500, ()),
                ("report-dark", 1280, 1500, ("--blink-settings=preferredColorScheme=0",)),
                ("report-phone", 500, 1500, ()),
            ):
                out = options.pictures.resolve() / f"{name}.png"
                chromium(f"--screenshot={out}", f"--window-size={width},{height}", *more, page=page)
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
