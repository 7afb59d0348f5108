// The pool gives what decoding here gives, and survives what its workers do not.
#include "image/decode_worker.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "image/test_files.h"
#include "image/test_worker.h"

namespace cedra::image {
namespace {

using namespace testing;
using namespace std::chrono_literals;

const std::vector<std::string> kFiles = {"rgb.png",      "rgba16.png",    "interlaced.png",
                                         "quarter.jpg",  "cmyk.jpg",      "progressive.jpg",
                                         "turned.jpg",   "animated.webp", "alpha.webp",
                                         "animated.gif", "runs8.bmp",     "garbage_chunks.png"};

// A BMP of run lengths that promises `side` x `side` pixels and names none of them.
std::vector<uint8_t> bomb(uint32_t side) {
  std::vector<uint8_t> bytes = read_bytes("runs8.bmp");
  bytes.resize(14 + 40 + 16);
  for (size_t i = 0; i < 4; ++i) {
    bytes[18 + i] = bytes[22 + i] = static_cast<uint8_t>(side >> (8 * i));
  }
  bytes.insert(bytes.end(), {0, 1});
  return bytes;
}

[[maybe_unused]] std::string line_of(const std::string& path, const std::string& start) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(start)) return line;
  }
  return {};
}

TEST(DecodePool, GivesWhatDecodingHereGives) {
  DecodePool pool;
  for (const std::string& name : kFiles) {
    for (const bool other : {false, true}) {
      PrepareOptions options;
      options.decode.alpha = other ? AlphaRule::kDrop : AlphaRule::kHosted;
      options.decode.exif_orientation = other;
      options.shrink_side = other ? 9 : 0;
      const std::vector<uint8_t> bytes = read_bytes(name);
      const Result<Prepared> here = prepare(bytes, options);
      const Result<Prepared> there = pool.prepare(bytes, options);
      ASSERT_TRUE(here.has_value() && there.has_value()) << name;
      EXPECT_EQ(there->plan, here->plan) << name;
      EXPECT_EQ(there->pixels.rgb, here->pixels.rgb) << name;
      EXPECT_EQ(there->key, content_key(*here)) << name;
    }
  }
  EXPECT_EQ(pool.workers().size(), 1U);
}

TEST(DecodePool, KeysAreThoseOfThePixels) {
  DecodePool pool;
  const auto key = [&](const char* name, AlphaRule alpha) {
    PrepareOptions options;
    options.decode.alpha = alpha;
    return pool.prepare(read_bytes(name), options).value().key;
  };
  EXPECT_EQ(key("rgb.png", AlphaRule::kHosted), key("interlaced.png", AlphaRule::kHosted));
  EXPECT_NE(key("rgb.png", AlphaRule::kHosted), key("grey.png", AlphaRule::kHosted));
  EXPECT_NE(key("rgba.png", AlphaRule::kHosted), key("rgba.png", AlphaRule::kDrop));
}

TEST(DecodePool, ErrorsAreThoseOfTheDecoders) {
  DecodePool pool;
  for (const std::string& name : kFiles) {
    const std::vector<uint8_t> bytes = read_bytes(name);
    for (size_t length = 0; length < bytes.size(); length += 64) {
      const std::span<const uint8_t> part = std::span(bytes).first(length);
      const Result<Prepared> here = prepare(part, {});
      const Result<Prepared> there = pool.prepare(part, {});
      ASSERT_EQ(there.has_value(), here.has_value()) << name << " cut to " << length;
      if (here.has_value()) continue;
      EXPECT_EQ(there.error().code, here.error().code) << there.error().message;
      EXPECT_EQ(there.error().message, here.error().message);
    }
  }
  EXPECT_EQ(pool.workers().size(), 1U);  // none of it killed it
}

TEST(DecodePool, AWorkerThatDiesIsReplaced) {
  WorkerOptions options;
  options.processes = 1;
  DecodePool pool(options);
  const std::vector<uint8_t> bytes = read_bytes("rgb.png");
  ASSERT_TRUE(pool.prepare(bytes, {}).has_value());
  const int first = pool.workers().at(0);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  std::this_thread::sleep_for(50ms);
  // It may be noticed before or while the next picture is on its way; the one after that is fine.
  (void)pool.prepare(bytes, {});
  EXPECT_TRUE(pool.prepare(bytes, {}).has_value());
  EXPECT_NE(pool.workers().at(0), first);
}

TEST(DecodePool, TimeIsLimited) {
  WorkerOptions options;
  options.processes = 1;
  options.cpu_time = 10ms;
  DecodePool pool(options);
  Result<Prepared> image = pool.prepare(bomb(8192), {});
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code, Code::kTooLarge);
  EXPECT_NE(image.error().message.find("too long"), std::string::npos) << image.error().message;
  // One that hangs without using the processor.
  options.wall_time = 300ms;
  options.cpu_time = 4000ms;
  DecodePool hung(options);
  const std::vector<uint8_t> small = read_bytes("rgb.png");
  while (!hung.prepare(small, {}).has_value()) {
  }
  ASSERT_EQ(::kill(hung.workers().at(0), SIGSTOP), 0);
  image = hung.prepare(small, {});
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code, Code::kTooLarge);
  EXPECT_TRUE(hung.workers().empty());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST(DecodePool, MemoryIsLimited) {
  WorkerOptions options;
  options.processes = 1;
  options.memory = int64_t{160} << 20;
  DecodePool pool(options);
  const Result<Prepared> image = pool.prepare(bomb(8192), {});  // 64 MiB and 192 MiB
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code, Code::kTooLarge) << image.error().message;
  EXPECT_TRUE(pool.prepare(read_bytes("rgb.png"), {}).has_value());
}

TEST(DecodePool, AWorkerIsShutIn) {
  DecodePool pool;
  ASSERT_TRUE(pool.prepare(read_bytes("rgb.png"), {}).has_value());
  const std::string process = "/proc/" + std::to_string(pool.workers().at(0));
  EXPECT_EQ(line_of(process + "/status", "Seccomp:"), "Seccomp:\t2");
  EXPECT_EQ(line_of(process + "/status", "NoNewPrivs:"), "NoNewPrivs:\t1");
  EXPECT_NE(line_of(process + "/limits", "Max address space").find(" 1073741824 "),
            std::string::npos);
  EXPECT_NE(line_of(process + "/limits", "Max open files").find(" 0 "), std::string::npos);
  int64_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(process + "/fd")) {
    ++files;
  }
  EXPECT_EQ(files, 3);
}

// From now on no process that this one starts can set up a filter of system calls.
void refuse_filters() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    std::_Exit(3);
  }
}

TEST(DecodePoolDeathTest, WithoutAFilterTheLogSaysSo) {
  const auto run = [] {
    refuse_filters();
    DecodePool pool;
    const bool right = pool.check() && pool.check() && pool.prepare(read_bytes("rgb.png"), {});
    std::fputs("the end\n", stderr);
    std::_Exit(right ? 0 : 1);
  };
  // Once: what follows it is the end.
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0),
              "images are decoded without a filter of system calls: the kernel refuses one "
              ".Invalid argument.\nthe end");
}

TEST(DecodePoolDeathTest, WithoutAFilterThatIsRequiredNothingIsDecoded) {
  const auto run = [] {
    refuse_filters();
    WorkerOptions options;
    options.require_filter = true;
    DecodePool pool(options);
    const Result<Prepared> image = pool.prepare(read_bytes("rgb.png"), {});
    const Result<> ready = pool.check();
    if (!ready) std::fputs(ready.error().message.c_str(), stderr);
    std::_Exit(!image && !ready && pool.workers().empty() ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0),
              "^images are not decoded without a filter of system calls, and the kernel refuses");
}

#endif

TEST(DecodePool, CheckStartsOneWorker) {
  DecodePool pool;
  EXPECT_TRUE(pool.check());
  EXPECT_TRUE(pool.check());
  EXPECT_EQ(pool.workers().size(), 1U);
  WorkerOptions options;
  options.program = "/nowhere/cedra";
  EXPECT_FALSE(DecodePool(options).check());
  options.program = "/bin/true";
  EXPECT_FALSE(DecodePool(options).check()) << "says nothing";
}

TEST(DecodePool, ManyThreads) {
  DecodePool pool;
  const std::vector<uint8_t> good = read_bytes("quarter.jpg");
  const std::vector<uint8_t> cut(good.begin(), good.begin() + 300);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4; ++i) {
        const bool whole = (t + i) % 2 == 0;
        right += pool.prepare(whole ? good : cut, {}).has_value() == whole;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 16);
  EXPECT_LE(pool.workers().size(), 2U);
}

TEST(DecodePool, NoProgramNoWorker) {
  WorkerOptions options;
  options.program = "/nowhere/cedra";
  DecodePool pool(options);
  const Result<Prepared> image = pool.prepare(read_bytes("rgb.png"), {});
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code, Code::kIo);
}

}  // namespace
}  // namespace cedra::image
