// Errors are values: Result<T> holds a T or an Error with a code and a sentence for the user.
// A message names what is wrong, where, and what would be right. Codes map once to HTTP (server/).
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <utility>

namespace cedra {

enum class Code {
  kInvalid,      // the caller's input breaks a rule
  kNotFound,     // a named thing does not exist
  kUnsupported,  // valid, but not by this build or this checkpoint
  kCorrupt,      // bytes that contradict themselves
  kTooLarge,     // over a limit that the caller could have kept
  kExhausted,    // no room now; may work later or with other settings
  kUnavailable,  // shutting down, or not ready
  kCancelled,    // the caller asked for it
  kIo,           // the operating system said no
  kInternal,     // a defect of ours
};

struct Error {
  Code code = Code::kInternal;
  std::string message;
};

template <class T = void>
using Result = std::expected<T, Error>;

// return err(Code::kInvalid, "max_tokens must be at least 1, got {}", n);
template <class... Args>
std::unexpected<Error> err(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// Puts `where` in front of an error that is passed up.
inline std::unexpected<Error> wrap(const Error& error, std::string_view where) {
  return std::unexpected(Error{error.code, fmt::format("{}: {}", where, error.message)});
}

}  // namespace cedra

// CEDRA_TRY(expr): returns the error of a Result from the enclosing function, if it has one.
#define CEDRA_TRY(expr)                                                         \
  do {                                                                          \
    if (auto cedra_result_ = (expr); !cedra_result_.has_value()) [[unlikely]] { \
      return std::unexpected(std::move(cedra_result_).error());                 \
    }                                                                           \
  } while (false)

#define CEDRA_CONCAT_INNER_(a, b) a##b
#define CEDRA_CONCAT_(a, b) CEDRA_CONCAT_INNER_(a, b)

// CEDRA_ASSIGN(auto x, expr): x = value of a Result, or returns its error.
#define CEDRA_ASSIGN(target, expr) \
  CEDRA_ASSIGN_(CEDRA_CONCAT_(cedra_result_, __LINE__), target, expr)
#define CEDRA_ASSIGN_(name, target, expr)            \
  auto name = (expr);                                \
  if (!name.has_value()) [[unlikely]] {              \
    return std::unexpected(std::move(name).error()); \
  }                                                  \
  target = std::move(name).value()
