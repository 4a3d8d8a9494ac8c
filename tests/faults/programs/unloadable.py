"""A process that cannot load `libtensorflow_ar.so`, or gets another version's: what it still does,
and what it is told.

Prints the warnings of the import, the value of a step over a server of `grpc`, and the error of
whoever asks for `grpc+ar`.
"""

from __future__ import annotations

import ctypes
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

LIBRARY = "libtensorflow_ar.so"
WHY = "libibverbs.so.1: cannot open shared object file"


class Refusing(ctypes.CDLL):
    """As the loader where the library lacks another one."""

    def __init__(self, name: str | None, *arguments: Any, **options: Any) -> None:
        if name is not None and str(name).endswith(LIBRARY):
            raise OSError(WHY)
        super().__init__(name, *arguments, **options)


class Older(ctypes.CDLL):
    """As where the library is there, and has nothing of what it is asked for."""

    def __init__(self, name: str | None, *arguments: Any, **options: Any) -> None:
        ours = name is not None and str(name).endswith(LIBRARY)
        super().__init__("libm.so.6" if ours else name, *arguments, **options)


LOADERS = {"refuses": Refusing, "older": Older}


def error_of(what: Callable[[], Any]) -> dict[str, str]:
    try:
        what()
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {"error": "", "text": ""}


def main() -> None:
    settings = json.loads(sys.argv[1])
    ctypes.CDLL = LOADERS[settings["loader"]]  # type: ignore[misc]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import tensorflow as tf
        from tensorflow.python import ar_grpc

    def server(protocol: str) -> Any:
        cluster = tf.train.ClusterSpec({"ps": [settings[protocol]]})
        return tf.distribute.Server(cluster, "ps", 0, protocol=protocol)

    stock = server("grpc")
    with tf.Graph().as_default(), tf.compat.v1.Session(stock.target) as session:
        value = session.run(tf.reduce_sum(tf.range(1000))).item()
    result = {
        "warnings": [
            {"kind": warning.category.__name__, "text": str(warning.message)}
            for warning in caught
            if LIBRARY in str(warning.message)
        ],
        "value": value,
        "eager": tf.reduce_sum(tf.range(1000)).numpy().item(),
        "server": error_of(lambda: server("grpc+ar")),
        "again": error_of(lambda: server("grpc+ar")),
        "status": error_of(ar_grpc.status),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
