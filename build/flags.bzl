"""Compiler flags of the delta build: the base wheel's own, so that both have one ABI."""

# Include folders, in the order that matters: our gRPC and its stubs before the wheel, which
# ships headers and stubs of an older gRPC; the pinned TensorFlow files before the wheel's copies.
GRPC = "external/grpc_ar"
PROTOBUF = "external/protobuf_src/src"
TENSORFLOW = "external/tensorflow_src"
WHEEL = "external/base_wheel/tensorflow/include"

COPTS = [
    "-D_GLIBCXX_USE_CXX11_ABI=1",
    "-DEIGEN_MAX_ALIGN_BYTES=64",
    "-fvisibility=hidden",
    # Upstream's warnings are upstream's.
    "-w",
]

WHEEL_INCLUDES = [
    "-isystem",
    WHEEL,
    "-isystem",
    WHEEL + "/external/com_google_absl",
    "-isystem",
    WHEEL + "/external/farmhash_archive/src",
]

# Of tests; compiler and linker. They see no less without the optimizer, which takes twice as long
# over what they add (and without it glibc has no _FORTIFY_SOURCE).
SANITIZERS = [
    "-O0",
    "-U_FORTIFY_SOURCE",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]
