// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/base/reactor.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/thread.h"

namespace ar_grpc {
namespace {

using Clock = std::chrono::steady_clock;

class EpollReactor final : public Reactor {
 public:
  // Never destroyed: its thread runs until the process ends. Starts at first use; where that fails
  // (no descriptor, no thread) the next use tries again.
  EpollReactor() = default;

  bool OnThread() const { return current_ == this; }

  // In a forked child: what is left of the parent's. Its epoll set itself must not be changed, the
  // parent waits on it.
  void CloseInChild() {
    epoll_.reset();
    wake_.reset();
  }

  Status Add(int fd, std::function<void()> ready) override {
    std::lock_guard<std::mutex> lock(mu_);
    if (Status status = Start(); !status.ok()) return status;
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.u64 = ++last_id_;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return ErrnoStatus(errno, "epoll_ctl");
    }
    ids_[fd] = last_id_;
    watches_[last_id_] = {fd, std::make_shared<std::function<void()>>(std::move(ready))};
    return Status();
  }

  void Remove(int fd) override {
    std::shared_ptr<std::function<void()>> dropped;  // destroyed without the lock
    std::unique_lock<std::mutex> lock(mu_);
    if (const auto found = ids_.find(fd); found != ids_.end()) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
      dropped = std::move(watches_[found->second].ready);
      watches_.erase(found->second);
      ids_.erase(found);
    }
    // Also when the callback has just removed itself.
    if (OnThread() || running_ == 0 || running_fd_ != fd) return;
    const uint64_t id = running_;
    while (running_ == id) pthread_cond_wait(&ran_, mu_.native_handle());
  }

  uint64_t RunAfter(int delay_ms, std::function<void()> task) override {
    const Clock::time_point due = Clock::now() + std::chrono::milliseconds(std::max(0, delay_ms));
    bool sooner;
    uint64_t id;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!Start().ok()) return 0;
      id = ++last_id_;
      due_[id] = due;
      timers_.emplace(std::make_pair(due, id), std::move(task));
      // Not "the first of the timers": one that is set and cancelled in each step would wake it.
      sooner = due < armed_;
    }
    if (sooner && !OnThread()) WakeUp(wake_.get());
    return id;
  }

  bool Cancel(uint64_t id) override {
    std::function<void()> dropped;  // destroyed without the lock
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = due_.find(id);
    if (found == due_.end()) return false;
    const auto timer = timers_.find({found->second, id});
    dropped = std::move(timer->second);
    timers_.erase(timer);
    due_.erase(found);
    return true;
  }

  uint64_t rounds() const override { return rounds_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kWakeId = 0;

  struct Watch {
    int fd;
    std::shared_ptr<std::function<void()>> ready;
  };

  // Requires mu_.
  Status Start() {
    if (started_) return Status();
    UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
    StatusOr<UniqueFd> wake = NewWakeFd();
    if (!wake.ok()) return wake.status();
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = kWakeId;
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake->get(), &event) != 0) {
      return ErrnoStatus(errno, "epoll_ctl");
    }
    epoll_ = std::move(epoll);
    wake_ = std::move(*wake);
    StatusOr<Thread> thread = StartThread("ar-grpc reactor", [this] { Loop(); });
    if (!thread.ok()) return thread.status();
    thread->Detach();
    started_ = true;
    return Status();
  }

  void Loop() {
    current_ = this;
    std::array<epoll_event, 64> events;
    while (true) {
      const int count = epoll_wait(epoll_.get(), events.data(), events.size(), UntilNextTimer());
      rounds_.fetch_add(1, std::memory_order_relaxed);
      RunTimers();
      for (int i = 0; i < count; ++i) {
        if (events[i].data.u64 == kWakeId) {
          ClearWakeUp(wake_.get());
        } else {
          RunWatch(events[i].data.u64);
        }
      }
    }
  }

  // Milliseconds, rounded up; -1 without a timer.
  int UntilNextTimer() {
    std::lock_guard<std::mutex> lock(mu_);
    armed_ = timers_.empty() ? Clock::time_point::max() : timers_.begin()->first.first;
    if (timers_.empty()) return -1;
    const auto left = armed_ - Clock::now();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::clamp<decltype(ms)>(ms, 0, 1 << 30));
  }

  void RunTimers() {
    // What a task schedules is for the next round, so that tasks cannot starve descriptors.
    const Clock::time_point now = Clock::now();
    while (true) {
      std::function<void()> task;
      {
        std::lock_guard<std::mutex> lock(mu_);
        if (timers_.empty() || timers_.begin()->first.first > now) return;
        const auto first = timers_.begin();
        task = std::move(first->second);
        due_.erase(first->first.second);
        timers_.erase(first);
      }
      task();
    }
  }

  void RunWatch(uint64_t id) {
    std::shared_ptr<std::function<void()>> ready;
    {
      std::lock_guard<std::mutex> lock(mu_);
      const auto found = watches_.find(id);
      if (found == watches_.end()) return;
      ready = found->second.ready;
      running_ = id;
      running_fd_ = found->second.fd;
    }
    (*ready)();
    ready.reset();
    std::lock_guard<std::mutex> lock(mu_);
    running_ = 0;
    pthread_cond_broadcast(&ran_);
  }

  static thread_local const EpollReactor* current_;

  UniqueFd epoll_;
  UniqueFd wake_;
  std::atomic<uint64_t> rounds_{0};
  bool started_ = false;
  std::mutex mu_;
  // Not std::condition_variable: its wait asks for a newer libstdc++ than all else here.
  pthread_cond_t ran_ = PTHREAD_COND_INITIALIZER;
  uint64_t last_id_ = kWakeId;                          // of watches and timers alike
  Clock::time_point armed_ = Clock::time_point::max();  // when the thread wakes by itself
  uint64_t running_ = 0;
  int running_fd_ = -1;
  std::unordered_map<int, uint64_t> ids_;
  std::unordered_map<uint64_t, Watch> watches_;
  std::unordered_map<uint64_t, Clock::time_point> due_;
  std::map<std::pair<Clock::time_point, uint64_t>, std::function<void()>> timers_;
};

thread_local const EpollReactor* EpollReactor::current_ = nullptr;

// This process's reactor. A child takes none of the parent's: the thread is not there, and any
// thread may have held its lock.
std::atomic<EpollReactor*> reactor{nullptr};
alignas(std::mutex) char start_lock[sizeof(std::mutex)];

std::mutex& StartLock() {
  static std::mutex* const lock = [] {
    pthread_atfork(nullptr, nullptr, [] {
      new (start_lock) std::mutex;
      if (EpollReactor* const parents = reactor.exchange(nullptr)) parents->CloseInChild();
    });
    return new (start_lock) std::mutex;
  }();
  return *lock;
}

EpollReactor& Current() {
  if (EpollReactor* const running = reactor.load(std::memory_order_acquire)) return *running;
  std::lock_guard<std::mutex> lock(StartLock());
  if (EpollReactor* const running = reactor.load(std::memory_order_acquire)) return *running;
  auto* const fresh = new EpollReactor;
  reactor.store(fresh, std::memory_order_release);
  return *fresh;
}

}  // namespace

Reactor& Reactor::Get() { return Current(); }

Status StartOnReactor(std::function<void()> task) {
  if (Reactor::Get().RunAfter(0, std::move(task)) != 0) return Status();
  return Status(StatusCode::kResourceExhausted, "the reactor's thread could not be started");
}

void RunOnReactor(std::function<void()> task) {
  EpollReactor& loop = Current();
  if (loop.OnThread()) return task();
  const auto ran = std::make_shared<std::promise<void>>();
  const uint64_t id = loop.RunAfter(0, [&task, ran] {
    task();
    ran->set_value();
  });
  // Without a thread nothing runs beside this either.
  if (id == 0) return task();
  ran->get_future().wait();
}

}  // namespace ar_grpc
