"""Progress of a long run: lines of JSON, appended to a file that another process or thread reads."""

import json
import threading
import time
from concurrent.futures import Future

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

POLL_S = 0.2
FIRST_S, EVERY_S = 5, 30     # after which a phase is named, and named again, where output is not a terminal


def report_progress(path, phase, done=0, total=1, **numbers):
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


class Lines:
    """Progress for output that is not a terminal: a line for each phase of five seconds or more, and every half minute.

    Parameters
    ----------
    console : rich.console.Console
    """

    def __init__(self, console):
        self._console, self._phase, self._began, self._due = console, None, 0, 0

    def show(self, phase, share=None):
        """Print phase, share of the work, and seconds since the phase began, if that is due."""
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began, self._due = phase, now, now + FIRST_S
        if now < self._due:
            return
        self._due = now + EVERY_S
        done = "" if share is None else f"{share:.0%}, "
        self._console.print(f"{phase}: {done}{now - self._began:.0f} s", soft_wrap=True, markup=False, highlight=False)


def beside_bar(console, path, work, first, *, about="", notes=lambda progress: "", transient=False):
    """Run ``work()`` beside a progress bar, or :class:`Lines`; return its result or raise its exception.

    Parameters
    ----------
    path : Path or None
        File with the progress of ``work``, written by :func:`report_progress`. None: ``work`` is one phase, ``first``.
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
    share = (BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[notes]}")) if path else ()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *share, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=transient, disable=not console.is_terminal) as bar:
        task = bar.add_task(first["phase"], total=first.get("total"), notes="")
        lines = Lines(console)
        thread.start()
        while thread.is_alive():
            if progress := path and latest(path):
                bar.update(task, description=about + progress["phase"], completed=progress["done"],
                           total=max(progress["total"], 1), notes=notes(progress))
            if not console.is_terminal:
                lines.show(about + progress["phase"] if progress else first["phase"],
                           progress["done"] / max(progress["total"], 1) if progress else None)
            thread.join(POLL_S)
    return outcome.result()
