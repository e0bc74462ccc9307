"""Look at a built site as a reader without a network would: every link, anchor, image and script must be there.

``python -m tools.check_site build/site`` prints what is wrong and exits with 1 if anything is.
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """What one page points to, and the places in it that can be pointed to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[tuple[str, str]] = []  # (tag, address)
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect one tag."""
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if name in given and tag != "base":
                self.targets.append((tag, given[name]))


def problems(root: pathlib.Path) -> list[str]:
    """What is wrong with the site, a line each."""
    pages = {path: Page(path.read_text()) for path in sorted(root.rglob("*.html"))}
    found = [] if pages else [f"{root} has no pages"]
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are absolute: a server shows it for any address
        for tag, target in page.targets:
            fault = _fault(root, path, tag, target, pages)
            if fault:
                found.append(f"{path.relative_to(root)}: {target}: {fault}")
    return found


def _fault(
    root: pathlib.Path, path: pathlib.Path, tag: str, target: str, pages: dict[pathlib.Path, Page]
) -> str:
    address = urllib.parse.urlsplit(target)
    if address.scheme or address.netloc:
        # A reader may follow a link to the outside; the page itself must need nothing from there.
        return "" if tag == "a" or address.scheme == "data" else "needs the network"
    place = (path.parent / urllib.parse.unquote(address.path)).resolve() if address.path else path
    place = place / "index.html" if place.is_dir() else place
    if not place.is_file() or root.resolve() not in place.resolve().parents:
        return "no such file"
    known = pages.get(root / place.resolve().relative_to(root.resolve()))
    fragment = urllib.parse.unquote(address.fragment)
    if (
        fragment
        and known is not None
        and fragment not in known.anchors
        and not fragment.startswith("__")
    ):
        return "no such place in that page"
    return ""


def main() -> int:
    """Check the site named on the command line."""
    root = pathlib.Path(sys.argv[1])
    found = problems(root)
    print("\n".join(found))
    count = len(list(root.rglob("*.html")))
    print(f"{count} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
