// Makes a test program its own decoding worker, as main() of the real one does: included by any of
// its files, it takes over before the tests when the pool starts the program again.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "image/decode_worker.h"

namespace cedra::image::testing {

inline const bool kIsNoWorker = [] {
  std::vector<std::string> arguments;
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  in.close();
  if (arguments.size() == 3 && arguments[1] == kWorkerCommand) {
    std::_Exit(serve_decoding(std::stoll(arguments[2])));
  }
  return true;
}();

}  // namespace cedra::image::testing
