"""Writes an image's bill of materials (CycloneDX, JSON): Debian packages, Python packages, sources.

docker/runtime.Dockerfile runs it in an environment of its own: `sbom.py STATUS SITE OUT`, with
dpkg's status file, the folder of the installed Python packages, and the file to write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    XsUri,
)
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot5
from packageurl import PackageURL

_LONGEST_LICENCE = 100
_CLASSIFIER = "License :: OSI Approved :: "


def debian_packages(status: str) -> Iterator[Component]:
    """The installed packages of dpkg's status file."""
    for stanza in status.split("\n\n"):
        fields = HeaderParser().parsestr(stanza.strip())
        if fields["Status"] != "install ok installed":
            continue
        name, version = str(fields["Package"]), str(fields["Version"])
        where = {"arch": str(fields["Architecture"]), "distro": "debian"}
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("deb", "debian", name, version, where),
        )


def _licence(distribution: Distribution) -> str:
    """A Python package's licence, as it says it in one of three ways; empty when it does not."""
    metadata = distribution.metadata
    lines = metadata.get_all("License-Expression") or metadata.get_all("License") or [""]
    said = str(lines[0])
    classifiers = [
        line[len(_CLASSIFIER) :]
        for line in metadata.get_all("Classifier") or []
        if line.startswith(_CLASSIFIER)
    ]
    # Some put the whole text there.
    if not said or "\n" in said or len(said) > _LONGEST_LICENCE:
        said = ", ".join(classifiers)
    return said


def python_packages(site: Path) -> Iterator[Component]:
    """The installed Python packages; ours has the sources that it was built from as its parts."""
    for distribution in distributions(path=[str(site)]):
        name, version = distribution.metadata["Name"], distribution.version
        licence = _licence(distribution)
        built = distribution.read_text("ar_grpc/build.json")
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("pypi", None, name, version),
            licenses=[LicenseFactory().make_from_string(licence)] if licence else None,
            components=list(_sources(json.loads(built))) if built else None,
        )


def _sources(built: dict[str, dict[str, dict[str, dict[str, str]]]]) -> Iterator[Component]:
    for name, pin in built["sources"].items():
        upstream = pin["upstream"]
        yield Component(
            name=name,
            version=str(pin["version"]),
            type=ComponentType.LIBRARY,
            purl=PackageURL("generic", None, name, str(pin["version"])),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=upstream["sha256"])],
            external_references=[
                ExternalReference(
                    type=ExternalReferenceType.DISTRIBUTION, url=XsUri(upstream["url"])
                )
            ],
        )


def main() -> None:
    """The entry for the Dockerfile."""
    status, site, out = (Path(word) for word in sys.argv[1:])
    parts = [*debian_packages(status.read_text()), *python_packages(site)]
    text = JsonV1Dot5(Bom(components=parts)).output_as_string(indent=1)
    out.write_text(text)


if __name__ == "__main__":
    main()
