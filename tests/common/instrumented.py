"""Whether sanitizers look on: they take memory and time themselves (artf_cli/sanitizers.py)."""

import os

#: AddressSanitizer keeps freed memory, a shadow of all of it, and checks each access.
INSTRUMENTED = "libasan" in os.environ.get("LD_PRELOAD", "")
