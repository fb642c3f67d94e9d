// Finds the kernels in a source, and writes what registers them.
#include <ctype.h>

#include "nvrtc.h"

namespace emulated {
namespace {

bool is_letter(char c) { return isalnum((unsigned char)c) || c == '_'; }

// The place behind the bracket that closes the one at `open`.
size_t behind(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); i++) {
    if (text[i] == '(') depth++;
    if (text[i] == ')' && --depth == 0) return i + 1;
  }
  return text.size();
}

std::string trimmed(const std::string& text) {
  size_t first = text.find_first_not_of(" \t\n"), last = text.find_last_not_of(" \t\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// Reads on from behind `__global__`: words, with or without brackets, the last of them the kernel's name.
Declared declaration(const std::string& text, size_t at) {
  Declared kernel;
  while (at < text.size()) {
    while (at < text.size() && isspace((unsigned char)text[at])) at++;
    size_t begin = at;
    while (at < text.size() && is_letter(text[at])) at++;
    std::string word = text.substr(begin, at - begin);
    if (word.empty()) return {};
    while (at < text.size() && isspace((unsigned char)text[at])) at++;
    if (at >= text.size() || text[at] != '(') continue;
    size_t end = behind(text, at);
    if (word == "__launch_bounds__") kernel.bounds = text.substr(at + 1, end - at - 2);
    else if (word == "__cluster_dims__") kernel.cluster = text.substr(at + 1, end - at - 2);
    else if (word != "__attribute__" && word != "__maxnreg__") return kernel.name = word, kernel;
    at = end;
  }
  return {};
}

}  // namespace

std::vector<Declared> declared_kernels(const std::string& source) {
  std::vector<Declared> kernels;
  const std::string marker = "__global__";
  for (size_t at = source.find(marker); at != std::string::npos; at = source.find(marker, at + 1)) {
    if (at && is_letter(source[at - 1])) continue;
    // Kernels that are templates have no name that the host could ask for.
    size_t statement = source.find_last_of(";}", at);
    std::string before = source.substr(statement == std::string::npos ? 0 : statement + 1, at - (statement == std::string::npos ? 0 : statement + 1));
    if (before.find("template") != std::string::npos) continue;
    Declared kernel = declaration(source, at + marker.size());
    bool again = kernel.name.empty();
    for (const Declared& other : kernels) again |= other.name == kernel.name;
    if (!again) kernels.push_back({kernel.name, trimmed(kernel.bounds), trimmed(kernel.cluster)});
  }
  return kernels;
}

std::string registration(const std::vector<Declared>& kernels, const std::string& architecture) {
  std::string text =
      "\n#include \"registration.h\"\n"
      "emulated::Machine* emulated_machine;\n";
  std::string table;
  for (const Declared& kernel : kernels) {
    const std::string& name = kernel.name;
    text += "static void emulated_call_" + name + "(void** emulated_arguments) { emulated::call_kernel(" + name + ", emulated_arguments); }\n";
    std::string bounds = kernel.bounds.empty() ? "0" : "emulated::first_of(" + kernel.bounds + ")";
    std::string cluster = kernel.cluster.empty() ? "1" : "emulated::first_of(" + kernel.cluster + ")";
    std::string sizes = "emulated::Signature<decltype(&" + name + ")>";
    table += "  {\"" + name + "\", emulated_call_" + name + ", " + sizes + "::count, " + sizes + "::sizes, (unsigned)" + bounds + ", (unsigned)" + cluster + "},\n";
  }
  text += "static const emulated::Kernel emulated_kernels[] = {\n" + table + "  {nullptr, nullptr, 0, nullptr, 0, 0}};\n";
  text += "extern \"C\" __attribute__((visibility(\"default\"))) const emulated::Module emulated_module = {\"" + architecture + "\", " +
          std::to_string(kernels.size()) + ", emulated_kernels, &emulated_machine};\n";
  return text;
}

}  // namespace emulated
