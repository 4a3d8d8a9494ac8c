"""The rule that makes the wheel, in a folder of its own because its name is computed."""

load("@artf_tools//:tools.bzl", "PYTHON")

def _ar_wheel_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.add_all(["-m", "artf_cli.wheel"])
    arguments.add("--base", ctx.file.base)
    arguments.add("--library", ctx.file.library)
    arguments.add("--out", out.path)
    arguments.add_all(ctx.files.python, before_each = "--python")
    ctx.actions.run(
        executable = PYTHON,
        arguments = [arguments],
        inputs = ctx.files.base + ctx.files.library + ctx.files.python + ctx.files.data,
        outputs = [out],
        env = {"PYTHONPATH": "scripts", "PYTHONDONTWRITEBYTECODE": "1"},
        mnemonic = "ArWheel",
        progress_message = "Packing the wheel",
    )
    return [DefaultInfo(files = depset([out]))]

ar_wheel = rule(
    implementation = _ar_wheel_impl,
    attrs = {
        "base": attr.label(allow_single_file = [".whl"], mandatory = True),
        "library": attr.label(allow_single_file = [".so"], mandatory = True),
        "python": attr.label_list(allow_files = [".py"]),
        "data": attr.label_list(allow_files = True),
    },
)
