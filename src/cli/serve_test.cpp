// cedra serve as a program: flags from everywhere, flags of other servers, and a request to a
// server that answers by a script.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "cli/test_program.h"

namespace cedra::cli::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTiny = CEDRA_SOURCE_DIR "/models/tiny";

std::string printed(const std::string& arguments, const std::string& environment = "") {
  const Ran ran = run_with(environment, "serve " + arguments + " --print-config");
  EXPECT_EQ(ran.status, 0) << ran.output;
  return ran.output;
}

TEST(ServeFlags, CommandLineThenEnvironmentThenFile) {
  const std::string file = file_with("serve.toml",
                                     "port = 1111\nmax-num-seqs = 3\nhost = \"127.0.0.3\"\n"
                                     "served-model-name = [\"a\", \"b\"]\nlog-prompts = true\n");
  const std::string environment = "CEDRA_PORT=2222 CEDRA_MAX_NUM_SEQS=4 CEDRA_ACCESS_LOG=false";
  EXPECT_THAT(
      printed("--config " + file + " --port 3333", environment),
      AllOf(HasSubstr("port = 3333\n"), HasSubstr("max-num-seqs = 4\n"),
            HasSubstr("host = \"127.0.0.3\"\n"), HasSubstr("served-model-name = [\"a\", \"b\"]\n"),
            HasSubstr("log-prompts = true\n"), HasSubstr("access-log = false\n")));
  EXPECT_THAT(printed(""), AllOf(HasSubstr("port = 8000\n"), HasSubstr("host = \"127.0.0.1\"\n")));
}

TEST(ServeFlags, WhatIsPrintedCanBeRead) {
  const std::string first = printed(kTiny + " --port 0 --served-model-name x y --max-model-len 64");
  const std::string file = file_with("again.toml", first);
  EXPECT_EQ(printed("--config " + file), first);
}

TEST(ServeFlags, KeysAreNotPrinted) {
  const std::string text = printed("--api-key hunter2 --api-key other", "CEDRA_API_KEY=third");
  EXPECT_THAT(text, AllOf(HasSubstr("api-key is set"), Not(HasSubstr("hunter2")),
                          Not(HasSubstr("other\"")), Not(HasSubstr("third"))));
}

TEST(ServeFlags, MistakesOfAFileAndTheEnvironmentAreNamed) {
  const auto refused = [](const std::string& environment, const std::string& arguments) {
    const Ran ran = run_with(environment, "serve " + arguments);
    EXPECT_EQ(ran.status, 2) << ran.output;
    return ran.output;
  };
  EXPECT_THAT(refused("", "--config " + file_with("unknown.toml", "prot = 1\n")),
              HasSubstr("prot"));
  EXPECT_THAT(refused("", "--config " + file_with("value.toml", "port = \"many\"\n")),
              AllOf(HasSubstr("port"), HasSubstr("many")));
  EXPECT_THAT(refused("", "--config /no/such/file"), HasSubstr("/no/such/file"));
  EXPECT_THAT(refused("CEDRA_MAX_CONNECTIONS=0", kTiny), HasSubstr("CEDRA_MAX_CONNECTIONS"));
  EXPECT_THAT(refused("CEDRA_LOG_PROMPTS=maybe", kTiny), HasSubstr("CEDRA_LOG_PROMPTS"));
  EXPECT_THAT(refused("", ""), HasSubstr("model"));
}

// The variables are serve's: another command does not mind them.
TEST(ServeFlags, OtherCommandsDoNotReadThem) {
  EXPECT_EQ(run_with("CEDRA_PORT=x CEDRA_MODEL=y", "plan " + kTiny).status, 0);
}

// The vendor's recipe for this model and what its guides add, hardware by hardware.
TEST(ServeFlags, RecipesAreAccepted) {
  const std::string base =
      "--tokenizer-mode deepseek_v41 --tool-call-parser deepseek_v41 --enable-auto-tool-choice "
      "--reasoning-parser deepseek_v41 ";
  for (const std::string& more :
       {std::string("--tensor-parallel-size 4 --mm-encoder-tp-mode data"),
        std::string("--enable-expert-parallel --data-parallel-size 8 --language-model-only"),
        std::string("--tensor-parallel-size 8 --engram-config '{\"cpu_offload\":true}' "
                    "--max-num-batched-tokens 4096 --gpu-memory-utilization 0.92"),
        std::string("--kv-cache-dtype fp8 --max-model-len 262144 --moe-backend auto "
                    "--mm-encoder-attn-backend ROCM_AITER_FA --mm-processor-cache-type shm"),
        std::string("--max-cudagraph-capture-size 8190 --max-num-seqs 256 "
                    "--compilation-config '{\"mode\":\"VLLM_COMPILE\"}' "
                    "--disable-uvicorn-access-log --trust-remote-code"),
        std::string("--nnodes 2 --master-addr 10.0.0.1 --data-parallel-hybrid-lb "
                    "--data-parallel-size-local 4 --data-parallel-address 10.0.0.1"),
        std::string("--served-model-name deepseek-flash deepseek-chat --api-key x --port 0 "
                    "--default-chat-template-kwargs '{\"thinking\":true}'")}) {
    const Ran ran = run("serve " + kTiny + " " + base + more + " --print-config");
    EXPECT_EQ(ran.status, 0) << more << "\n" << ran.output;
  }
}

TEST(ServeFlags, WhatWouldChangeAnswersIsRefusedWithItsReason) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--chat-template x.jinja", "built in"},
      {"--quantization awq", "as it is stored"},
      {"--kv-cache-dtype int8", "fp8"},
      {"--dtype float16", "bfloat16"},
      {"--hf-overrides '{}'", "config.json"},
      {"--enable-lora", "adapters"},
      {"--tool-call-parser hermes", "deepseek_v41"},
      {"--tokenizer-mode slow", "deepseek_v41"},
      {"--headless", "API"},
      {"--kv-transfer-config '{}'", "split"},
      {"--no-such-flag", "no-such-flag"},
  };
  for (const auto& [flag, reason] : kCases) {
    const Ran ran = run("serve " + kTiny + " " + flag + " --print-config");
    EXPECT_EQ(ran.status, 2) << flag << "\n" << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(reason)) << flag;
  }
}

// The program in the background until the end of the test.
class Served {
 public:
  explicit Served(const std::vector<std::string>& arguments) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      std::vector<std::string> all = {CEDRA_BINARY, "serve"};
      all.insert(all.end(), arguments.begin(), arguments.end());
      std::vector<char*> raw;
      for (std::string& argument : all) raw.push_back(argument.data());
      raw.push_back(nullptr);
      ::execv(raw[0], raw.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~Served() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::close(out_);
  }

  // What it printed up to and with `text`, or all if that never came.
  std::string read_to(const std::string& text) {
    std::array<char, 4096> block;
    while (output_.find(text) == std::string::npos) {
      const ssize_t got = ::read(out_, block.data(), block.size());
      if (got <= 0) break;
      output_.append(block.data(), static_cast<size_t>(got));
    }
    return output_;
  }
  uint16_t port() {
    const std::string mark = "on http://127.0.0.1:";
    read_to("\nTry:");
    const size_t at = output_.find(mark);
    EXPECT_NE(at, std::string::npos) << output_;
    if (at == std::string::npos) return 0;
    return static_cast<uint16_t>(std::atoi(output_.c_str() + at + mark.size()));
  }
  int end() {
    ::kill(child_, SIGTERM);
    int status = 0;
    ::waitpid(child_, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return code;
  }

 private:
  pid_t child_ = -1;
  int out_ = -1;
  std::string output_;
};

std::string round_trip(uint16_t port, const std::string& request) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string out;
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::send(socket, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size())) {
    std::array<char, 4096> block;
    ssize_t got = 0;
    while ((got = ::recv(socket, block.data(), block.size(), 0)) > 0) {
      out.append(block.data(), static_cast<size_t>(got));
    }
  }
  ::close(socket);
  return out;
}

std::string post(const std::string& path, const std::string& body, const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

TEST(Serve, AnswersByAScriptAndLogsWithoutThePrompt) {
  const std::string script = file_with(
      "script.json",
      R"({"answers":[{"when":"secret word","text":"</think>Noted."},{"text":"</think>Hello"}]})");
  Served served({kTiny, "--script", script, "--port", "0", "--log-format", "json",
                 "--tensor-parallel-size", "2"});
  const uint16_t port = served.port();
  const std::string body = R"({"messages":[{"role":"user","content":"the secret word"}]})";
  const std::string answer =
      round_trip(port, post("/v1/chat/completions", body, "x-request-id: my-id.1\r\n"));
  EXPECT_THAT(answer, AllOf(HasSubstr("HTTP/1.1 200"), HasSubstr("\"content\":\"Noted.\""),
                            HasSubstr("x-request-id: my-id.1\r\n")));
  const std::string log = served.read_to("my-id.1");
  EXPECT_THAT(log,
              AllOf(HasSubstr("\"message\":\"request\",\"id\":\"my-id.1\""),
                    HasSubstr("--tensor-parallel-size is ignored"), Not(HasSubstr("secret word"))));
  EXPECT_EQ(served.end(), 0);
}

TEST(Serve, ATakenPortIsFoundBeforeLoading) {
  Served served({kTiny, "--port", "0"});
  const uint16_t port = served.port();
  const Ran second = run("serve " + kTiny + " --port " + std::to_string(port));
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.output, AllOf(HasSubstr("cannot listen"), Not(HasSubstr("weights"))));
}

TEST(Serve, SeveralKeysFromAFile) {
  const std::string script = file_with("keys.json", R"({"answers":[{"text":"</think>ok"}]})");
  const std::string keys = file_with("keys.txt", "# mine\nfirst\n\nsecond\r\n");
  Served served({kTiny, "--script", script, "--port", "0", "--api-key-file", keys});
  const uint16_t port = served.port();
  const std::string body = R"({"messages":[{"role":"user","content":"x"}]})";
  const auto status = [&](const std::string& headers) {
    return round_trip(port, post("/v1/chat/completions", body, headers)).substr(9, 3);
  };
  EXPECT_EQ(status("Authorization: Bearer first\r\n"), "200");
  EXPECT_EQ(status("x-api-key: second\r\n"), "200");
  EXPECT_EQ(status("x-api-key: # mine\r\n"), "401");
  EXPECT_EQ(status(""), "401");
  EXPECT_EQ(served.end(), 0);
}

}  // namespace
}  // namespace cedra::cli::testing
