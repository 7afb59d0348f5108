// Conversations of finished responses, for previous_response_id. In memory, bounded, the longest
// unused go first; nothing survives the process. Any thread.
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
  // At most so many bytes of conversations, counted roughly; 0: nothing is kept.
  explicit ResponseStore(size_t max_bytes) : max_bytes_(max_bytes) {}

  // `owner`: whose key it was; others do not find it.
  void put(const std::string& id, size_t owner, std::vector<text::Message> messages);
  // kNotFound names the id.
  Result<std::vector<text::Message>> get(std::string_view id, size_t owner);
  size_t bytes() const;

 private:
  struct Entry {
    std::string id;
    size_t owner = 0;
    size_t bytes = 0;
    std::vector<text::Message> messages;
  };
  void drop_last();

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_id_;
  size_t bytes_ = 0;
};

}  // namespace cedra::server
