// Runs g++ in a folder of its own, and keeps what it made by the hash of what it was given.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "nvrtc.h"

namespace emulated {
namespace {

namespace fs = std::filesystem;

// The folder of the emulator's own headers: beside the library, or where the variable says.
std::string include_folder() {
  if (const char* folder = getenv("SIDEREAL_EMULATED_INCLUDE")) return folder;
  Dl_info info;
  dladdr((void*)&include_folder, &info);
  return (fs::absolute(info.dli_fname).parent_path() / "include").string();
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string quoted(const std::string& word) {
  std::string result = "'";
  for (char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// What the host's processor does well; kernels may hold an exact fmaf in their inner loops.
const char* machine_options() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "-march=x86-64-v3" : "-march=x86-64";
}

std::string common_options(const Program& program) {
  std::string options = "-std=c++17 -O1 -fPIC -w -fmax-errors=20 -fno-strict-aliasing -ffp-contract=off -fno-gnu-unique -fwrapv -fno-exceptions "
                        "-fno-threadsafe-statics -fno-stack-protector -fsanitize=alignment -fsanitize-undefined-trap-on-error ";
  options += machine_options();
  options += " -D__CUDA_ARCH__=" + std::to_string(program.number * 10);
  if (program.architecture == "sm_90a") options += " -D__CUDA_ARCH_FEAT_SM90_ALL=1";
  for (const std::string& define : program.defines) options += " " + quoted(define);
  return options;
}

int run(const std::string& folder, const std::string& command) {
  return system(("cd " + quoted(folder) + " && " + command + " 2>errors").c_str());
}

std::string success_log(const std::vector<Declared>& kernels, const std::string& architecture) {
  std::string log = "ptxas info    : 0 bytes gmem\n";
  for (const Declared& kernel : kernels) {
    log += "ptxas info    : Compiling entry function '" + kernel.name + "' for '" + architecture + "'\n";
    log += "ptxas info    : Function properties for " + kernel.name + "\n";
    log += "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
    log += "ptxas info    : Used 32 registers, 0 bytes smem\n";
  }
  return log;
}

// The files of a compilation in a folder; ours stand in for those of the same name.
void lay_out(const Program& program, const fs::path& folder) {
  for (const auto& header : program.headers) write(folder / header.first, header.second);
  fs::copy(include_folder(), folder, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  write(folder / "kernels.cc", "#line 1 \"" + program.name + "\"\n" + program.source);
}

bool compile(Program& program, const std::string& folder) {
  std::string options = common_options(program);
  fs::path here(folder);
  // First only the preprocessor, which leaves the words that mark kernels where they are.
  std::string scan = "g++ -E -P -DEMULATED_SCAN " + options + " -I. -include prelude.h kernels.cc -o scanned";
  bool good = run(folder, scan) == 0;
  std::vector<Declared> kernels;
  if (good) {
    kernels = declared_kernels(read(here / "scanned"));
    write(here / "kernels.cc", "#line 1 \"" + program.name + "\"\n" + program.source + registration(kernels, program.architecture));
    good = run(folder, "g++ " + options + " -shared -Wl,-Bsymbolic -I. -include prelude.h kernels.cc -o module.so -lm") == 0;
  }
  // Of PTX the assembler has nothing to say.
  const std::string said = program.is_virtual ? "" : success_log(kernels, program.architecture);
  program.log = good ? said : read(here / "errors");
  program.image = good ? read(here / "module.so") : "";
  return good;
}

unsigned long long hash(const std::string& text, unsigned long long state) {
  for (unsigned char c : text) state = (state ^ c) * 0x100000001B3ull;
  return (state ^ text.size()) * 0x100000001B3ull;
}

// A name for everything that the outcome depends on.
std::string key(const Program& program) {
  unsigned long long first = 0xCBF29CE484222325ull, second = 0x9AE16A3B2F90404Full;
  auto add = [&](const std::string& text) { first = hash(text, first), second = hash(text, second); };
  add(program.source), add(program.name), add(program.architecture), add(common_options(program));
  for (const auto& header : program.headers) add(header.first), add(header.second);
  std::vector<fs::path> own;
  for (const auto& entry : fs::recursive_directory_iterator(include_folder()))
    if (entry.is_regular_file()) own.push_back(entry.path());
  std::sort(own.begin(), own.end());
  for (const fs::path& path : own) add(path.filename().string()), add(read(path));
  char name[64];
  snprintf(name, sizeof name, "%016llx%016llx", first, second);
  return name;
}

fs::path cache_folder() {
  const char* temporary = getenv("TMPDIR");
  return fs::path(temporary && *temporary ? temporary : "/tmp") / ("emulated-kernels-" + std::to_string(getuid()));
}

// The most bytes that the folder keeps.
uintmax_t most_bytes() {
  const char* mebibytes = getenv("SIDEREAL_EMULATED_CACHE_MIB");
  return (mebibytes ? strtoull(mebibytes, nullptr, 10) : 64) << 20;
}

bool from_cache(Program& program, const std::string& name) {
  fs::path image = cache_folder() / (name + ".so"), log = cache_folder() / (name + ".log");
  if (!fs::exists(image) || !fs::exists(log)) return false;
  program.image = read(image), program.log = read(log);
  std::error_code ignored;
  for (const fs::path& path : {image, log}) fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  // Another process may have removed one of them meanwhile.
  return !program.image.empty();
}

// Removes what was used longest ago until the rest fits, and what compilations that were killed left behind. Other
// processes may do the same at the same time.
void prune() {
  struct Kept {
    fs::file_time_type used;
    uintmax_t bytes;
    fs::path path;
  };
  std::vector<Kept> all;
  std::error_code error;
  const auto hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (fs::directory_iterator at(cache_folder(), error), end; !error && at != end; at.increment(error)) {
    std::error_code gone, is_folder;
    const auto used = at->last_write_time(gone);
    if (gone) continue;
    if (!at->is_directory(is_folder)) {
      const uintmax_t bytes = at->file_size(gone);
      if (!gone) all.push_back({used, bytes, at->path()});
    } else if (used < hour_ago && !getenv("SIDEREAL_EMULATED_KEEP")) {
      fs::remove_all(at->path(), gone);
    }
  }
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.used > b.used; });
  uintmax_t bytes = 0;
  for (const Kept& kept : all)
    if ((bytes += kept.bytes) > most_bytes()) fs::remove(kept.path, error);
}

// Written beside and renamed, so that another process never reads half of it; the image last.
void to_cache(const Program& program, const std::string& name) {
  static std::atomic<unsigned> count;
  std::string unique = "." + std::to_string(getpid()) + "." + std::to_string(count++);
  const std::pair<const char*, const std::string*> files[] = {{".log", &program.log}, {".so", &program.image}};
  for (const auto& [ending, text] : files) {
    fs::path path = cache_folder() / (name + ending), beside = path.string() + unique;
    write(beside, *text);
    fs::rename(beside, path);
  }
  prune();
}

}  // namespace

bool build(Program& program) {
  std::string name = key(program);
  if (from_cache(program, name)) return true;
  fs::create_directories(cache_folder());
  std::string pattern = (cache_folder() / "build-XXXXXX").string();
  if (!mkdtemp(pattern.data())) return program.log = "can't make a temporary folder\n", false;
  lay_out(program, pattern);
  bool good = compile(program, pattern);
  if (!getenv("SIDEREAL_EMULATED_KEEP")) fs::remove_all(pattern);
  if (good) to_cache(program, name);
  return good;
}

}  // namespace emulated
