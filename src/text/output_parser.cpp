// The state machine. `buffer` holds text that is not understood yet; each step reads the beginning
// of it or, when that may still become a tag, waits. Steps look at bounded beginnings only: linear
// time.
#include "text/output_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/call_arguments.h"
#include "text/json_value.h"
#include "text/stop_filter.h"
#include "text/tag_matcher.h"

namespace cedra::text {
namespace {

using Kind = Tag::Kind;

constexpr TagSet kThinkTags = tag_set(Kind::kThink, Kind::kThinkEnd);
constexpr TagSet kDsmlTags =
    tag_set(Kind::kCallsOpen, Kind::kCallsClose, Kind::kInvokeOpen, Kind::kInvokeClose,
            Kind::kParameterOpen, Kind::kParameterClose);
// A value ends at its closing tag, or where the model forgot it: at the next tag.
constexpr TagSet kValueEnds = kDsmlTags & ~tag_set(Kind::kCallsOpen);

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

struct OutputParser::Impl {
  enum class State : uint8_t {
    kReasoning,
    kContent,
    kCalls,     // in the block, between invokes
    kName,      // in the name of an invoke
    kNameTail,  // behind it, up to the end of the tag
    kInvoke,    // in an invoke, between parameters
    kKey,       // in the name of a parameter
    kValue,
    kDone,
  };

  explicit Impl(ParserOptions given)
      : options(std::move(given)), tools(!options.tools.empty()), stops(std::move(options.stop)) {
    if (options.eos_in_text) eos = tag_set(Kind::kEos);
    state = options.start == ParserStart::kReasoning ? State::kReasoning
            : options.start == ParserStart::kContent ? State::kContent
                                                     : State::kCalls;
  }

  ParserOptions options;
  bool tools;
  StopFilter stops;
  TagSet eos = 0;
  State state = State::kContent;
  std::string buffer;  // text not yet understood
  size_t at = 0;       // read so far of it
  std::vector<OutputEvent> events;

  std::string name;                        // of the invoke or parameter being read
  std::optional<CallArguments> arguments;  // of the open call; empty in an invoke that is no call
  int call_count = 0;
  bool block_closed = false;
  bool eos_seen = false;
  bool stop_seen = false;
  FinishReason reason = FinishReason::kStop;
  JsonReader reader;
  std::string shown_end;  // what was shown last, from its last '<' on; empty where no tag began
  bool dropped = false;   // a tag was taken out between what was shown and `rest()`

  std::string_view rest() const { return std::string_view(buffer).substr(at); }

  // ----- events

  void emit(OutputEvent::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (!events.empty() && events.back().kind == kind) {
      events.back().text += text;
      return;
    }
    OutputEvent event;
    event.kind = kind;
    event.text = text;
    if (kind == OutputEvent::Kind::kArguments) event.call = call_count - 1;
    events.push_back(std::move(event));
  }

  void emit_text(std::string_view text) {
    remember_end(text);
    if (state == State::kReasoning) {
      emit(OutputEvent::Kind::kReasoning, text);
    } else if (stops.empty()) {
      emit(OutputEvent::Kind::kContent, text);
    } else {
      std::string safe;
      stops.push(text, safe);
      emit(OutputEvent::Kind::kContent, safe);
      if (stops.matched()) {
        stop_seen = true;
        state = State::kDone;
      }
    }
  }

  void remember_end(std::string_view text) {
    constexpr size_t kLongestTag = 64;  // and more
    if (const size_t start = text.rfind('<'); start != std::string_view::npos) {
      shown_end = text.substr(start, kLongestTag);
    } else if (!shown_end.empty()) {
      shown_end += text.substr(0, kLongestTag);
    }
    if (shown_end.size() >= kLongestTag) shown_end.clear();
  }

  // Content ends here, for now or for good: nothing of it can become a stop string any more.
  void flush_stops() {
    std::string held;
    stops.flush(held);
    emit(OutputEvent::Kind::kContent, held);
  }

  void emit_arguments(const std::string& text) { emit(OutputEvent::Kind::kArguments, text); }

  void start_call() {
    state = State::kInvoke;
    if (name.empty()) return;  // no client can answer a call without a name
    OutputEvent event;
    event.kind = OutputEvent::Kind::kCallStart;
    event.text = name;
    event.call = call_count;
    event.id = options.make_id ? options.make_id(call_count) : fmt::format("call_{}", call_count);
    events.push_back(std::move(event));
    ++call_count;
    const auto tool = std::ranges::find(options.tools, name, &ToolDefinition::name);
    arguments.emplace(tool == options.tools.end() ? nullptr : &*tool);
  }

  void end_call() {
    state = State::kCalls;
    if (!arguments) return;
    std::string text;
    arguments->finish(text, reader);
    emit_arguments(text);
    arguments.reset();
    OutputEvent event;
    event.kind = OutputEvent::Kind::kCallEnd;
    event.call = call_count - 1;
    events.push_back(std::move(event));
    if (options.max_calls > 0 && call_count >= options.max_calls) close_block();
  }

  void close_block() {
    block_closed = true;
    state = State::kDone;
  }

  bool is_inside_call() const {
    return state == State::kInvoke || state == State::kKey || state == State::kValue;
  }

  void see_eos() {
    if (is_inside_call()) end_call();
    flush_stops();
    eos_seen = true;
    state = State::kDone;
  }

  // ----- steps: each reads something and returns true, or needs more text and returns false

  bool step() {
    switch (state) {
      case State::kReasoning:
      case State::kContent:
        return step_text();
      case State::kCalls:
        return step_calls();
      case State::kName:
        return step_name();
      case State::kNameTail:
        return step_name_tail();
      case State::kInvoke:
        return step_invoke();
      case State::kKey:
        return step_key();
      case State::kValue:
        return step_value();
      case State::kDone:
        at = buffer.size();
        return false;
    }
    return false;
  }

  void run() {
    while (at < buffer.size() && step()) {
    }
    buffer.erase(0, at);
    at = 0;
  }

  TagSet text_tags() const {
    TagSet tags = kThinkTags | eos;
    if (tools) tags |= state == State::kReasoning ? tag_set(Kind::kCallsOpen) : kDsmlTags;
    return tags;
  }

  // Where a tag was taken out, what stood on its two sides may form another one ("</thi" + "nk>").
  // Its beginning is shown already; its end is dropped. False: more text is needed.
  bool step_joined() {
    const std::string joined = shown_end + std::string(rest().substr(0, 64));
    const TagSet tags = text_tags();
    const bool begun = !shown_end.empty() && match_tag(shown_end, tags).kind == Kind::kPartial;
    const Tag tag = begun ? match_tag(joined, tags) : Tag{};
    if (tag.kind == Kind::kPartial) return false;
    if (tag.kind == Kind::kNone) {
      dropped = false;
    } else {
      at += tag.length - shown_end.size();
    }
    return true;
  }

  // Reasoning and content.
  bool step_text() {
    if (dropped) return step_joined();
    const std::string_view text = rest();
    const size_t stop = tools ? text.find_first_of("<\n") : text.find('<');
    if (stop != 0) {
      const size_t size = std::min(stop, text.size());
      at += size;
      emit_text(text.substr(0, size));
      return true;
    }
    // Line feeds in front of a block belong to it, two of them.
    const size_t feeds = std::min(text.find_first_not_of('\n'), text.size());
    const size_t kept = feeds - std::min<size_t>(feeds, 2);
    if (feeds == text.size()) return hold_text(kept);
    if (feeds > 0 && text[feeds] != '<') return pass_text(feeds);

    const Tag tag = match_tag(text.substr(feeds), text_tags());
    if (tag.kind == Kind::kNone) return pass_text(feeds + 1);
    if (tag.kind == Kind::kPartial) return hold_text(kept);
    const bool opens = tag.kind == Kind::kCallsOpen || tag.kind == Kind::kInvokeOpen;
    // One blank line is part of the block; a single line feed is not.
    const size_t shown = opens && feeds >= 2 ? kept : feeds;
    at += feeds + tag.length;
    emit_text(text.substr(0, shown));
    if (state != State::kDone) enter(tag.kind);
    return true;
  }

  bool pass_text(size_t size) {
    const std::string_view text = rest().substr(0, size);
    at += size;
    emit_text(text);
    return true;
  }

  // Shows what cannot be held back, and waits.
  bool hold_text(size_t shown) {
    pass_text(shown);
    return false;
  }

  // A whole tag in reasoning or content. Those that mean nothing here are dropped.
  void enter(Kind kind) {
    dropped = true;
    switch (kind) {
      case Kind::kThinkEnd:
        if (state == State::kReasoning) {
          state = State::kContent;
          shown_end.clear();
        }
        break;
      case Kind::kCallsOpen:
        if (state == State::kReasoning) shown_end.clear();
        flush_stops();
        state = State::kCalls;
        break;
      case Kind::kInvokeOpen:
        flush_stops();
        open_invoke();
        break;
      case Kind::kEos:
        see_eos();
        break;
      default:
        break;
    }
  }

  void open_invoke() { collect_name(State::kName); }
  void collect_name(State next) {
    name.clear();
    state = next;
  }

  bool step_calls() {
    const std::string_view text = rest();
    if (is_space(text.front())) {
      ++at;
      return true;
    }
    const Tag tag = text.front() == '<' ? match_tag(text, kDsmlTags | kThinkTags | eos) : Tag{};
    if (tag.kind == Kind::kPartial) return false;
    if (tag.kind == Kind::kNone) {
      if (call_count == 0) {
        state = State::kContent;  // it was no block: nothing the model says may get lost
        return true;
      }
      const size_t next = text.find('<', 1);
      at += std::min(next, text.size());
      return true;
    }
    at += tag.length;
    if (tag.kind == Kind::kInvokeOpen) {
      open_invoke();
    } else if (tag.kind == Kind::kEos) {
      see_eos();
    } else if (tag.kind == Kind::kCallsClose) {
      if (call_count > 0) {
        close_block();
      } else {
        state = State::kContent;
      }
    }
    return true;
  }

  // Adds what stands before the next of `ends` to the name; false if one of them is next.
  bool take_name(const char* ends) {
    const std::string_view text = rest();
    const size_t size = std::min(text.find_first_of(ends), text.size());
    name += text.substr(0, size);
    at += size;
    return size > 0;
  }

  bool step_name() {
    if (take_name("\"\n<")) return true;
    const std::string_view text = rest();
    if (text.front() == '<') return step_name_broken(State::kInvoke);
    ++at;
    if (text.front() == '"') {
      state = State::kNameTail;
    } else {
      start_call();  // the line ended before the closing quote
    }
    return true;
  }

  // A tag inside a name: the name was never closed.
  bool step_name_broken(State next) {
    const Tag tag = match_tag(rest(), kDsmlTags | eos);
    if (tag.kind == Kind::kPartial) return false;
    if (tag.kind == Kind::kNone) {
      name += '<';
      ++at;
      return true;
    }
    if (state == State::kName || state == State::kNameTail) start_call();
    state = next;
    return true;
  }

  bool step_name_tail() {
    const std::string_view text = rest();
    const size_t stop = text.find_first_of(">\n<");
    if (stop != 0) {
      at += std::min(stop, text.size());
      return true;
    }
    if (text.front() == '<') {
      const Tag tag = match_tag(text, kDsmlTags | eos);
      if (tag.kind == Kind::kPartial) return false;
      if (tag.kind == Kind::kNone) {
        ++at;
      } else {
        start_call();
      }
      return true;
    }
    ++at;
    start_call();
    return true;
  }

  bool step_invoke() {
    const std::string_view text = rest();
    const size_t stop = text.find('<');
    if (stop != 0) {
      const size_t size = std::min(stop, text.size());
      if (arguments) arguments->add_body(text.substr(0, size));
      at += size;
      return true;
    }
    const Tag tag = match_tag(text, kDsmlTags | eos);
    switch (tag.kind) {
      case Kind::kPartial:
        return false;
      case Kind::kNone:
        if (arguments) arguments->add_body("<");
        ++at;
        return true;
      case Kind::kParameterOpen:
        at += tag.length;
        collect_name(State::kKey);
        return true;
      case Kind::kInvokeClose:
        at += tag.length;
        end_call();
        return true;
      case Kind::kInvokeOpen:
      case Kind::kCallsClose:
        end_call();  // and read the tag again, outside
        return true;
      case Kind::kEos:
        at += tag.length;
        see_eos();
        return true;
      default:
        at += tag.length;
        return true;
    }
  }

  bool step_key() {
    if (take_name("\"<")) return true;
    const std::string_view text = rest();
    if (text.front() == '<') return step_name_broken(State::kInvoke);
    // Names are not escaped: only a quote with the rest of a tag behind it is the closing one.
    struct Ending {
      std::string_view text;
      CallArguments::Flag flag;
    };
    constexpr Ending kEndings[] = {
        {"\" string=\"true\">", CallArguments::Flag::kString},
        {"\" string=\"false\">", CallArguments::Flag::kJson},
        {"\">", CallArguments::Flag::kNone},
        {"\" string=\"true\"\n", CallArguments::Flag::kString},
        {"\" string=\"false\"\n", CallArguments::Flag::kJson},
        {"\"\n", CallArguments::Flag::kNone},
    };
    bool partial = false;
    for (const Ending& ending : kEndings) {
      const Fit result = fit(text, ending.text);
      partial = partial || result == Fit::kPartial;
      if (result != Fit::kYes) continue;
      at += ending.text.size();
      state = State::kValue;
      if (arguments) {
        std::string out;
        arguments->begin_value(name, ending.flag, out);
        emit_arguments(out);
      }
      return true;
    }
    if (partial) return false;
    name += '"';
    ++at;
    return true;
  }

  void add_value(std::string_view text) {
    if (!arguments) return;
    std::string out;
    arguments->add_value(text, out);
    emit_arguments(out);
  }

  bool step_value() {
    const std::string_view text = rest();
    const size_t stop = text.find('<');
    if (stop != 0) {
      const size_t size = std::min(stop, text.size());
      add_value(text.substr(0, size));
      at += size;
      return true;
    }
    const Tag tag = match_tag(text, kValueEnds | eos);
    if (tag.kind == Kind::kPartial) return false;
    if (tag.kind == Kind::kNone) {
      add_value("<");
      ++at;
      return true;
    }
    if (tag.kind == Kind::kParameterClose) at += tag.length;
    if (arguments) {
      std::string out;
      arguments->end_value(out, reader);
      emit_arguments(out);
    }
    state = State::kInvoke;
    return true;
  }

  // ----- the end

  void finish(OutputEnd end) {
    const bool cut = end == OutputEnd::kLength || end == OutputEnd::kAborted;
    // A last tag that lacks nothing but its '>'.
    if (!cut && (is_inside_call() || state == State::kCalls) && !buffer.empty()) {
      buffer += '>';
      const Tag tag = match_tag(buffer, kDsmlTags);
      if (tag.length == buffer.size() && state != State::kKey) {
        run();
      } else {
        buffer.pop_back();
      }
    }
    release();
    if (cut) {
      if (arguments) {
        std::string out;
        arguments->cut_off(out);
        emit_arguments(out);
        arguments.reset();
      }
    } else if (is_inside_call()) {
      end_call();
    } else if (state == State::kNameTail) {
      start_call();  // its name is whole
      end_call();
    }
    flush_stops();
    if (end == OutputEnd::kAborted && state != State::kDone) {
      reason = FinishReason::kAborted;
    } else if (block_closed || eos_seen || end == OutputEnd::kEos) {
      reason = call_count > 0 ? FinishReason::kToolCalls : FinishReason::kStop;
    } else if (end == OutputEnd::kLength && !stop_seen) {
      reason = FinishReason::kLength;
    }
    state = State::kDone;
  }

  // What was held back became no marker.
  void release() {
    const std::string text = std::exchange(buffer, {});
    at = 0;
    switch (state) {
      case State::kReasoning:
      case State::kContent:
        emit_text(text);
        break;
      case State::kValue:
        add_value(text);
        break;
      case State::kInvoke:
        if (arguments) arguments->add_body(text);
        break;
      default:
        break;
    }
  }
};

OutputParser::OutputParser(ParserOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

std::vector<OutputEvent> OutputParser::push(std::string_view piece) {
  impl_->buffer += piece;
  impl_->run();
  return std::exchange(impl_->events, {});
}

std::vector<OutputEvent> OutputParser::finish(OutputEnd end) {
  impl_->finish(end);
  return std::exchange(impl_->events, {});
}

bool OutputParser::done() const { return impl_->state == Impl::State::kDone; }
std::string_view OutputParser::matched_stop() const { return impl_->stops.match(); }
bool OutputParser::in_reasoning() const { return impl_->state == Impl::State::kReasoning; }
bool OutputParser::in_call() const {
  return impl_->state != Impl::State::kReasoning && impl_->state != Impl::State::kContent &&
         impl_->state != Impl::State::kDone;
}
int OutputParser::calls() const { return impl_->call_count; }
FinishReason OutputParser::finish_reason() const { return impl_->reason; }

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kAborted:
      return "aborted";
  }
  return "";
}

}  // namespace cedra::text
