// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_DEVICE_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_DEVICE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"
#include "third_party/ar_grpc/fabric/verbs/closed_in_child.h"
#include "third_party/ar_grpc/fabric/verbs/connection_manager.h"
#include "third_party/ar_grpc/fabric/verbs/device_choice.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"
#include "third_party/ar_grpc/fabric/verbs/memory_region.h"
#include "third_party/ar_grpc/fabric/verbs/settings.h"

namespace ar_grpc::fabric::verbs {

class BouncePool;

// What a device has answered a call with, an errno or 0: kResourceExhausted where something has run
// out, else kUnavailable.
Status DeviceStatus(int error, const std::string& what);

// What the device's events are for. All run on the reactor, holding no lock.
class EventTarget {
 public:
  virtual ~EventTarget() = default;
  // An event of `queue`, which gives no other until it is asked to.
  virtual void OnCompletions(abi::CompletionQueue* queue) = 0;
  virtual void OnFailure(const std::string& what) = 0;
  // The port's table of GIDs, as it is now, may lack one that it had.
  virtual void OnGidChange(const std::vector<abi::GidEntry>& table) = 0;
};

// What a device and its port can do.
struct Limits {
  uint64_t region_bytes = 0;
  uint32_t message_bytes = 0;
  uint8_t most_reads = 0;  // of a queue pair at once, and WRITEs
  uint8_t most_served_reads = 0;
};

// An opened device with one of its ports, whose events the reactor watches. Belongs to the process
// that opened it: in a forked child nothing here touches the device any more, which would act on
// the parent's, and the child has none of its descriptors (ClosedInChild); those of librdmacm's own
// contexts, which have no queue pairs, it keeps. Thread-safe.
//
// Nobody calls ibv_fork_init: it would take registered pages out of a child's memory, and segments
// are shared mappings, which no fork makes a copy of. Pages of other memory stay the parent's since
// Linux 5.12; before, a fork during a Get into such memory can lose its bytes.
class Device : public std::enable_shared_from_this<Device> {
 public:
  // The best device with a port that is up and has a name in its network (ChooseDevice), by the
  // settings of the environment; a line of the log says which and why. kUnavailable says what each
  // of them lacks, or which setting is wrong.
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
  // Whether what is said here of iWARP holds for it; else it is InfiniBand's or RoCE's.
  bool iwarp() const { return context_->device->transport_type == abi::kTransportIwarp; }
  // Connects an iWARP device's queue pairs; nullptr for others.
  const std::shared_ptr<ConnectionManager>& manager() const { return manager_; }
  const Settings& settings() const { return settings_; }
  const Limits& limits() const { return limits_; }
  RegionTable& regions() { return regions_; }
  // For memory that is not registered; whoever has it shares it.
  std::shared_ptr<BouncePool> Bounce();

  bool InChild() const;
  // The device has gone: none of its connections works.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Status NotHere() const;
  // `tell` runs once, holding no lock: on the reactor when the device fails, or now, where it has.
  void WhenFailed(std::function<void()> tell);

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

  // A port, and what cannot be told from its address.
  struct PortState {
    Port port;
    abi::PortAttributes attributes = {};
  };
  // Devices and their ports in the library's order, and those that could be opened.
  struct Found {
    std::vector<Candidate> candidates;
    std::vector<std::shared_ptr<Device>> devices;  // of each candidate; null: not opened
  };

  Device(const Library& library, abi::Context* context, std::string name, Settings settings);
  static StatusOr<Found> FindAll(const Library& library, const Settings& settings);
  static void Examine(const Library& library, abi::Device* device, const Settings& settings,
                      Found* found);
  static StatusOr<std::shared_ptr<Device>> OpenBest(const Library& library,
                                                    const Settings& settings);
  // Fills in what depends on the device.
  Status Prepare();
  Candidate Describe(uint8_t port, int numa_node) const;
  StatusOr<PortState> QueryPort(uint8_t port) const;
  // The table of all ports; `port` and its `attributes` are of the one that it is wanted for.
  StatusOr<std::vector<abi::GidEntry>> QueryGids(uint8_t port,
                                                 const abi::PortAttributes& attributes) const;
  // The names of a port, or of the only one that the settings allow.
  StatusOr<std::vector<NetworkName>> Names(uint8_t port,
                                           const abi::PortAttributes& attributes) const;
  StatusOr<uint16_t> PartitionKey(uint8_t port, const abi::PortAttributes& attributes) const;
  // From then on it is used, with this port.
  Status Start(uint8_t port);
  Status Watch();
  Status StartManager();
  void TakeCompletionEvents();
  void TakeAsyncEvents();
  // false: there is none.
  bool TakeAsyncEvent(bool* gids_changed);
  void TellOfGids();
  std::vector<std::shared_ptr<EventTarget>> Targets() const;
  std::shared_ptr<EventTarget> Find(abi::CompletionQueue* queue) const;
  std::shared_ptr<EventTarget> Find(abi::QueuePair* pair) const;
  void Lose(int fd, int error);
  void FailAll(const std::string& what);

  const Library& library_;
  abi::Context* const context_;
  const uint32_t fork_count_;
  const std::string device_name_;
  const Settings settings_;
  std::string name_;
  Limits limits_;
  uint8_t ports_ = 0;  // that the device has
  uint8_t port_ = 0;   // that is used
  abi::ProtectionDomain* domain_ = nullptr;
  abi::CompletionChannel* channel_ = nullptr;
  std::array<ClosedInChild, 3> descriptors_;
  std::shared_ptr<ConnectionManager> manager_;
  RegionTable regions_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mu_;
  std::weak_ptr<BouncePool> bounce_;
  std::function<void()> tell_failure_;
  std::unordered_map<abi::CompletionQueue*, Watched> watched_;
  std::unordered_map<abi::QueuePair*, abi::CompletionQueue*> pairs_;  // one of its queues
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_DEVICE_H_
