"""``python -m weft.tb.verify.structure``: sizes of the source tree, its imports and annotations."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.figures import output, plain_table
from weft.tb.verify.structure import measure
from weft.tb.verify.structure.layers import ROOT

app = typer.Typer(add_completion=False)
WIDTH = 110       # columns, where the output is not a terminal


@app.command()
def main(root: Annotated[Path, typer.Option(help="Checkout to measure.", exists=True, file_okay=False)] = ROOT):
    """Print folders, files and lines by part, the largest files and functions, annotations, imports and builds."""
    console = output(WIDTH)
    console.print(part_table(root))
    rows = Table(show_header=False, box=None, pad_edge=False)
    files = {file.relative_to(root).as_posix(): file.read_bytes().count(b"\n") for file in measure.python_files(root)}
    large = max(files, key=files.get)
    rows.add_row("largest file", f"{files[large]} lines", large)
    found = measure.functions(root)
    longest = max(found, key=lambda function: function.lines)
    elaborates = [function for function in found if function.where.endswith(" elaborate")]
    hardware = max(elaborates, key=lambda function: function.lines)
    many = [function for function in found if function.arguments > measure.ARGUMENTS_MAX]
    rows.add_row("largest function", f"{longest.lines} lines", longest.where)
    rows.add_row("largest elaborate", f"{hardware.lines} lines", hardware.where)
    rows.add_row(f"functions of more than {measure.ARGUMENTS_MAX} arguments", f"{len(many)}",
                 ", ".join(sorted({function.where.split(":")[0] for function in many})[:3]))
    if checked := measure.functions(root, measure.checked_files(root)):
        annotated = sum(function.annotated for function in checked)
        rows.add_row("annotated functions of the type-checked packages", f"{100 * annotated / len(checked):.1f} %",
                     f"{annotated} of {len(checked)}")
    if root.resolve() == ROOT:
        count, upward = measure.import_edges()
        rows.add_row("import edges between folders", f"{count}", "")
        rows.add_row("upward import edges", f"{len(upward)}", ", ".join(f"{a} -> {b}" for a, b in upward))
        circles = measure.circles()
        rows.add_row("folders in import circles", f"{len(circles)}", ", ".join(circles))
    rows.add_row("simulator builds", f"{len([*(root / BUILD_ROOT.name).glob('*/ready')])}", BUILD_ROOT.name)
    console.print(rows)


def part_table(root):
    """Return a table of folders, files and lines by part, with sums."""
    table = plain_table("part", "folders", "files", "lines", left=("part",))
    found = measure.parts(root)
    tools = [row for part, row in found.items() if part.startswith("tb") and part != "tb/test"]
    adamap = [file for file in measure.python_files(root) if (root / "hdl/adamap") in file.parents]
    for part, row in found.items():
        table.add_row(part, *(f"{number:,}" for number in row))
    for name, rows in (("tb without tb/test", tools), ("all", found.values())):
        table.add_row(name, *(f"{sum(column):,}" for column in zip(*rows, strict=True)))
    table.add_row("hdl/adamap", "", f"{len(adamap):,}", "")
    return table


if __name__ == "__main__":
    app()
