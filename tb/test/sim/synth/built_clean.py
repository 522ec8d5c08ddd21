"""Lint of a design by the warnings of its build."""

from weft.tb.sim.flow.build import LOG
from weft.tb.sim.synth.lint import LintFailed


def built_clean(where):
    """Raise :class:`LintFailed` if Verilator's build in folder ``where`` logged warnings that no waiver covers.

    A build checks the Verilog as the lint does and logs the warnings; linting a card again takes a quarter of a
    minute.
    """
    output = [line for line in (where / LOG).read_text(errors="replace").splitlines() if line.startswith("%Warning")]
    if output:
        raise LintFailed(f"{where / LOG}: verilator -Wall reports\n" + "\n".join(output)[:4000])
