// Ids are unique in a process, in its forked children, and under threads. Exits 0 when they are.

#include "third_party/ar_grpc/tensorflow/unique_id.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 8;
constexpr int kIdsPerThread = 200000;
constexpr int kChildIds = 1000;

bool AllDifferent(std::vector<int64_t> ids, const char* where) {
  std::sort(ids.begin(), ids.end());
  const bool zero = std::binary_search(ids.begin(), ids.end(), 0);
  const bool repeated = std::adjacent_find(ids.begin(), ids.end()) != ids.end();
  if (zero || repeated) std::fprintf(stderr, "%s: zero %d, repeated %d\n", where, zero, repeated);
  return !zero && !repeated;
}

bool UniqueAcrossThreads() {
  std::vector<std::vector<int64_t>> drawn(kThreads);
  std::vector<std::thread> threads;
  for (auto& ids : drawn) {
    threads.emplace_back([&ids] {
      for (int i = 0; i < kIdsPerThread; ++i) ids.push_back(ar_grpc::UniqueId());
    });
  }
  std::vector<int64_t> all;
  for (int i = 0; i < kThreads; ++i) {
    threads[i].join();
    all.insert(all.end(), drawn[i].begin(), drawn[i].end());
  }
  return AllDifferent(std::move(all), "threads");
}

bool ChildDoesNotRepeatItsParent() {
  ar_grpc::UniqueId();
  int ends[2];
  if (pipe(ends) != 0) return false;
  const pid_t child = fork();
  std::vector<int64_t> ids(kChildIds);
  for (auto& id : ids) id = ar_grpc::UniqueId();
  if (child == 0) {
    const ssize_t size = static_cast<ssize_t>(ids.size() * sizeof(ids[0]));
    _exit(write(ends[1], ids.data(), size) == size ? 0 : 1);
  }
  std::vector<int64_t> theirs(kChildIds);
  char* into = reinterpret_cast<char*>(theirs.data());
  size_t missing = theirs.size() * sizeof(theirs[0]);
  while (missing > 0) {
    const ssize_t got = read(ends[0], into, missing);
    if (got <= 0) return false;
    into += got;
    missing -= static_cast<size_t>(got);
  }
  int status = 1;
  if (waitpid(child, &status, 0) != child || status != 0) return false;
  ids.insert(ids.end(), theirs.begin(), theirs.end());
  return AllDifferent(std::move(ids), "fork");
}

}  // namespace

int main() { return UniqueAcrossThreads() && ChildDoesNotRepeatItsParent() ? 0 : 1; }
