// What encode, parse and tokenize share: reading the input, and running cases.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "text/chat_cases.h"
#include "text/tokenizer.h"

namespace cedra::cli {

// A file's bytes, or standard input's for "-".
Result<std::string> read_input(const std::string& path);

// kInvalid, with the place of the first wrong byte, for what is not UTF-8. `what` names the text.
Result<> check_utf8(std::string_view what, std::string_view text);

// nullopt for an empty path.
Result<std::optional<text::Tokenizer>> load_tokenizer(const std::string& path);

// Runs the cases of a file and prints those that differ. Exit status: 0, 1 if any differs, 2 if
// they could not be run.
int run_check(const std::string& path, const text::CaseOptions& options);

// Prints the message to standard error; returns 2.
int fail(const Error& error);

}  // namespace cedra::cli
