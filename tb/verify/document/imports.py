"""Imports between folders, as a Mermaid flowchart drawn from the import statements."""

from pathlib import Path

from weft.tb.sim.flow.imports import candidates

ROOT = Path(__file__).resolve().parents[3]


def arrows(top, root=ROOT):
    """Return ``{(folder, imported folder)}`` among the folders of ``top``; deeper folders count as part of these."""
    folders = {file.parent.name for file in (root / top).glob("*/__init__.py")}
    found = set()
    for folder in folders:
        for file in (root / top / folder).rglob("*.py"):
            package = ".".join(["weft", *file.relative_to(root).parent.parts])
            for name in candidates(file, package):
                parts = name.split(".")
                if parts[:2] == ["weft", top] and len(parts) > 2 and parts[2] in folders - {folder}:
                    found.add((folder, parts[2]))
    return found


def without_detours(found):
    """Return the arrows that do not follow from others (transitive reduction)."""
    below = {}
    for a, b in found:
        below.setdefault(a, set()).add(b)

    def reach(start, seen):
        for b in below.get(start, ()):
            if b not in seen:
                seen.add(b)
                reach(b, seen)
        return seen

    return {(a, b) for a, b in found if not any(b in reach(c, set()) for c in below[a] - {b})}


def flowchart(top, root=ROOT):
    """Return Mermaid text of the folders of ``top``, with an arrow from each folder to each folder that it requires."""
    lines = ["```mermaid", "flowchart TB", *(f"  {a} --> {b}" for a, b in sorted(without_detours(arrows(top, root))))]
    return "\n".join([*lines, "```"])
