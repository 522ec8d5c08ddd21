"""Progress of a long run: lines of JSON, appended to a file that another process or thread reads."""

import json
import threading
from concurrent.futures import Future

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

POLL_S = 0.2


def tell(path, phase, done=0, total=1, **numbers):
    """Append ``{"phase", "done", "total", ...}`` to the file ``path``; do nothing if ``path`` is empty."""
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"phase": phase, "done": done, "total": total, **numbers}) + "\n")


def latest(path):
    """Return the last complete line of the file as a dict; None if there is none yet."""
    if not path.exists():
        return None
    lines = path.read_text().rpartition("\n")[0].splitlines()
    return json.loads(lines[-1]) if lines else None


def beside_bar(console, path, work, first, *, about="", notes=lambda news: "", transient=False):
    """Run ``work()`` beside a progress bar, if the console is a terminal; return its result or raise its exception.

    Parameters
    ----------
    path : Path
        File with the progress of ``work``, written by :func:`tell`.
    first : dict
        Shown before the first line of the file: ``phase``, and ``total`` if it is known.
    about : str
        Prefix of each phase.
    notes : callable(news)
        Returns the text after the bar.
    transient : bool
        Remove the bar at the end.
    """
    outcome = Future()

    def working():
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

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
    return outcome.result()
