"""Bazel 4 asks for @rules_java to set up its toolchains; its rules are Bazel's own."""

java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
