"""Checks the links of a site of HTML files: each file and each anchor has to exist, and nothing may come from a network."""

import html.parser
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        for name in ("id", "name"):
            if values.get(name):
                self.anchors.add(values[name])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        for name in ("src",) if tag != "link" else ("href",):
            if values.get(name):
                self.loaded.append(values[name])


def broken_links(site):
    """Returns a line for each link that leads nowhere, and for each script, style or image of another host."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        if "psring-scene" in path.read_text()[:400_000] and not page.links:
            continue  # the step viewer's own page
        for link in page.loaded:
            parts = urllib.parse.urlsplit(link)
            if parts.netloc:
                broken.append(f"{path.relative_to(site)}: loads {link} from a network")
            elif parts.path and not parts.scheme and not (path.parent / urllib.parse.unquote(parts.path)).exists():
                broken.append(f"{path.relative_to(site)}: {link} does not exist")
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not file.exists():
                broken.append(f"{path.relative_to(site)}: {link} does not exist")
            elif parts.fragment and file in pages and urllib.parse.unquote(parts.fragment) not in pages[file].anchors:
                broken.append(f"{path.relative_to(site)}: {link} names no anchor")
    return broken
