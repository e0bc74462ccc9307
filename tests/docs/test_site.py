"""tools.check_site finds what a reader without a network would stumble over."""

from tools.check_site import problems


def write(folder, **pages):
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return problems(folder)


def test_a_whole_site_has_no_problems(tmp_path):
    (tmp_path / "style.css").write_text("")
    good = (
        '<link href="style.css"><a href="other.html#there">x</a><a href="https://example.org">y</a>'
    )
    assert write(tmp_path, index=good, other='<h1 id="there">z</h1><a href="#there">t</a>') == []


def test_missing_files_places_and_things_from_outside_are_named(tmp_path):
    bad = '<a href="gone.html">a</a><a href="#nowhere">b</a><script src="https://example.org/s.js"></script>'
    assert write(tmp_path, index=bad) == [
        "index.html: gone.html: no such file",
        "index.html: #nowhere: no such place in that page",
        "index.html: https://example.org/s.js: needs the network",
    ]


def test_an_empty_site_is_a_problem(tmp_path):
    assert problems(tmp_path) == [f"{tmp_path} has no pages"]
