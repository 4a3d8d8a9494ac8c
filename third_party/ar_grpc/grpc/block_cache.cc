// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/block_cache.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace ar_grpc {
namespace {

constexpr auto kTrimInterval = std::chrono::seconds(1);

bool IsKept(size_t size) {
  return size >= BlockCache::kSmallestKept && size <= BlockCache::kLargestKept;
}

// Lives as long as the process: gRPC's threads may free blocks while it exits.
class Store {
 public:
  static Store& Get() {
    static Store* const store = new Store;
    return *store;
  }

  void* Take() {
    std::lock_guard<std::mutex> lock(mu_);
    if (blocks_.empty()) return nullptr;
    void* const block = blocks_.back();
    blocks_.pop_back();
    fewest_ = std::min(fewest_, blocks_.size());
    return block;
  }

  // False when the block cannot be kept; it is the caller's to free then.
  bool Put(void* block) {
    std::lock_guard<std::mutex> lock(mu_);
    if (!StartTrimmer()) return false;
    blocks_.push_back(block);
    if (blocks_.size() == 1) pthread_cond_signal(&filled_);
    return true;
  }

  size_t Count() {
    std::lock_guard<std::mutex> lock(mu_);
    return blocks_.size();
  }

 private:
  Store() {
    // A child has no trimmer, and its copy of the lock may be held by a thread it does not have.
    pthread_atfork([] { Get().mu_.lock(); }, [] { Get().mu_.unlock(); },
                   [] {
                     Store& store = Get();
                     store.trims_ = false;
                     store.forked_ = true;
                     store.mu_.unlock();
                   });
  }

  // Requires mu_. In a forked child nothing is kept: no thread would ever trim it.
  bool StartTrimmer() {
    if (trims_ || forked_) return trims_;
    try {
      std::thread([this] { Trim(); }).detach();
      trims_ = true;
    } catch (const std::system_error&) {
      // No thread to be had now; the block goes back to malloc, and the next one tries again.
    }
    return trims_;
  }

  void Trim() {
    std::unique_lock<std::mutex> lock(mu_);
    while (true) {
      while (blocks_.empty()) pthread_cond_wait(&filled_, mu_.native_handle());
      fewest_ = blocks_.size();
      lock.unlock();
      std::this_thread::sleep_for(kTrimInterval);
      lock.lock();
      // Of all that lay here, this many were never taken.
      const size_t unused = std::min(fewest_, blocks_.size());
      std::vector<void*> dropped(blocks_.begin(), blocks_.begin() + unused);
      blocks_.erase(blocks_.begin(), blocks_.begin() + unused);
      lock.unlock();
      for (void* block : dropped) std::free(block);
      lock.lock();
    }
  }

  std::mutex mu_;
  // Not std::condition_variable: its wait asks for a newer libstdc++ than all else here.
  pthread_cond_t filled_ = PTHREAD_COND_INITIALIZER;
  std::vector<void*> blocks_;
  size_t fewest_ = 0;
  bool trims_ = false;
  bool forked_ = false;
};

}  // namespace

void* BlockCache::Allocate(size_t size) {
  if (IsKept(size)) {
    if (void* const block = Store::Get().Take()) return block;
    return std::malloc(kLargestKept);
  }
  return std::malloc(size);
}

void BlockCache::Free(void* block, size_t size) {
  if (IsKept(size) && Store::Get().Put(block)) return;
  std::free(block);
}

size_t BlockCache::KeptBytes() { return Store::Get().Count() * kLargestKept; }

}  // namespace ar_grpc
