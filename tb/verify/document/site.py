"""Hooks of mkdocs (``mkdocs.yml``): pages from the top of the tree, links to sources, the API reference."""

import inspect
import posixpath
import re

from griffe import DocstringSectionKind, Extension
from mkdocs.structure.files import File

from weft import driver
from weft.tb.sim.flow.sources import ROOT

TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):<code>~?([\w.]+)</code>")
# Pages of the API reference: title and folders or modules, in reading order.
PAGES = {
    "names": (),      # the table of `weft.driver`
    "verbs": ("driver/verbs", "driver/terms"), "connections": ("driver/cm", "driver/connection"),
    "asyncio": ("driver/aio",), "channel": ("driver/channel",), "device": ("driver/device",),
    "congestion": ("driver/congestion", "driver/terms/settings.py"),
    "models": ("model/link.py", "model/loss.py", "model/loop.py", "model/functional", "model/wan", "model/fabric"),
    "contract": ("hdl/contract",), "parts": ("hdl/part",), "card": ("hdl/card.py", "hdl/csr.py", "hdl/report.py"),
    "adamap": ("hdl/adamap",), "transmit": ("hdl/transmit",), "receive": ("hdl/receive",), "rings": ("hdl/ring",),
    "commands": ("hdl/command", "hdl/table"), "pcie": ("hdl/pcie",), "mac": ("hdl/mac",),
}


class Members(Extension):
    """Extension of griffe that lists the ports of a block: section Members of its docstring."""

    def on_instance(self, *, obj, **_):
        if not obj.docstring or "Members\n-------\n" not in obj.docstring.value:
            return
        obj.docstring.value = obj.docstring.value.replace("Members\n-------\n", "Attributes\n----------\n")
        sections = obj.docstring.parse("numpy", warnings=False)
        for section in sections:
            if section.kind is DocstringSectionKind.attributes:
                section.title = "Ports:"
        obj.docstring.parsed = sections


def _modules(place):
    """Yield the names of the modules of a file, or of the files below a folder."""
    files = [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py"))
    for file in files:
        parts = file.relative_to(ROOT).with_suffix("").parts
        if not any(part.startswith("_") for part in parts):
            yield ".".join(("weft", *parts))


def on_config(config):
    """Add the API pages to the navigation."""
    for section in config.nav:
        for entry in section.get("Reference", ()) if isinstance(section, dict) else ():
            if isinstance(entry, dict) and entry.get("API") == "api":
                entry["API"] = [{title: f"api/{title}.md"} for title in PAGES]


def on_files(files, config):
    """Add the pages from the top of the tree and those of the API reference."""
    for source, page in TOP.items():
        files.append(File.generated(config, page, content=_moved((ROOT / source).read_text(encoding="utf-8"))))
    for title, places in PAGES.items():
        modules = "\n\n".join(f"::: {module}" for place in places for module in _modules(place))
        content = f"# {title.capitalize()}\n\n{modules or _names()}\n"
        files.append(File.generated(config, f"api/{title}.md", content=content))
    return files


def _names():
    """Return the table of the public names of the driver, with links to the pages that describe them."""
    rows = ["`from weft.driver import NAME` gets each of them.", "", "| name | description |", "|---|---|"]
    for name in driver.__all__:
        value = getattr(driver, name)
        first = inspect.getdoc(value).partition("\n")[0]
        rows.append(f"| [`{name}`][{value.__module__}.{name}] | {first} |")
    return "\n".join(rows)


def _moved(text):
    """Return the text of a page from the top of the tree with its links relative to ``docs/``."""
    return LINK.sub(lambda found: found[1] + posixpath.normpath(posixpath.relpath(found[2], "docs")) + found[3], text)


def on_page_markdown(markdown, page, config, files):
    """Point links to files outside the site at the repository."""
    def target(found):
        path = posixpath.normpath(posixpath.join("docs", found[2]))
        if path in TOP:
            return found[1] + TOP[path] + found[3]
        if files.get_file_from_path(posixpath.relpath(path, "docs")):
            return found[0]
        return f"{found[1]}{config.repo_url}/blob/main/{path}{found[3]}"

    return LINK.sub(target, markdown)


def on_page_content(html, **_):
    """Show the roles of docstrings as code."""
    return ROLE.sub(lambda found: f"<code>{found[1].rpartition('.')[2]}</code>", html)
