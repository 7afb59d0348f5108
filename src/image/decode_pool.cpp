// The server's side: starts workers, asks them, trusts nothing that they say.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/log.h"
#include "image/codecs.h"
#include "image/decode_wire.h"
#include "image/decode_worker.h"

namespace cedra::image {
namespace {

using Clock = std::chrono::steady_clock;

enum class Transfer { kDone, kClosed, kTimeout };

// Waits until `events` are possible. False: too late.
bool wait_for(int socket, short events, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{socket, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Transfer send_all(int socket, const void* from, size_t count, Clock::time_point deadline) {
  for (const auto* at = static_cast<const uint8_t*>(from); count > 0;) {
    const ssize_t put = ::send(socket, at, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) {
      at += put;
      count -= static_cast<size_t>(put);
    } else if (put < 0 && errno == EAGAIN) {
      if (!wait_for(socket, POLLOUT, deadline)) return Transfer::kTimeout;
    } else if (put < 0 && errno != EINTR) {
      return Transfer::kClosed;
    }
  }
  return Transfer::kDone;
}

Transfer receive_all(int socket, void* to, size_t count, Clock::time_point deadline) {
  for (auto* at = static_cast<uint8_t*>(to); count > 0;) {
    const ssize_t got = ::recv(socket, at, count, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      count -= static_cast<size_t>(got);
    } else if (got < 0 && errno == EAGAIN) {
      if (!wait_for(socket, POLLIN, deadline)) return Transfer::kTimeout;
    } else if (got == 0 || errno != EINTR) {
      return Transfer::kClosed;
    }
  }
  return Transfer::kDone;
}

std::unexpected<Error> died(Transfer transfer, int status) {
  const bool out_of_time = WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF;
  if (transfer == Transfer::kTimeout || out_of_time) {
    return err(Code::kTooLarge, "the image takes too long to decode");
  }
  return err(Code::kCorrupt, "the image cannot be decoded: it breaks the decoder");
}

// Printable ASCII of what a worker says about a file.
std::string harmless(std::string text) {
  for (char& c : text) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return text;
}

}  // namespace

DecodePool::DecodePool(WorkerOptions options)
    : options_(std::move(options)),
      workers_(static_cast<size_t>(std::max(options_.processes, 1))) {}

DecodePool::~DecodePool() {
  for (Worker& worker : workers_) end(worker);
}

std::vector<int> DecodePool::workers() {
  const std::lock_guard lock(mutex_);
  std::vector<int> pids;
  for (const Worker& worker : workers_) {
    if (worker.pid > 0) pids.push_back(worker.pid);
  }
  return pids;
}

Result<> DecodePool::start(Worker& worker) const {
  const auto failed = [](int code) {
    return err(Code::kIo, "cannot start a process to decode images: {}",
               std::generic_category().message(code));
  };
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return failed(errno);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pair[1], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, pair[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // Clients' connections among them.
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  // Ctrl-C in the terminal is for the server, which ends its workers itself.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::string name = "cedra";
  std::string command = kWorkerCommand;
  std::string memory = std::to_string(options_.memory);
  char* arguments[] = {name.data(), command.data(), memory.data(), nullptr};
  pid_t pid = -1;
  const int code =
      ::posix_spawn(&pid, options_.program.c_str(), &actions, &attributes, arguments, environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pair[1]);
  if (code != 0) {
    ::close(pair[0]);
    return failed(code);
  }
  worker.pid = pid;
  worker.socket = pair[0];
  const Result<> heard = hear(worker);
  if (!heard) end(worker);
  return heard;
}

// The first words of a worker, before it has seen anything of a client's.
Result<> DecodePool::hear(const Worker& worker) const {
  wire::Hello hello;
  const Clock::time_point deadline = Clock::now() + options_.wall_time;
  if (receive_all(worker.socket, &hello, sizeof hello, deadline) != Transfer::kDone) {
    return err(Code::kIo, "the process to decode images does not start");
  }
  if (hello.walls == wire::Hello::kFiltered) return {};
  const std::string why =
      hello.walls == wire::Hello::kInstrumented
          ? "this build of the program is instrumented"
          : fmt::format("the kernel refuses one ({})",
                        std::generic_category().message(static_cast<int>(hello.code)));
  if (options_.require_filter) {
    return err(Code::kUnsupported,
               "images are not decoded without a filter of system calls, and {}", why);
  }
  if (!said_.exchange(true)) {
    log::warning("images are decoded without a filter of system calls: {}", why);
  }
  return {};
}

void DecodePool::end(Worker& worker) {
  if (worker.pid < 0) return;
  ::close(worker.socket);
  ::kill(worker.pid, SIGKILL);
  int status = 0;
  while (::waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
  }
  worker.pid = worker.socket = -1;
}

Result<Prepared> DecodePool::ask(Worker& worker, Bytes bytes, const PrepareOptions& options) const {
  const Clock::time_point deadline = Clock::now() + options_.wall_time;
  wire::Request request;
  request.bytes = static_cast<int64_t>(bytes.size());
  request.cpu_microseconds =
      std::chrono::duration_cast<std::chrono::microseconds>(options_.cpu_time).count();
  request.options = options;
  wire::Reply reply;
  Transfer transfer = send_all(worker.socket, &request, sizeof request, deadline);
  if (transfer == Transfer::kDone) {
    transfer = send_all(worker.socket, bytes.data(), bytes.size(), deadline);
  }
  if (transfer == Transfer::kDone) {
    transfer = receive_all(worker.socket, &reply, sizeof reply, deadline);
  }
  Prepared out;
  std::string message;
  if (transfer == Transfer::kDone && reply.failed != 0) {
    message.resize(static_cast<size_t>(std::clamp<int64_t>(reply.bytes, 0, wire::kMaxMessage)));
    transfer = receive_all(worker.socket, message.data(), message.size(), deadline);
  } else if (transfer == Transfer::kDone) {
    // The plan is made again here, and the pixels have to be as many as it says.
    if (!check_size(options.decode, reply.width, reply.height)) {
      transfer = Transfer::kClosed;
    } else {
      out.source_width = reply.width;
      out.source_height = reply.height;
      out.plan = plan_resize(options.rules, reply.width, reply.height);
      out.pixels = {out.plan.width, out.plan.height, {}};
      if (reply.bytes != 3 * out.plan.width * out.plan.height) {
        transfer = Transfer::kClosed;
      } else {
        out.pixels.rgb.resize(static_cast<size_t>(reply.bytes));
        transfer =
            receive_all(worker.socket, out.pixels.rgb.data(), out.pixels.rgb.size(), deadline);
      }
    }
  }
  if (transfer != Transfer::kDone) {
    int status = 0;
    // Time for a process that is ending already to say why.
    for (int i = 0; transfer == Transfer::kClosed && i < 100; ++i) {
      if (::waitpid(worker.pid, &status, WNOHANG) == worker.pid) {
        ::close(worker.socket);
        worker.pid = worker.socket = -1;
        break;
      }
      ::usleep(1000);
    }
    end(worker);
    return died(transfer, status);
  }
  if (reply.failed != 0) {
    Code code = Code::kCorrupt;
    for (const Code known : {Code::kInvalid, Code::kUnsupported, Code::kTooLarge}) {
      if (reply.code == static_cast<int64_t>(known)) code = known;
    }
    if (reply.code == static_cast<int64_t>(Code::kExhausted)) code = Code::kTooLarge;
    return std::unexpected(Error{code, harmless(std::move(message))});
  }
  out.key = content_key(out);
  return out;
}

DecodePool::Worker* DecodePool::take() {
  std::unique_lock lock(mutex_);
  Worker* worker = nullptr;
  changed_.wait(lock, [&] {
    // One that runs rather than one that would have to be started.
    for (Worker& candidate : workers_) {
      if (candidate.busy) continue;
      if (worker == nullptr || candidate.pid > 0) worker = &candidate;
    }
    return worker != nullptr;
  });
  worker->busy = true;
  return worker;
}

void DecodePool::give_back(Worker* worker, Worker state) {
  {
    const std::lock_guard lock(mutex_);
    *worker = state;
    worker->busy = false;
  }
  changed_.notify_one();
}

Result<> DecodePool::ready(Worker& worker) const {
  // It may have died while it had nothing to do (killed by hand, or for memory).
  if (worker.pid > 0 && ::waitpid(worker.pid, nullptr, WNOHANG) == worker.pid) {
    ::close(worker.socket);
    worker.pid = worker.socket = -1;
  }
  return worker.pid > 0 ? Result<>{} : start(worker);
}

Result<> DecodePool::check() {
  Worker* worker = take();
  Worker mine = *worker;
  const Result<> out = ready(mine);
  give_back(worker, mine);
  return out;
}

Result<Prepared> DecodePool::prepare(Bytes bytes, const PrepareOptions& options) {
  if (bytes.empty()) return err(Code::kInvalid, "the image is empty");
  // Before it is copied anywhere.
  if (static_cast<int64_t>(bytes.size()) > options.decode.max_bytes) {
    return err(Code::kTooLarge, "the image has {} bytes; at most {} are allowed", bytes.size(),
               options.decode.max_bytes);
  }
  Worker* worker = take();
  Worker mine = *worker;
  Result<Prepared> out = err(Code::kInternal, "no worker");
  if (const Result<> started = ready(mine); started) {
    out = ask(mine, bytes, options);
  } else {
    out = std::unexpected(started.error());
  }
  give_back(worker, mine);
  return out;
}

}  // namespace cedra::image
