"""Imports between folders, as a Mermaid flowchart drawn from the import statements."""

from weft.tb.verify.structure.layers import ROOT, edges, reachable


def arrows(top, root=ROOT):
    """Return ``{(folder, imported folder)}`` among the folders of ``top``; deeper folders count as part of these."""
    found = {tuple(folder.split("/")[1] for folder in ends) for ends in edges(root)
             if all(folder.startswith(f"{top}/") for folder in ends)}
    return {(a, b) for a, b in found if a != b}


def without_detours(found):
    """Return the arrows that do not follow from others (transitive reduction)."""
    return {(a, b) for a, b in found
            if not any(b in reachable(found, c) for begin, c in found if begin == a and c != b)}


def flowchart(top, root=ROOT):
    """Return Mermaid text of the folders of ``top``, with an arrow from each folder to each folder that it requires."""
    lines = ["```mermaid", "flowchart TB", *(f"  {a} --> {b}" for a, b in sorted(without_detours(arrows(top, root))))]
    return "\n".join([*lines, "```"])
