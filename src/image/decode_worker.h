// Decoding in processes of its own: whatever a file does to a decoder, it does it to a process that
// has no files, no network, bounded memory and bounded time, and the server goes on. The worker is
// this program again: main() hands over to serve_decoding() when it is called by kWorkerCommand.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "image/prepared.h"

namespace cedra::image {

inline constexpr const char* kWorkerCommand = "decode-worker";

struct WorkerOptions {
  std::string program = "/proc/self/exe";
  int processes = 2;
  // Of one picture. A worker that uses them up is ended and replaced.
  std::chrono::milliseconds cpu_time{4000};
  std::chrono::milliseconds wall_time{20000};
  int64_t memory = int64_t{1} << 30;  // address space of a worker
  // Nothing is decoded where the kernel refuses a worker its filter of system calls. Otherwise the
  // log says so once, and its other limits have to do.
  bool require_filter = false;
};

// Any number of threads call prepare(); each takes a worker for the time of one picture.
class DecodePool {
 public:
  // Workers start with the first picture, or one with check().
  explicit DecodePool(WorkerOptions options = {});
  ~DecodePool();
  DecodePool(const DecodePool&) = delete;
  DecodePool& operator=(const DecodePool&) = delete;

  // image::prepare() in a worker, and the key. Errors: those of decode(); kCorrupt for a file on
  // which the worker died, kTooLarge where its time or memory ran out, kIo if none can be started.
  Result<Prepared> prepare(std::span<const uint8_t> bytes, const PrepareOptions& options);

  // Starts a worker if none runs, so that what is wrong with them is said before a picture comes:
  // kIo if none can be started, kUnsupported without the filter where it is required.
  Result<> check();

  // Process ids of the workers that run (tests).
  std::vector<int> workers();

 private:
  struct Worker {
    int pid = -1;
    int socket = -1;
    bool busy = false;
  };
  Worker* take();  // waits for one that has nothing to do
  void give_back(Worker* worker, Worker state);
  Result<> ready(Worker& worker) const;  // starts it if it does not run
  Result<> start(Worker& worker) const;
  Result<> hear(const Worker& worker) const;
  static void end(Worker& worker);
  Result<Prepared> ask(Worker& worker, std::span<const uint8_t> bytes,
                       const PrepareOptions& options) const;

  WorkerOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Worker> workers_;
  mutable std::atomic<bool> said_{false};  // that there is no filter
};

// The life of a worker: shuts itself in, then answers on standard input until that ends. Returns
// the exit status. `memory` as WorkerOptions has it; 0 leaves it unlimited.
int serve_decoding(int64_t memory);

}  // namespace cedra::image
