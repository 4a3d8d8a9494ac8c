"""Loads the AR library into TensorFlow; `tensorflow.python.pywrap_tensorflow` calls it."""

import ctypes
import os

LIBRARY = "libtensorflow_ar.so"

_handle = None


def load():
  """Registers the server protocol `grpc+ar`. Idempotent; ImportError names a missing library."""
  global _handle
  if _handle is not None:
    return
  path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), LIBRARY)
  try:
    _handle = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
  except OSError as error:
    raise ImportError(
        f"cannot load {path}: {error}; reinstall the RDMA-enhanced TensorFlow wheel with "
        "pip install --force-reinstall") from error
