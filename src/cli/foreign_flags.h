// Flags that vLLM's and SGLang's recipes for this model use (spec chat.md 4.9). What is built in or
// would change nothing is accepted, with a warning where someone might expect an effect; what would
// change answers is refused with its reason.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cedra::cli {

// Declares them on the command; afterwards `warnings` says which of those given are ignored.
class ForeignFlags {
 public:
  explicit ForeignFlags(CLI::App& command);
  std::vector<std::string> warnings() const;

 private:
  struct Ignored {
    CLI::Option* option;
    const char* why;
  };

  std::vector<Ignored> ignored_;
};

}  // namespace cedra::cli
