"""C programs of this folder, linked with the library."""

import subprocess
from pathlib import Path

from weft.driver.ibverbs.build import compiler


def compiled(name, folder, library):
    """Build program ``NAME.c`` of this folder in ``folder``, with the library at path ``library``; return its path."""
    program = Path(folder, name)
    subprocess.run([compiler(), "-O2", "-Wall", "-Wextra", "-Werror", "-o", program,
                    Path(__file__).with_name(f"{name}.c"), f"-L{library.parent}", f"-l:{library.name}", "-lpthread"],
                   check=True)
    return program
