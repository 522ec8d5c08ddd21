"""What a long run tells of itself while it runs: lines of JSON, appended to a file that somebody else reads."""

import json
import threading

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

POLL_S = 0.2


def tell(path, phase, done=0, total=1, **numbers):
    """Append ``{"phase", "done", "total", ...}`` to the file ``path``; nothing if there is none."""
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"phase": phase, "done": done, "total": total, **numbers}) + "\n")


def latest(path):
    """The last whole line of the file, as a dict; None before the first."""
    if not path.exists():
        return None
    lines = path.read_text().rpartition("\n")[0].splitlines()
    return json.loads(lines[-1]) if lines else None


def beside_bar(console, path, work, first, *, about="", notes=lambda news: "", transient=False):
    """Run ``work()`` beside a progress bar, on a terminal; its result, or its exception.

    Parameters
    ----------
    console : rich.console.Console
    path : Path
        What ``work`` tells there is shown.
    first : dict
        Shown before the first news: ``phase``, and ``total`` unless it is not known.
    about : str
        In front of each phase.
    notes : callable(news)
        Text behind the bar.
    transient : bool
        The bar goes away in the end.
    """
    outcome = {}

    def working():
        try:
            outcome["value"] = work()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=working, daemon=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(),
               TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[notes]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=transient, disable=not console.is_terminal) as bar:
        task = bar.add_task(first["phase"], total=first.get("total"), notes="")
        thread.start()
        while thread.is_alive():
            if news := latest(path):
                bar.update(task, description=about + news["phase"], completed=news["done"],
                           total=max(news["total"], 1), notes=notes(news))
            thread.join(POLL_S)
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]
