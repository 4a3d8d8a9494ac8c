"""Loads the AR library into TensorFlow; `tensorflow.python.pywrap_tensorflow` calls it."""

import ctypes
import json
import os
import warnings

LIBRARY = "libtensorflow_ar.so"
PROTOCOLS = ("grpc+ar", "grpc+mpi", "grpc+verbs")

_handle = None


def load():
  """Registers our server protocols. Idempotent; ImportError names the library and the cure."""
  global _handle
  if _handle is not None:
    return
  path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), LIBRARY)
  try:
    handle = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    handle.ar_grpc_has_master.restype = ctypes.c_bool
    handle.ar_grpc_has_master.argtypes = [ctypes.c_char_p]
    handle.ar_grpc_status.restype = ctypes.c_size_t
    handle.ar_grpc_status.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    handle.ar_grpc_check_server.restype = ctypes.c_int
    handle.ar_grpc_check_server.argtypes = [
        ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
  except (OSError, AttributeError) as error:  # it lacks a library, or is another wheel's
    raise ImportError(
        f"cannot load {path}: {error}; reinstall the RDMA-enhanced TensorFlow wheel with "
        "pip install --force-reinstall") from error
  _handle = handle


def load_on_import():
  """load() for `import tensorflow`, which must not fail for those who never ask for our protocols."""
  try:
    load()
  except ImportError as error:
    warnings.warn(f"{', '.join(PROTOCOLS)} are not available: {error}", RuntimeWarning, stacklevel=2)


def check_server(server_def):
  """Raises what keeps a server of `server_def`, a ServerDef, from starting, before anything is made.

  An eager context whose server does not start ends the process (TensorFlow 2.14.1's
  EagerContextDistributedManager asks it for its session manager all the same). ImportError where
  the protocol needs a library that cannot be loaded, else the errors of tf.errors.
  """
  if server_def.protocol in PROTOCOLS:
    load()
  if _handle is None:
    return
  text = server_def.SerializeToString()
  why = ctypes.create_string_buffer(4096)
  code = _handle.ar_grpc_check_server(text, len(text), why, len(why))
  if code != 0:
    from tensorflow.python.framework import errors  # it imports what loads this module
    kind = errors.exception_type_from_error_code(code)
    raise kind(None, None, why.value.decode(errors="replace"))


def session_target(target):
  """`target` (bytes or None), as "grpc+ar://…" where one of our servers in this process serves it.

  Every server announces itself as "grpc://…", so that a session would be stock's.
  """
  stock, ours = b"grpc://", b"grpc+ar://"
  if target is None or not target.startswith(stock):
    return target
  try:
    load()
  except ImportError:
    return target  # It has said so on import, and made no server.
  return ours + target[len(stock):] if _handle.ar_grpc_has_master(target) else target


def status():
  """What our protocols have done in this process, as a dict of counters.

  `stream_bytes_sent`, `stream_bytes_received`, `rendezvous` (tensors read straight out of peers'
  memory), `rendezvous_bytes`, `chunk_bytes`, `staged_bytes` (copied into the arena first);
  `mpi_bytes_sent`, `mpi_bytes_received`, `verbs_links`, `verbs_bytes_sent`,
  `verbs_bytes_received` (of grpc+mpi and grpc+verbs); `cleanups` (of steps), `offers_open`,
  `links`, `paths` (server address to fabric), `far_us` (of far ones among them: by how many
  microseconds a round trip takes longer), `arena` (once a server runs), `protocols` (the table of
  protocols by size, measured on this machine, as text), and `protocols_outside_arena` (that of
  tensors in memory of other allocators).
  """
  load()
  size = 1 << 16
  while True:
    text = ctypes.create_string_buffer(size)
    length = _handle.ar_grpc_status(text, size)
    if length <= size:
      return json.loads(text.raw[:length])
    size = length
