"""What a long run tells of itself while it runs: lines of JSON, appended to a file that somebody else reads."""

import json


def tell(path, phase, done=0, total=1, **numbers):
    """Append ``{"phase", "done", "total", ...}`` to the file ``path``; nothing if there is none."""
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"phase": phase, "done": done, "total": total, **numbers}) + "\n")
