#include "server/response_store.h"

#include <iterator>

namespace cedra::server {
namespace {

size_t size_of(const std::vector<text::Message>& messages) {
  size_t bytes = 0;
  for (const text::Message& message : messages) {
    bytes += sizeof message + message.reasoning.size() + message.tool_call_id.size();
    for (const auto& part : message.content) bytes += sizeof part + part.text.size();
    for (const auto& call : message.tool_calls) {
      bytes += sizeof call + call.id.size() + call.name.size() + call.arguments.size();
    }
  }
  return bytes;
}

std::unexpected<Error> not_found(std::string_view id) {
  return err(Code::kNotFound, "response with id \"{}\" not found: it is not kept here (any more)",
             id.substr(0, 100));
}

}  // namespace

void ResponseStore::put(const std::string& id, size_t owner, std::vector<text::Message> messages,
                        std::string body) {
  const size_t bytes = size_of(messages) + body.size() + id.size() + sizeof(Entry);
  if (bytes > max_bytes_) return;
  const std::lock_guard lock(mutex_);
  if (by_id_.contains(id)) return;
  while (bytes_ + bytes > max_bytes_) drop(std::prev(entries_.end()));
  entries_.push_front({id, owner, bytes, std::move(messages), std::move(body)});
  by_id_.emplace(entries_.front().id, entries_.begin());
  bytes_ += bytes;
}

Result<std::vector<text::Message>> ResponseStore::get(std::string_view id, size_t owner) {
  const std::lock_guard lock(mutex_);
  const auto found = find(id, owner);
  if (found == entries_.end()) {
    return err(Code::kNotFound,
               "previous_response_id: response \"{}\" is not kept here (any more); send the whole "
               "input",
               id.substr(0, 100));
  }
  return found->messages;
}

Result<std::string> ResponseStore::body(std::string_view id, size_t owner) {
  const std::lock_guard lock(mutex_);
  const auto found = find(id, owner);
  if (found == entries_.end()) return not_found(id);
  return found->body;
}

Result<> ResponseStore::erase(std::string_view id, size_t owner) {
  const std::lock_guard lock(mutex_);
  const auto found = find(id, owner);
  if (found == entries_.end()) return not_found(id);
  drop(found);
  return {};
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

ResponseStore::Entries::iterator ResponseStore::find(std::string_view id, size_t owner) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->owner != owner) return entries_.end();
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second;
}

void ResponseStore::drop(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace cedra::server
