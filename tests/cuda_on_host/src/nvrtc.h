// A program to compile, and its options.
#pragma once
#include <stdio.h>

#include <string>
#include <utility>
#include <vector>

namespace emulated {

struct Program {
  std::string source, name = "default_program", architecture = "sm_75", log, image;
  int number = 75;
  bool is_virtual = false;  // compiled to PTX
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<std::string> defines;
};

// Compiles into `image`, or writes the reason of the failure to `log`.
bool build(Program& program);

// Kernel in a preprocessed source: its name, and the arguments of __launch_bounds__ and __cluster_dims__.
struct Declared {
  std::string name, bounds, cluster;
};
std::vector<Declared> declared_kernels(const std::string& source);
// Source appended so that the driver finds the kernels.
std::string registration(const std::vector<Declared>& kernels, const std::string& architecture);

}  // namespace emulated
