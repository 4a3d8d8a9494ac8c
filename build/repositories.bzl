"""The external repositories: pinned trees, patched and overlaid, and the base wheel.

All of it is done by `scripts/artf_cli/sources.py`, from `build/pins.toml`; nothing is fetched
from anywhere else. `ARTF_PYTHON` names the Python of the tool environment (scripts/artf sets it).
"""

_ENVIRON = ["ARTF_PYTHON", "ARTF_CACHE"]

def _sources(rctx, arguments):
    """Runs artf_cli.sources with `arguments` and this repository's folder."""
    python = rctx.os.environ.get("ARTF_PYTHON")
    if not python:
        fail("ARTF_PYTHON is not set; build with: scripts/artf build")

    # Reading these as labels makes Bazel run this again when they change.
    rctx.path(Label("//build:pins.toml"))
    scripts = rctx.path(Label("//scripts:artf_cli/sources.py")).dirname.dirname
    result = rctx.execute(
        [python, "-m", "artf_cli.sources"] + arguments + [str(rctx.path("."))],
        environment = {"PYTHONPATH": str(scripts)},
        timeout = 3600,
        quiet = False,
    )
    if result.return_code != 0:
        fail(result.stderr.strip().split("\n")[-1])

def _pinned_tree_impl(rctx):
    _sources(rctx, ["tree", rctx.attr.source])
    rctx.symlink(rctx.attr.build_file, "BUILD.bazel")
    rctx.file("WORKSPACE", "")

_pinned_tree = repository_rule(
    implementation = _pinned_tree_impl,
    attrs = {
        "source": attr.string(mandatory = True),
        "build_file": attr.label(mandatory = True),
    },
    environ = _ENVIRON,
)

def _base_wheel_impl(rctx):
    base = rctx.os.environ.get("ARTF_BASE", "tensorflow-cpu")
    python = rctx.os.environ.get("ARTF_WHEEL_PYTHON", "cp311")
    _sources(rctx, ["wheel", base, python])
    rctx.symlink(rctx.attr.build_file, "BUILD.bazel")
    rctx.file("WORKSPACE", "")

_base_wheel = repository_rule(
    implementation = _base_wheel_impl,
    attrs = {"build_file": attr.label(mandatory = True)},
    environ = _ENVIRON + ["ARTF_BASE", "ARTF_WHEEL_PYTHON"],
)

def _tools_impl(rctx):
    rctx.file("BUILD.bazel", "")
    rctx.file("WORKSPACE", "")
    rctx.file("tools.bzl", "PYTHON = %r\n" % rctx.os.environ.get("ARTF_PYTHON", "python3"))

_tools = repository_rule(implementation = _tools_impl, environ = _ENVIRON)

def ar_repositories():
    """Declares @grpc_ar, @protobuf_src, @tensorflow_src, @base_wheel and @artf_tools."""
    _pinned_tree(name = "grpc_ar", source = "grpc", build_file = "//build:grpc.BUILD")
    _pinned_tree(name = "tensorflow_src", source = "tensorflow", build_file = "//build:tensorflow.BUILD")
    _pinned_tree(name = "protobuf_src", source = "protobuf", build_file = "//build:protobuf.BUILD")
    _base_wheel(name = "base_wheel", build_file = "//build:base_wheel.BUILD")
    _tools(name = "artf_tools")
