"""docs/clusters.md: each of its commands is run by a test, or it says that it is not."""

from __future__ import annotations

import re
from pathlib import Path

from artf_cli.containers.images import QUICKSTART, image_name
from common.page import CLUSTERS, PAGE

#: Blocks that no test runs as they stand; what is tested of them instead.
NOT_RUN = {
    "Apptainer": "test_a_python_of_several_words",
    "Kubernetes": "test_the_manifests_are_valid",
}
_SOURCES = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]


def test_every_block_is_run_or_said_not_to_be() -> None:
    run = {name for text in _SOURCES for name in re.findall(r"""PAGE\[["']([^"']+)["']\]""", text)}
    assert set(PAGE) - set(NOT_RUN) <= run
    assert run <= set(PAGE)
    text = CLUSTERS.read_text()
    for heading, test in NOT_RUN.items():
        said = text.partition(f"## {heading}\n\n")[2]
        assert said.startswith("Not run here: "), heading
        assert any(f"def {test}(" in source for source in _SOURCES), test


def test_apptainer_is_given_the_image_that_artf_makes() -> None:
    words = PAGE["Apptainer"].split()
    assert image_name(QUICKSTART, "latest") in words
    archive = words[words.index("-o") + 1]
    assert f"docker-archive:{archive}" in words
