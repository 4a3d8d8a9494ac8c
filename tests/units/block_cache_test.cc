// Blocks are reused, trimmed when idle, usable from many threads, after a fork, and where there is
// no thread to be had. Exits 0 then.

#include "third_party/ar_grpc/grpc/block_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/common/refuse_threads.h"

namespace {

using ar_grpc::BlockCache;

constexpr size_t kSize = BlockCache::kSmallestKept + 48;
constexpr int kBlocks = 100;

bool Expect(bool held, const char* what) {
  if (!held) std::fprintf(stderr, "failed: %s\n", what);
  return held;
}

std::vector<void*> AllocateAll() {
  std::vector<void*> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(BlockCache::Allocate(kSize));
    std::memset(blocks.back(), i, kSize);
  }
  return blocks;
}

void FreeAll(const std::vector<void*>& blocks) {
  for (void* block : blocks) BlockCache::Free(block, kSize);
}

// First of all, while there is no thread that trims.
bool KeepsNothingWithoutAThread() {
  refuse_threads = true;
  FreeAll(AllocateAll());
  refuse_threads = false;
  return Expect(BlockCache::KeptBytes() == 0, "nothing is kept that no thread would trim");
}

bool ReusesBlocks() {
  FreeAll(AllocateAll());
  const bool kept = Expect(BlockCache::KeptBytes() == kBlocks * BlockCache::kLargestKept, "kept");
  const std::vector<void*> again = AllocateAll();
  const bool reused = Expect(BlockCache::KeptBytes() == 0, "all taken again");
  FreeAll(again);
  return kept && reused;
}

bool LeavesOtherSizesToMalloc() {
  const size_t before = BlockCache::KeptBytes();
  for (const size_t size :
       {size_t{1}, BlockCache::kSmallestKept - 1, BlockCache::kLargestKept + 1, size_t{1} << 22}) {
    void* const block = BlockCache::Allocate(size);
    std::memset(block, 1, size);
    BlockCache::Free(block, size);
  }
  return Expect(BlockCache::KeptBytes() == before, "only one size class is kept");
}

// What counts the kept blocks: again where the process stood still so long that they were trimmed.
bool WithoutATrim(bool (*test)()) {
  for (int i = 0; i < 5; ++i) {
    if (test()) return true;
  }
  return false;
}

bool TrimsWhenIdle() {
  FreeAll(AllocateAll());
  for (int i = 0; i < 100 && BlockCache::KeptBytes() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return Expect(BlockCache::KeptBytes() == 0, "an idle process keeps nothing");
}

bool ServesThreads() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 20; ++i) FreeAll(AllocateAll());
    });
  }
  for (auto& thread : threads) thread.join();
  return true;
}

bool ServesForkedChildren() {
  FreeAll(AllocateAll());
  const pid_t child = fork();
  if (child == 0) {
    const std::vector<void*> blocks = AllocateAll();
    const size_t left = BlockCache::KeptBytes();
    FreeAll(blocks);
    // A child has no thread that trims, so it keeps nothing more.
    _exit(BlockCache::KeptBytes() == left ? 0 : 1);
  }
  int status = 1;
  return Expect(waitpid(child, &status, 0) == child && status == 0, "a forked child");
}

}  // namespace

int main() {
  const bool good = KeepsNothingWithoutAThread() && WithoutATrim(ReusesBlocks) &&
                    WithoutATrim(LeavesOtherSizesToMalloc) && ServesThreads() && TrimsWhenIdle() &&
                    ServesForkedChildren();
  return good ? 0 : 1;
}
