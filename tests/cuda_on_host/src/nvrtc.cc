// The emulated compiler: kernels become a shared object of the host, by g++.
#include <dlfcn.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "nvrtc.h"

using emulated::Program;

namespace {

enum Answer { SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

const int known[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
const char* const ignored[] = {"-std", "-default-device", "-ptxas-options", "-fmad", "-use_fast_math", "-lineinfo", "-generate-line-info",
                               "-maxrregcount", "-extra-device-vectorization", "-restrict", "-device-as-default-execution-space",
                               "-G", "-w", "-disable-warnings", "-dopt", "-ftz", "-prec-div", "-prec-sqrt", "-diag-suppress", "-I"};

bool begins(const std::string& text, const char* with) { return text.compare(0, strlen(with), with) == 0; }

// Takes one option; false when it is unknown, with a word in the log.
bool take_option(Program& program, std::string option) {
  if (begins(option, "-D")) return program.defines.push_back(option), true;
  if (begins(option, "--define-macro=")) return program.defines.push_back("-D" + option.substr(15)), true;
  if (begins(option, "--")) option = option.substr(1);
  for (const char* name : {"-gpu-architecture=", "-arch="}) {
    if (!begins(option, name)) continue;
    program.architecture = option.substr(strlen(name));
    int number = 0, length = 0;
    bool read = sscanf(program.architecture.c_str(), "sm_%d%n", &number, &length) == 1;
    std::string rest = read ? program.architecture.substr((size_t)length) : "?";
    bool is_known = std::find(std::begin(known), std::end(known), number) != std::end(known);
    if (is_known && (rest.empty() || (rest == "a" && number >= 90) || (rest == "f" && number >= 100))) return program.number = number, true;
    program.log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
    return false;
  }
  for (const char* name : ignored)
    if (begins(option, name)) return true;
  program.log = "nvrtc: error: unrecognized option " + option + " found\n";
  return false;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 9000, SUCCESS; }

API const char* nvrtcGetErrorString(int answer) {
  switch (answer) {
    case SUCCESS: return "NVRTC_SUCCESS";
    case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case COMPILATION: return "NVRTC_ERROR_COMPILATION";
    default: return "NVRTC_ERROR unknown";
  }
}

API int nvrtcGetNumSupportedArchs(int* count) { return *count = (int)(sizeof known / sizeof *known), SUCCESS; }
API int nvrtcGetSupportedArchs(int* list) { return memcpy(list, known, sizeof known), SUCCESS; }

API int nvrtcCreateProgram(Program** program, const char* source, const char* name, int headers, const char* const* texts,
                           const char* const* names) {
  if (!program || !source || headers < 0) return INVALID_INPUT;
  Program* made = new Program;
  made->source = source;
  if (name && *name) made->name = name;
  for (int i = 0; i < headers; i++) made->headers.push_back({names[i], texts[i]});
  *program = made;
  return SUCCESS;
}

API int nvrtcDestroyProgram(Program** program) {
  if (!program || !*program) return INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return SUCCESS;
}

API int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  if (!program) return INVALID_PROGRAM;
  program->defines.clear(), program->log.clear();
  for (int i = 0; i < count; i++)
    if (!take_option(*program, options[i])) return INVALID_OPTION;
  return emulated::build(*program) ? SUCCESS : COMPILATION;
}

API int nvrtcGetProgramLogSize(Program* program, size_t* bytes) { return *bytes = program->log.size() + 1, SUCCESS; }
API int nvrtcGetProgramLog(Program* program, char* log) {
  memcpy(log, program->log.c_str(), program->log.size() + 1);
  return SUCCESS;
}
API int nvrtcGetCUBINSize(Program* program, size_t* bytes) { return *bytes = program->image.size(), SUCCESS; }
API int nvrtcGetCUBIN(Program* program, char* image) {
  memcpy(image, program->image.data(), program->image.size());
  return SUCCESS;
}
API int nvrtcGetPTXSize(Program*, size_t* bytes) { return *bytes = 1, SUCCESS; }
API int nvrtcGetPTX(Program*, char* text) { return *text = 0, SUCCESS; }
