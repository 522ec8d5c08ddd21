"""C programs of this folder and of the tests, linked with the library."""

import subprocess
from pathlib import Path

from weft.driver.ibverbs.build import compiler

HERE = Path(__file__).parent


def compiled(name, folder, library):
    """Build program ``NAME.c`` in ``folder``, with the library at path ``library``; return its path.

    ``name`` is a name in this folder, whose headers every program may include, or an absolute path without suffix.
    """
    source = HERE / f"{name}.c"
    program = Path(folder, source.stem)
    subprocess.run([compiler(), "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source, f"-I{HERE}",
                    f"-L{library.parent}", f"-l:{library.name}", "-lpthread"], check=True)
    return program
