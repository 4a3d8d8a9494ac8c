// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_VERBS_QUEUE_COUNTS_H_
#define TESTS_VERBS_QUEUE_COUNTS_H_

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tests/verbs/library_to_wrap.h"
#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"

// Counts from outside what is in each queue of a device: the library's functions and the opened
// context's operations are wrapped. More in a queue than it was made for ends the program.
namespace ar_grpc::fabric::verbs::testing {

class QueueCounts {
 public:
  // Before any device is opened.
  static void Watch() {
    Library* const library = LibraryToWrap();
    Real() = *library;
    library->open_device = OpenDevice;
    library->create_cq = CreateQueue;
    library->create_qp = CreatePair;
    library->destroy_qp = DestroyPair;
    library->destroy_cq = DestroyQueue;
    library->reg_mr = Register;
    library->dereg_mr = Deregister;
    library->get_cq_event = GetEvent;
  }

  // The most that any queue ever had, in percent of what it was made for.
  struct Most {
    size_t send = 0;
    size_t receive = 0;
    size_t completions = 0;
  };
  static Most most() {
    std::lock_guard<std::mutex> lock(Mutex());
    return Highest();
  }
  static size_t pairs() {
    std::lock_guard<std::mutex> lock(Mutex());
    return Pairs().size();
  }
  static size_t queues() {
    std::lock_guard<std::mutex> lock(Mutex());
    return Queues().size();
  }
  static inline std::atomic<uint64_t> registrations{0};
  static inline std::atomic<int64_t> regions{0};  // that there are
  // A registration of more bytes is refused, as where too much memory is locked.
  static inline std::atomic<size_t> refused_above{SIZE_MAX};
  static inline std::atomic<uint64_t> events{0};
  static inline std::atomic<uint64_t> arms{0};
  static inline std::atomic<uint64_t> sends{0};
  static inline std::atomic<uint64_t> answered{0};

 private:
  struct Queue {
    size_t entries = 0;
    size_t due = 0;  // completions that are there or will be, and were not taken
  };
  struct Sent {
    uint64_t id;
    bool signaled;
  };
  struct Pair {
    size_t send_depth = 0;
    size_t receive_depth = 0;
    size_t receives = 0;
    std::deque<Sent> sent;
  };

  // Never destroyed, here and below: threads that close what is left run until the program has
  // ended.
  static std::mutex& Mutex() {
    static auto* const mu = new std::mutex;
    return *mu;
  }
  static Library& Real() {
    static auto* const real = new Library;
    return *real;
  }
  static abi::ContextOperations& Operations() {
    static auto* const operations = new abi::ContextOperations;
    return *operations;
  }
  static std::map<abi::CompletionQueue*, Queue>& Queues() {
    static auto* const queues = new std::map<abi::CompletionQueue*, Queue>;
    return *queues;
  }
  static std::map<abi::QueuePair*, Pair>& Pairs() {
    static auto* const pairs = new std::map<abi::QueuePair*, Pair>;
    return *pairs;
  }
  static std::map<uint32_t, abi::QueuePair*>& Numbers() {
    static auto* const numbers = new std::map<uint32_t, abi::QueuePair*>;
    return *numbers;
  }
  static Most& Highest() {
    static auto* const most = new Most;
    return *most;
  }
  static void Note(size_t count, size_t most, const char* what, size_t* highest) {
    Check(count <= most, std::string(what) + " overruns: " + std::to_string(count) + " of " +
                             std::to_string(most));
    *highest = std::max(*highest, count * 100 / most);
  }

  static abi::Context* OpenDevice(abi::Device* device) {
    abi::Context* const context = Real().open_device(device);
    if (context == nullptr) return nullptr;
    Operations() = context->operations;
    context->operations.post_send = PostSend;
    context->operations.post_recv = PostReceive;
    context->operations.poll_cq = Poll;
    context->operations.req_notify_cq = Arm;
    return context;
  }
  static abi::MemoryRegion* Register(abi::ProtectionDomain* domain, void* start, size_t size,
                                     int access) {
    if (size > refused_above) {
      errno = ENOMEM;
      return nullptr;
    }
    abi::MemoryRegion* const region = Real().reg_mr(domain, start, size, access);
    if (region != nullptr) ++registrations, ++regions;
    return region;
  }
  static int Deregister(abi::MemoryRegion* region) {
    --regions;
    return Real().dereg_mr(region);
  }
  static int GetEvent(abi::CompletionChannel* channel, abi::CompletionQueue** queue, void** user) {
    const int error = Real().get_cq_event(channel, queue, user);
    if (error == 0) ++events;
    return error;
  }
  static int Arm(abi::CompletionQueue* queue, int solicited_only) {
    ++arms;
    return Operations().req_notify_cq(queue, solicited_only);
  }
  static abi::CompletionQueue* CreateQueue(abi::Context* context, int entries, void* user,
                                           abi::CompletionChannel* channel, int vector) {
    abi::CompletionQueue* const queue = Real().create_cq(context, entries, user, channel, vector);
    std::lock_guard<std::mutex> lock(Mutex());
    if (queue != nullptr) Queues()[queue].entries = static_cast<size_t>(entries);
    return queue;
  }
  // What was asked for, not what the device made of it, which may be more.
  static abi::QueuePair* CreatePair(abi::ProtectionDomain* domain, abi::QueuePairInit* init) {
    const abi::Capacity asked = init->capacity;
    abi::QueuePair* const pair = Real().create_qp(domain, init);
    if (pair == nullptr) return nullptr;
    std::lock_guard<std::mutex> lock(Mutex());
    Pair& made = Pairs()[pair];
    made.send_depth = asked.max_send_wr;
    made.receive_depth = asked.max_recv_wr;
    Numbers()[pair->number] = pair;
    return pair;
  }
  static int DestroyPair(abi::QueuePair* pair) {
    const uint32_t number = pair->number;
    std::unique_lock<std::mutex> lock(Mutex());
    // Before its address is another one's.
    auto known = Pairs().extract(pair);
    Numbers().erase(number);
    lock.unlock();
    const int error = Real().destroy_qp(pair);
    if (error != 0) {
      lock.lock();
      Pairs().insert(std::move(known));
      Numbers()[number] = pair;
    }
    return error;
  }
  static int DestroyQueue(abi::CompletionQueue* queue) {
    {
      std::lock_guard<std::mutex> lock(Mutex());
      Queues().erase(queue);
    }
    return Real().destroy_cq(queue);
  }
  static int PostSend(abi::QueuePair* pair, abi::SendRequest* request, abi::SendRequest** refused) {
    {
      std::lock_guard<std::mutex> lock(Mutex());
      Pair& known = Pairs().at(pair);
      const bool signaled = (request->flags & abi::kSignaled) != 0;
      ++sends;
      known.sent.push_back({request->id, signaled});
      Note(known.sent.size(), known.send_depth, "a send queue", &Highest().send);
      Queue& queue = Queues().at(pair->send_queue);
      if (signaled) ++queue.due;
      Note(queue.due, queue.entries, "a completion queue", &Highest().completions);
    }
    return Operations().post_send(pair, request, refused);
  }
  static int PostReceive(abi::QueuePair* pair, abi::ReceiveRequest* request,
                         abi::ReceiveRequest** refused) {
    {
      std::lock_guard<std::mutex> lock(Mutex());
      Pair& known = Pairs().at(pair);
      Note(++known.receives, known.receive_depth, "a receive queue", &Highest().receive);
      Queue& queue = Queues().at(pair->receive_queue);
      Note(++queue.due, queue.entries, "a completion queue", &Highest().completions);
    }
    return Operations().post_recv(pair, request, refused);
  }
  static int Poll(abi::CompletionQueue* queue, int count, abi::WorkCompletion* completions) {
    const int found = Operations().poll_cq(queue, count, completions);
    std::lock_guard<std::mutex> lock(Mutex());
    for (int i = 0; i < found; ++i) {
      const auto number = Numbers().find(completions[i].pair);
      if (number == Numbers().end()) continue;
      Pair& pair = Pairs().at(number->second);
      if (queue == number->second->receive_queue) {
        --pair.receives;
        --Queues().at(queue).due;
        continue;
      }
      ++answered;
      bool found_it = false;
      while (!found_it && !pair.sent.empty()) {
        found_it = pair.sent.front().id == completions[i].id;
        if (pair.sent.front().signaled) --Queues().at(queue).due;
        pair.sent.pop_front();
      }
    }
    return found;
  }
};

}  // namespace ar_grpc::fabric::verbs::testing

#endif  // TESTS_VERBS_QUEUE_COUNTS_H_
