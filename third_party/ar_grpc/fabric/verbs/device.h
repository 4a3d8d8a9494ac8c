// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_DEVICE_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"
#include "third_party/ar_grpc/fabric/verbs/memory_region.h"

namespace ar_grpc::fabric::verbs {

// What a device has answered a call with: kResourceExhausted where something has run out, else
// kUnavailable.
Status DeviceStatus(int error, const std::string& what);

// What the device's events are for. Both run on the reactor, holding no lock.
class EventTarget {
 public:
  virtual ~EventTarget() = default;
  virtual void OnCompletions() = 0;
  virtual void OnFailure(const std::string& what) = 0;
};

// What a device and its port can do.
struct Limits {
  uint64_t region_bytes = 0;
  uint32_t message_bytes = 0;
  int requests = 0;  // of a queue pair at once
  uint8_t most_reads = 0;
  uint8_t most_served_reads = 0;
};

// An opened device with one of its ports, whose events the reactor watches. Belongs to the process
// that opened it: in a forked child nothing here touches the device any more, which would act on
// the parent's. Thread-safe.
//
// Nobody calls ibv_fork_init: it would take registered pages out of a child's memory, and segments
// are shared mappings, which no fork makes a copy of. Pages of other memory stay the parent's since
// Linux 5.12; before, a fork during a Get into such memory can lose its bytes.
class Device : public std::enable_shared_from_this<Device> {
 public:
  // The first device with a port that is up and has a name in its network. kUnavailable says what
  // each of them lacks.
  static StatusOr<std::shared_ptr<Device>> Open(const Library& library);
  ~Device();
  Device(const Device&) = delete;

  const Library& library() const { return library_; }
  // Device and port, for people.
  const std::string& name() const { return name_; }
  abi::Context* context() const { return context_; }
  abi::ProtectionDomain* domain() const { return domain_; }
  abi::CompletionChannel* channel() const { return channel_; }
  uint8_t port() const { return port_; }
  const Limits& limits() const { return limits_; }
  RegionTable& regions() { return regions_; }

  bool InChild() const;
  // The device has gone: none of its connections works.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Status NotHere() const;

  struct Port {
    Address address;
    uint8_t mtu = abi::kSmallestMtu;
  };
  // As it is now. kUnavailable where it cannot be used.
  StatusOr<Port> QueryPort() const;

  // `target` gets the events of a completion queue and its queue pair until Remove.
  void Add(abi::CompletionQueue* queue, abi::QueuePair* pair, std::shared_ptr<EventTarget> target);
  // On the reactor, where no event of the queue is under way.
  void Remove(abi::CompletionQueue* queue);

 private:
  struct Watched {
    abi::QueuePair* pair;
    std::shared_ptr<EventTarget> target;
  };

  Device(const Library& library, abi::Context* context, std::string name);
  // Fills in what depends on the device, and the first port that can be used.
  Status Prepare();
  Status ChoosePort(uint8_t ports);
  Status Watch();
  void TakeCompletionEvents();
  void TakeAsyncEvents();
  std::shared_ptr<EventTarget> Find(
      const std::function<bool(abi::CompletionQueue*, const Watched&)>& wanted) const;
  void Lose(int fd, int error);
  void FailAll(const std::string& what);

  const Library& library_;
  abi::Context* const context_;
  const uint32_t fork_count_;
  std::string name_;
  Limits limits_;
  uint8_t ports_ = 0;  // that the device has
  uint8_t port_ = 0;   // that is used
  abi::ProtectionDomain* domain_ = nullptr;
  abi::CompletionChannel* channel_ = nullptr;
  RegionTable regions_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mu_;
  std::map<abi::CompletionQueue*, Watched> watched_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_DEVICE_H_
