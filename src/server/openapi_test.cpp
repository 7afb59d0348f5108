// The OpenAPI document against the server: every route stands in it, every member that counts, and
// requests made from it are accepted or refused as it says.
#include <gmock/gmock.h>

#include "server/completion_request.h"
#include "server/routes.h"
#include "server/test_schema.h"
#include "server/test_server.h"
#include "text/chat_json.h"

namespace cedra::server {
namespace {

using namespace cedra::server::testing;
using text::JsonValue;

const JsonValue& document() { return Schemas::get().document(); }

// The request's schema of a POST route, nullptr for others.
const JsonValue* request_schema(const JsonValue& path) {
  const JsonValue* post = path.find("post");
  if (post == nullptr) return nullptr;
  const std::string ref = post->find("requestBody")
                              ->find("content")
                              ->find("application/json")
                              ->find("schema")
                              ->find("$ref")
                              ->text();
  return &Schemas::get().named(ref.substr(ref.rfind('/') + 1));
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

TEST(OpenApi, HasEveryRouteAndNoOther) {
  std::set<std::string> documented, real;
  for (const auto& [path, item] : document().find("paths")->members()) {
    for (const auto& [method, operation] : item.members()) {
      const bool open = operation.find("security") != nullptr;
      documented.insert(method + " " + std::string(without_prefixes(path)) + (open ? " open" : ""));
    }
  }
  for (const RouteRow& row : kRoutes) {
    real.insert(lower(std::string(row.method)) + " " + std::string(row.path) +
                (row.open ? " open" : ""));
  }
  EXPECT_EQ(documented, real);
}

TEST(OpenApi, IsServed) {
  TestService service({});
  EXPECT_EQ(service.ask("GET", "/openapi.json", "").body, openapi_json());
}

TEST(OpenApi, ListsTheMembersThatCount) {
  const auto names = [](const char* schema) {
    std::vector<std::string> out;
    for (const auto& [name, rule] : Schemas::get().named(schema).find("properties")->members()) {
      out.push_back(name);
    }
    return out;
  };
  for (const std::string& name : names("ChatRequest")) {
    EXPECT_TRUE(text::is_known_field(text::Route::kChatCompletions, name)) << name;
  }
  for (const std::string& name : names("MessagesRequest")) {
    EXPECT_TRUE(text::is_known_field(text::Route::kMessages, name)) << name;
  }
  for (const std::string& name : names("ResponsesRequest")) {
    EXPECT_TRUE(text::is_known_field(text::Route::kResponses, name)) << name;
  }
  for (const std::string& name : names("CompletionRequest")) {
    EXPECT_TRUE(is_known_completion_field(name)) << name;
  }
}

// A request of the route without the member in question.
std::string base_of(std::string_view path) {
  const std::string user = R"("messages":[{"role":"user","content":"json"}])";
  if (path == "/v1/chat/completions") return "{" + user + R"(,"logprobs":true)";
  if (path == "/v1/messages") return R"({"max_tokens":40,)" + user;
  if (path == "/v1/messages/count_tokens") return "{" + user;
  if (path == "/v1/responses") return R"({"input":"json")";
  if (path == "/v1/completions") return R"({"prompt":"x")";
  if (path == "/tokenize") return R"({"prompt":"x")";
  return R"({"tokens":[1])";
}

bool allows(const JsonValue& rule, std::string_view type) {
  const JsonValue* types = rule.find("type");
  if (types == nullptr) return true;
  if (types->is_string()) return types->text() == type;
  return std::ranges::any_of(types->items(), [&](const auto& one) { return one.text() == type; });
}

struct Probe {
  std::string value;
  bool fits;
};

// Values at and beyond the borders that the rule draws, and of every type it does not have.
std::vector<Probe> probes(const JsonValue& rule) {
  std::vector<Probe> out;
  const std::pair<const char*, const char*> kTypes[] = {
      {"object", "{\"q\":1}"}, {"array", "[[]]"}, {"string", "\"~\""}, {"boolean", "true"}};
  for (const auto& [type, value] : kTypes) {
    if (!allows(rule, type)) out.push_back({value, false});
  }
  const bool integer = allows(rule, "integer");
  if (!integer && !allows(rule, "number")) out.push_back({"7", false});
  if (integer) out.push_back({"1.5", false});
  if (allows(rule, "null")) out.push_back({"null", true});
  const auto border = [&](const char* keyword, double beyond, bool itself) {
    const JsonValue* at = rule.find(keyword);
    if (at == nullptr) return;
    const double value = at->as_double().value_or(0);
    const auto spelled = [&](double number) {
      return integer ? std::to_string(static_cast<int64_t>(number)) : std::to_string(number);
    };
    out.push_back({spelled(value), itself});
    out.push_back({spelled(value + beyond), false});
  };
  const double step = integer ? 1 : 0.0625;
  border("minimum", -step, true);
  border("maximum", step, true);
  border("exclusiveMinimum", -step, false);
  if (const JsonValue* most = rule.find("maxItems"); most != nullptr && *most->as_int64() < 2000) {
    std::string list = "[1";
    for (int64_t i = 0; i < *most->as_int64(); ++i) list += ",1";
    out.push_back({list + "]", false});
  }
  return out;
}

TEST(OpenApi, RequestsMadeFromItAreTakenAsItSays) {
  TestOptions options;
  options.script = "</think>ok";
  options.max_num_seqs = 256;
  TestService service(options);
  int tried = 0;
  for (const auto& [path, item] : document().find("paths")->members()) {
    const JsonValue* schema = request_schema(item);
    if (schema == nullptr) continue;
    const HttpResponse plain = service.ask("POST", path, base_of(path) + "}");
    EXPECT_EQ(plain.status, 200) << path << ": " << plain.body;
    for (const auto& [name, rule] : schema->find("properties")->members()) {
      const bool base_has_it = base_of(path).find("\"" + name + "\"") != std::string::npos;
      for (const Probe& probe : probes(rule)) {
        if (base_has_it && probe.value == "null") continue;  // the route needs it
        // A repeated member takes its last value. The served name is checked, too.
        const std::string body = base_of(path) + ",\"" + name + "\":" + probe.value + "}";
        const HttpResponse response = service.ask("POST", path, body);
        const bool refused = response.status == 400;
        EXPECT_EQ(response.status, probe.fits ? 200 : 400)
            << path << " " << body.substr(0, 300) << "\n"
            << response.body.substr(0, 300);
        if (refused && !base_has_it) {
          EXPECT_THAT(lower(response.body), ::testing::HasSubstr(name.substr(0, 4))) << body;
        }
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 400);
}

}  // namespace
}  // namespace cedra::server
