// The prompt encoder (spec chat.md 2): turns, headers, old reasoning, tools, images.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "text/chat.h"
#include "text/dsml_history.h"
#include "text/json_value.h"
#include "text/markup.h"
#include "text/prompt_builder.h"
#include "text/prompt_text.h"

namespace cedra::text {
namespace {

constexpr std::string_view kBreak = "\n\n";

// Messages of one turn: several for a user turn, one for the others.
struct Turn {
  Role role = Role::kUser;  // kSystem, kUser, kAssistant or kReminder
  std::vector<const Message*> messages;
  std::optional<Task> task;
};

bool is_user_like(const Turn& turn, size_t index) {
  return turn.role == Role::kUser || (turn.role == Role::kSystem && index > 0);
}

// Chat.md 2.7: user and tool messages that follow each other share a turn; a task closes it.
std::vector<Turn> merge_turns(const std::vector<Message>& messages) {
  std::vector<Turn> turns;
  for (const Message& message : messages) {
    Role role = message.role;
    if (role == Role::kTool) role = Role::kUser;
    if (role == Role::kDeveloper) role = Role::kSystem;
    const bool joins = role == Role::kUser && !turns.empty() && turns.back().role == Role::kUser &&
                       !turns.back().task;
    if (!joins) turns.push_back({role, {}, std::nullopt});
    turns.back().messages.push_back(&message);
    if (message.task) turns.back().task = message.task;
  }
  return turns;
}

// The tool results of a turn, moved among their own places into the order of the calls before them.
void sort_results(Turn& turn, const Message& caller) {
  std::unordered_map<std::string_view, size_t> ranks;
  for (size_t i = 0; i < caller.tool_calls.size(); ++i) {
    if (!caller.tool_calls[i].id.empty()) ranks[caller.tool_calls[i].id] = i;
  }
  const auto rank = [&](const Message* message) {
    const auto found = ranks.find(message->tool_call_id);
    return found == ranks.end() ? size_t{0} : found->second;
  };
  // By rank, then by place: a stable order.
  std::vector<std::pair<size_t, size_t>> order;
  std::vector<const Message*> results;
  for (const Message* message : turn.messages) {
    if (message->role != Role::kTool) continue;
    order.emplace_back(rank(message), results.size());
    results.push_back(message);
  }
  std::ranges::sort(order);
  auto next = order.begin();
  for (const Message*& message : turn.messages) {
    if (message->role == Role::kTool) message = results[(next++)->second];
  }
}

class Encoder {
 public:
  Encoder(const Conversation& conversation, const ChatOptions& options)
      : conversation_(conversation), options_(options) {}

  Result<Prompt> run() {
    CEDRA_TRY(check());
    turns_ = merge_turns(conversation_.messages);
    find_kept_reasoning();

    out_.trusted(markup::kBos);
    size_t index = 0;
    if (!turns_.empty() && turns_.front().role == Role::kSystem) {
      CEDRA_TRY(write_first_system(turns_.front().messages.front()));
      index = 1;
    } else {
      CEDRA_TRY(write_first_system(nullptr));
    }
    const Message* caller = nullptr;
    for (; index < turns_.size(); ++index) {
      Turn& turn = turns_[index];
      if (turn.role == Role::kAssistant) {
        if (!turn.messages.front()->tool_calls.empty()) caller = turn.messages.front();
      } else if (turn.role == Role::kUser && caller != nullptr) {
        sort_results(turn, *caller);
      }
      CEDRA_TRY(write_turn(index));
    }
    if (options_.header_last && options_.add_generation_prompt && !continues() && !ends_in_task()) {
      write_header(options_.thinking);
    }
    if (forced()) {
      out_.trusted(kBreak);
      out_.trusted(markup::kCallsOpen);
      out_.trusted("\n");
      start_ = ParserStart::kCalls;
    }
    Prompt prompt = out_.take();
    prompt.start = start_;
    prompt.tools = std::move(shown_tools_);
    return prompt;
  }

 private:
  bool forced() const {
    return options_.tool_choice.kind == ToolChoice::Kind::kRequired ||
           options_.tool_choice.kind == ToolChoice::Kind::kNamed;
  }
  bool continues() const {
    if (options_.continue_final_message) return true;
    return !conversation_.messages.empty() &&
           conversation_.messages.back().role == Role::kAssistant &&
           conversation_.messages.back().without_eos;
  }
  bool ends_in_task() const { return !turns_.empty() && turns_.back().task.has_value(); }
  bool shows(const ToolDefinition& tool) const {
    switch (options_.tool_choice.kind) {
      case ToolChoice::Kind::kNone:
        return false;
      case ToolChoice::Kind::kNamed:
        return tool.name == options_.tool_choice.name;
      case ToolChoice::Kind::kAuto:
      case ToolChoice::Kind::kRequired:
        return true;
    }
    return true;
  }

  Result<> check() {
    if (options_.effort < 1 || options_.effort > 100) {
      return err(Code::kInvalid, "effort: expected an integer from 1 to 100, got {}",
                 options_.effort);
    }
    const auto& messages = conversation_.messages;
    if (options_.continue_final_message &&
        (messages.empty() || messages.back().role != Role::kAssistant)) {
      return err(Code::kInvalid,
                 "continue_final_message: the last message must be an assistant message");
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      const Role role = messages[i].role;
      if (role != Role::kAssistant && !messages[i].tool_calls.empty()) {
        return err(Code::kInvalid,
                   "messages.{}: tool_calls belong to assistant messages, not to {}", i,
                   role_name(role));
      }
    }
    if (!forced()) return {};
    if (options_.thinking) {
      return err(Code::kInvalid, "Thinking mode does not support this tool_choice");
    }
    bool any = std::ranges::any_of(conversation_.tools, [&](const auto& t) { return shows(t); });
    for (const Message& message : messages) {
      any = any || std::ranges::any_of(message.tools, [&](const auto& t) { return shows(t); });
    }
    if (any) return {};
    if (options_.tool_choice.kind == ToolChoice::Kind::kNamed) {
      return err(Code::kInvalid, "tool_choice: no tool named '{}' was specified",
                 options_.tool_choice.name);
    }
    return err(Code::kInvalid, "tool_choice: 'required' needs at least one tool");
  }

  // Chat.md 2.5: which assistants keep their reasoning.
  void find_kept_reasoning() {
    const auto any_shown = [&](const std::vector<ToolDefinition>& tools) {
      return std::ranges::any_of(tools, [&](const ToolDefinition& tool) { return shows(tool); });
    };
    keep_all_ = !options_.drop_thinking || any_shown(conversation_.tools) ||
                std::ranges::any_of(conversation_.messages,
                                    [&](const Message& m) { return any_shown(m.tools); });
    for (size_t i = 0; i < turns_.size(); ++i) {
      if (is_user_like(turns_[i], i)) border_ = i + 1;
    }
  }
  // Whether an assistant at this index has a reasoning part.
  bool keeps(size_t index) const { return options_.thinking && (keep_all_ || index >= border_); }

  // The system turn at index 0; nullptr if the conversation has none.
  Result<> write_first_system(const Message* message) {
    std::vector<const ToolDefinition*> tools;
    if (message != nullptr) collect_tools(message->tools, tools);
    collect_tools(conversation_.tools, tools);
    const std::optional<std::string>* format = &conversation_.response_format;
    if (message != nullptr && message->response_format) format = &message->response_format;
    if (message == nullptr && !options_.thinking && tools.empty() && !*format) return {};

    out_.trusted(markup::kSystem);
    if (options_.thinking) {
      out_.trusted(prompt_text::kEffortBegin);
      out_.trusted(std::to_string(options_.effort));
      out_.trusted(prompt_text::kEffortEnd);
    }
    if (message != nullptr) CEDRA_TRY(write_content(*message));
    write_system_end(tools, *format);
    return {};
  }

  void collect_tools(const std::vector<ToolDefinition>& from,
                     std::vector<const ToolDefinition*>& tools) {
    for (const ToolDefinition& tool : from) {
      if (!shows(tool)) continue;
      tools.push_back(&tool);
      shown_tools_.push_back(tool);
    }
  }

  // What follows a system text: tools, then the response format.
  void write_system_end(const std::vector<const ToolDefinition*>& tools,
                        const std::optional<std::string>& format) {
    if (!tools.empty()) {
      out_.trusted(kBreak);
      out_.trusted(prompt_text::kToolsBegin);
      for (size_t i = 0; i < tools.size(); ++i) {
        if (i > 0) out_.trusted("\n");
        write_schema(*tools[i]);
      }
      out_.trusted(prompt_text::kToolsEnd);
    }
    if (format) {
      out_.trusted(kBreak);
      out_.trusted(prompt_text::kResponseFormat);
      out_.plain(*format);
    }
  }

  void write_schema(const ToolDefinition& tool) {
    if (options_.all_schema_keys) {
      out_.plain(tool.function);
      return;
    }
    std::string line = "{\"name\": ";
    append_json_string(tool.name, line);
    line += ", \"description\": ";
    append_json_string(tool.description, line);
    line.append(", \"parameters\": ").append(tool.parameters).append("}");
    out_.plain(line);
  }

  Result<> write_turn(size_t index) {
    const Turn& turn = turns_[index];
    const Message& first = *turn.messages.front();
    switch (turn.role) {
      case Role::kAssistant:
        return write_assistant(index, first);
      case Role::kReminder:
        out_.trusted(markup::kReminder);
        return write_content(first);
      case Role::kSystem: {
        out_.trusted(markup::kSystem);
        CEDRA_TRY(write_content(first));
        std::vector<const ToolDefinition*> tools;
        collect_tools(first.tools, tools);
        write_system_end(tools, first.response_format);
        break;
      }
      default:
        CEDRA_TRY(write_user(turn));
    }
    write_header_after(index);
    return {};
  }

  Result<> write_user(const Turn& turn) {
    out_.trusted(markup::kUser);
    bool first = true;
    for (const Message* message : turn.messages) {
      if (!first) out_.trusted(kBreak);
      first = false;
      const bool result = message->role == Role::kTool;
      if (result) out_.trusted("<tool_result>");
      CEDRA_TRY(write_content(*message));
      if (result) out_.trusted("</tool_result>");
    }
    return {};
  }

  // What a user-like turn is followed by: a task token, or in the reference the header.
  void write_header_after(size_t index) {
    const Turn& turn = turns_[index];
    const bool last = index + 1 == turns_.size();
    if (!last && turns_[index + 1].role != Role::kAssistant &&
        turns_[index + 1].role != Role::kReminder) {
      return;
    }
    const bool thinks = keeps(index + 1);
    if (turn.task) {
      if (*turn.task == Task::kAction) write_header(thinks);
      out_.trusted(task_token(*turn.task));
      start_ = ParserStart::kContent;  // a task's answer has no reasoning part
      return;
    }
    if (options_.header_last) return;
    if (last && !options_.add_generation_prompt) return;
    write_header(thinks);
  }

  void write_header(bool thinks) {
    out_.trusted(markup::kAssistant);
    out_.trusted(thinks ? markup::kThink : markup::kThinkEnd);
    start_ = thinks ? ParserStart::kReasoning : ParserStart::kContent;
  }

  Result<> write_assistant(size_t index, const Message& message) {
    const bool answers_task = index > 0 && turns_[index - 1].task.has_value();
    const bool open = index + 1 == turns_.size() && continues();
    if (options_.header_last && !answers_task) write_header(keeps(index));
    if (keeps(index) && !answers_task) {
      out_.plain(message.reasoning);
      const bool has_answer = !message.tool_calls.empty() ||
                              std::ranges::any_of(message.content, [](const ContentPart& part) {
                                return part.kind != ContentPart::Kind::kText || !part.text.empty();
                              });
      if (open && !has_answer) {
        start_ = ParserStart::kReasoning;
        return {};
      }
      out_.trusted(markup::kThinkEnd);
    }
    CEDRA_TRY(write_content(message));
    if (!message.tool_calls.empty()) append_call_block(message.tool_calls, reader_, out_);
    start_ = ParserStart::kContent;
    if (open) return {};
    if (!message.without_eos) out_.trusted(markup::kEos);
    if (message.task) out_.trusted(task_token(*message.task));
    return {};
  }

  Result<> write_content(const Message& message) {
    bool first = true;
    for (const ContentPart& part : message.content) {
      if (!first) out_.trusted(kBreak);
      first = false;
      switch (part.kind) {
        case ContentPart::Kind::kText:
          out_.plain(part.text);
          break;
        case ContentPart::Kind::kUnsupported:
          out_.plain("[Unsupported " + part.text + "]");
          break;
        case ContentPart::Kind::kImage:
          if (message.role != Role::kUser && message.role != Role::kTool) {
            return err(Code::kInvalid, "Image in {} message is unsupported",
                       role_name(message.role));
          }
          out_.image(part);
          break;
      }
    }
    return {};
  }

  const Conversation& conversation_;
  const ChatOptions& options_;
  std::vector<Turn> turns_;
  bool keep_all_ = false;
  size_t border_ = 0;  // index of the last user-like turn + 1; 0 if there is none
  std::vector<ToolDefinition> shown_tools_;
  ParserStart start_ = ParserStart::kContent;
  JsonReader reader_;
  PromptBuilder out_;
};

constexpr std::pair<Task, std::string_view> kTaskNames[] = {
    {Task::kAction, "action"}, {Task::kQuery, "query"}, {Task::kAuthority, "authority"},
    {Task::kDomain, "domain"}, {Task::kTitle, "title"}, {Task::kReadUrl, "read_url"}};

}  // namespace

Result<Prompt> encode_chat(const Conversation& conversation, const ChatOptions& options) {
  return Encoder(conversation, options).run();
}

std::optional<Task> task_by_name(std::string_view name) {
  for (const auto& [task, text] : kTaskNames) {
    if (text == name) return task;
  }
  return std::nullopt;
}

std::string_view task_token(Task task) {
  switch (task) {
    case Task::kAction:
      return "<\uff5caction\uff5c>";
    case Task::kQuery:
      return "<\uff5cquery\uff5c>";
    case Task::kAuthority:
      return "<\uff5cauthority\uff5c>";
    case Task::kDomain:
      return "<\uff5cdomain\uff5c>";
    case Task::kTitle:
      return "<\uff5ctitle\uff5c>";
    case Task::kReadUrl:
      return "<\uff5cread_url\uff5c>";
  }
  return "";
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kDeveloper:
      return "developer";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
    case Role::kReminder:
      return "latest_reminder";
  }
  return "unknown";
}

}  // namespace cedra::text
