// Writes gRPC's C++ stubs of services: protoc's command line with gRPC's generator as its only one,
// so that neither the machine's protoc nor a plugin of it is needed.
#include <google/protobuf/compiler/command_line_interface.h>

#include "src/compiler/cpp_plugin.h"

int main(int argc, char** argv) {
  CppGrpcGenerator generator;
  google::protobuf::compiler::CommandLineInterface command_line;
  command_line.RegisterGenerator("--grpc_out", &generator, "Writes C++ stubs of services.");
  return command_line.Run(argc, argv);
}
