// Finished responses and their conversations, for previous_response_id and GET /v1/responses/ID. In
// memory, bounded, the longest unused go first; nothing survives the process. Any thread.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/chat.h"

namespace cedra::server {

class ResponseStore {
 public:
  // At most so many bytes, counted roughly; 0: nothing is kept.
  explicit ResponseStore(size_t max_bytes) : max_bytes_(max_bytes) {}

  // `owner`: whose key it was; others do not find it. `body`: what the client was sent.
  void put(const std::string& id, size_t owner, std::vector<text::Message> messages,
           std::string body);
  // kNotFound names the id, also below.
  Result<std::vector<text::Message>> get(std::string_view id, size_t owner);
  Result<std::string> body(std::string_view id, size_t owner);
  Result<> erase(std::string_view id, size_t owner);
  size_t bytes() const;

 private:
  struct Entry {
    std::string id;
    size_t owner = 0;
    size_t bytes = 0;
    std::vector<text::Message> messages;
    std::string body;
  };
  using Entries = std::list<Entry>;
  // Under the mutex; the end if there is none or it is another's. Found ones count as used.
  Entries::iterator find(std::string_view id, size_t owner);
  void drop(Entries::iterator entry);

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  Entries entries_;  // last used first
  std::unordered_map<std::string_view, Entries::iterator> by_id_;
  size_t bytes_ = 0;
};

}  // namespace cedra::server
