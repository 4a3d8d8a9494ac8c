"""The project's own TOML files, each validated against a model of all its entries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from pydantic import BaseModel, ConfigDict, ValidationError

from artf_cli.errors import ArtfError
from artf_cli.paths import REPO


class Strict(BaseModel):
    """A table that has the entries of its model and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_Table = TypeVar("_Table", bound=BaseModel)


def load(path: Path, model: type[_Table]) -> _Table:
    """Reads and validates a file; an ArtfError names the first wrong entry."""
    try:
        return model.model_validate(tomllib.loads(path.read_text()))
    except FileNotFoundError:
        name = path.relative_to(REPO) if path.is_relative_to(REPO) else path
        raise ArtfError(f"{path} is missing", f"restore it: git checkout -- {name}") from None
    except tomllib.TOMLDecodeError as error:
        raise ArtfError(f"{path} is not TOML: {error}", "mend the line it names") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ArtfError(f"{path}: {where}: {first['msg']}", "mend that entry") from None
