"""Counts the messages that TensorFlow's Python modules describe, and names the MessageSets."""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto


def described(source: str) -> Iterator[bytes]:
    """The serialized descriptors of files that a generated module hands to its pool."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    for call in calls:
        if getattr(call.func, "attr", "") == "AddSerializedFile":
            yield ast.literal_eval(call.args[0])


def with_nested(messages: Iterable[Any]) -> Iterator[Any]:
    for message in messages:
        yield message
        yield from with_nested(message.nested_type)


def main() -> None:
    seen, sets = 0, []
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        for name in wheel.namelist():
            if not name.endswith("_pb2.py"):
                continue
            for serialized in described(wheel.read(name).decode()):
                file = FileDescriptorProto.FromString(serialized)
                for message in with_nested(file.message_type):
                    seen += 1
                    if message.options.message_set_wire_format:
                        sets.append(f"{file.name}: {message.name}")
    print(json.dumps({"messages": seen, "sets": sets}))


if __name__ == "__main__":
    main()
