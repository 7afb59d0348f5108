// Test support: runs the built program as a user does and keeps what it printed.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace cedra::cli::testing {

struct Ran {
  int status = -1;     // exit status; -1: it did not run or a signal ended it
  std::string output;  // standard output and error
};

// `environment`: "NAME=value ..." in front of the command.
inline Ran run_with(const std::string& environment, const std::string& arguments) {
  const std::string command = environment + " " + CEDRA_BINARY + " " + arguments + " 2>&1";
  Ran result;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> block;
  while (const size_t got = std::fread(block.data(), 1, block.size(), pipe)) {
    result.output.append(block.data(), got);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

inline Ran run(const std::string& arguments) { return run_with("", arguments); }

inline std::string file_with(const std::string& name, const std::string& text) {
  const std::string path =
      (std::filesystem::temp_directory_path() / (name + "." + std::to_string(::getpid()))).string();
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace cedra::cli::testing
