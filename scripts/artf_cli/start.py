"""Hands over to bootstrap.py, on a newer Python where this one is old. Python 2.7 can read it."""

import os
import sys

# The checkout stays as it is.
sys.dont_write_bytecode = True
# In place of this file's folder, whose modules would hide others' of the same names.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

if sys.version_info < (3, 6):
    sys.stderr.write(
        "artf: Python %s is too old; use Python 3.9 or newer\n" % sys.version.split()[0]
    )
    sys.exit(1)
if sys.version_info < (3, 9):
    from artf_cli import uv

    uv.hand_over(os.path.abspath(__file__))

from artf_cli import bootstrap  # noqa: E402

bootstrap.start()
