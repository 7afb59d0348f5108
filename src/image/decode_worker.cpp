// The worker's side: its walls, then one picture after the other.
#include "image/decode_worker.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <new>

#include "image/decode_wire.h"

// The sanitizers' own memory and system calls do not fit through these walls.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CEDRA_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CEDRA_INSTRUMENTED 1
#endif
#endif

namespace cedra::image {
namespace {

constexpr int kIn = 0;
constexpr int kOut = 1;

#ifndef CEDRA_INSTRUMENTED

void limit(__rlimit_resource resource, rlim_t most) {
  const rlimit both{most, most};
  ::setrlimit(resource, &both);
}

// Of the system calls, those that memory, the two pipes and an orderly end need; none maps code.
// The rest fails as forbidden.
bool allow_little() {
  constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
  constexpr uint32_t kDeny = SECCOMP_RET_ERRNO | EPERM;
  constexpr std::array<uint32_t, 17> kCalls{
      SYS_read,        SYS_write,          SYS_munmap,         SYS_mremap,        SYS_brk,
      SYS_madvise,     SYS_futex,          SYS_exit,           SYS_exit_group,    SYS_rt_sigreturn,
      SYS_setitimer,   SYS_rt_sigaction,   SYS_rt_sigprocmask, SYS_clock_gettime, SYS_getrandom,
      SYS_sched_yield, SYS_restart_syscall};
  constexpr std::array<uint32_t, 2> kMapping{SYS_mmap, SYS_mprotect};  // protection: argument 2
  constexpr auto load = [](size_t offset) -> sock_filter {
    return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
  };
  constexpr auto result = [](uint32_t value) -> sock_filter {
    return BPF_STMT(BPF_RET | BPF_K, value);
  };
  constexpr auto jump = [](uint16_t test, uint32_t value, size_t yes, size_t no) -> sock_filter {
    return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | test | BPF_K), value, static_cast<uint8_t>(yes),
                    static_cast<uint8_t>(no));
  };
  std::vector<sock_filter> program;
  program.push_back(load(offsetof(seccomp_data, arch)));
  program.push_back(jump(BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0));
  program.push_back(result(kDeny));
  program.push_back(load(offsetof(seccomp_data, nr)));
  for (const uint32_t call : kCalls) {
    program.push_back(jump(BPF_JEQ, call, 0, 1));
    program.push_back(result(kAllow));
  }
  program.push_back(jump(BPF_JEQ, kMapping[0], 2, 0));
  program.push_back(jump(BPF_JEQ, kMapping[1], 1, 0));
  program.push_back(result(kDeny));
  program.push_back(load(offsetof(seccomp_data, args) + 2 * sizeof(uint64_t)));
  program.push_back(jump(BPF_JSET, PROT_EXEC, 0, 1));
  program.push_back(result(kDeny));
  program.push_back(result(kAllow));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

#endif

wire::Hello shut_in([[maybe_unused]] int64_t memory) {
#ifdef CEDRA_INSTRUMENTED
  return {.walls = wire::Hello::kInstrumented};
#else
  if (memory > 0) limit(RLIMIT_AS, static_cast<rlim_t>(memory));
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_NOFILE, 0);
  // A kernel without filters still has the limits above; the server decides whether they are
  // enough.
  if (allow_little()) return {.walls = wire::Hello::kFiltered};
  return {.walls = wire::Hello::kUnfiltered, .code = errno};
#endif
}

bool read_all(void* to, size_t count) {
  for (auto* at = static_cast<uint8_t*>(to); count > 0;) {
    const ssize_t got = ::read(kIn, at, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(const void* from, size_t count) {
  for (const auto* at = static_cast<const uint8_t*>(from); count > 0;) {
    const ssize_t put = ::write(kOut, at, count);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    count -= static_cast<size_t>(put);
  }
  return true;
}

// SIGPROF ends the process when so much processor time is used up; 0: never.
void allow_time(int64_t microseconds) {
  itimerval timer{};
  timer.it_value = {microseconds / 1'000'000, microseconds % 1'000'000};
  ::setitimer(ITIMER_PROF, &timer, nullptr);
}

bool answer_one() {
  wire::Request request;
  if (!read_all(&request, sizeof request)) return false;
  Result<Prepared> image = err(Code::kExhausted, "no memory to read the image");
  try {
    std::vector<uint8_t> bytes(static_cast<size_t>(request.bytes));
    if (!read_all(bytes.data(), bytes.size())) return false;
    allow_time(request.cpu_microseconds);
    image = prepare(bytes, request.options);
  } catch (const std::bad_alloc&) {
    return false;  // the file was not read, so the next request cannot be found
  }
  allow_time(0);
  wire::Reply reply;
  if (!image) {
    const std::string message = image.error().message.substr(0, wire::kMaxMessage);
    reply.failed = 1;
    reply.code = static_cast<int64_t>(image.error().code);
    reply.bytes = static_cast<int64_t>(message.size());
    return write_all(&reply, sizeof reply) && write_all(message.data(), message.size());
  }
  reply.width = image->source_width;
  reply.height = image->source_height;
  reply.bytes = static_cast<int64_t>(image->pixels.rgb.size());
  return write_all(&reply, sizeof reply) &&
         write_all(image->pixels.rgb.data(), image->pixels.rgb.size());
}

}  // namespace

int serve_decoding(int64_t memory) {
  const wire::Hello hello = shut_in(memory);
  if (!write_all(&hello, sizeof hello)) return 1;
  while (answer_one()) {
  }
  return 0;
}

}  // namespace cedra::image
