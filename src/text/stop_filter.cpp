// Knuth-Morris-Pratt for each string over one shared buffer of held-back text.
#include "text/stop_filter.h"

#include <algorithm>

namespace cedra::text {

StopFilter::StopFilter(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) continue;
    Stop stop{std::move(text), {}, 0};
    stop.fallback.assign(stop.text.size(), 0);
    size_t border = 0;
    for (size_t i = 1; i < stop.text.size(); ++i) {
      while (border > 0 && stop.text[i] != stop.text[border]) border = stop.fallback[border - 1];
      if (stop.text[i] == stop.text[border]) ++border;
      stop.fallback[i] = border;
    }
    stops_.push_back(std::move(stop));
  }
}

std::string_view StopFilter::match() const {
  return matched_ == nullptr ? std::string_view() : std::string_view(matched_->text);
}

void StopFilter::push(std::string_view piece, std::string& out) {
  if (matched_ != nullptr) return;
  held_ += piece;
  size_t at = held_.size() - piece.size();
  for (; at < held_.size(); ++at) {
    for (Stop& stop : stops_) {
      const char c = held_[at];
      while (stop.length > 0 && stop.text[stop.length] != c) {
        stop.length = stop.fallback[stop.length - 1];
      }
      if (stop.text[stop.length] == c) ++stop.length;
      if (stop.length < stop.text.size()) continue;
      // Of those that end here the longest wins: it leaves no part of itself behind.
      if (matched_ == nullptr || stop.text.size() > matched_->text.size()) matched_ = &stop;
      stop.length = 0;
    }
    if (matched_ != nullptr) {
      out.append(held_, 0, at + 1 - matched_->text.size());
      held_.clear();
      return;
    }
  }
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.length);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
}

void StopFilter::flush(std::string& out) {
  out += held_;
  held_.clear();
  for (Stop& stop : stops_) stop.length = 0;
}

}  // namespace cedra::text
