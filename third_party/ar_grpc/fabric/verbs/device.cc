// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/device.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/reactor.h"

namespace ar_grpc::fabric::verbs {
namespace {

// Requests that one connection has under way; what exceeds them waits in its own queue.
constexpr int kMostRequests = 128;
constexpr int kMostReads = 16;
// A round of events; the reactor comes back for more.
constexpr int kMostEvents = 64;
// More than any port's table has.
constexpr size_t kMostGids = 1 << 16;

Status Unusable(const std::string& why) { return Status(StatusCode::kUnavailable, why); }

bool HasPrefix(const abi::Gid& gid, std::initializer_list<uint8_t> prefix) {
  return std::equal(prefix.begin(), prefix.end(), gid.begin());
}

// ::ffff:a.b.c.d
bool IsIpv4(const abi::Gid& gid) {
  return HasPrefix(gid, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff});
}

bool IsLinkLocal(const abi::Gid& gid) { return HasPrefix(gid, {0xfe, 0x80}); }

// Of a RoCE port's names the first of each family, IPv4 before IPv6; a link-local address only
// where there is no other.
std::vector<NetworkName> RoceNames(const std::vector<abi::GidEntry>& entries) {
  const abi::GidEntry* ipv4 = nullptr;
  const abi::GidEntry* ipv6 = nullptr;
  for (const abi::GidEntry& entry : entries) {
    if (entry.type != abi::kGidTypeRoceV2) continue;
    if (IsIpv4(entry.gid)) {
      if (ipv4 == nullptr) ipv4 = &entry;
    } else if (ipv6 == nullptr || (IsLinkLocal(ipv6->gid) && !IsLinkLocal(entry.gid))) {
      ipv6 = &entry;
    }
  }
  std::vector<NetworkName> names;
  if (ipv4 != nullptr) {
    names.push_back({Family::kIpv4, ipv4->gid, static_cast<uint8_t>(ipv4->index)});
  }
  if (ipv6 != nullptr) {
    names.push_back({Family::kIpv6, ipv6->gid, static_cast<uint8_t>(ipv6->index)});
  }
  return names;
}

Status NonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
  return Status();
}

uint8_t Reads(int most) { return static_cast<uint8_t>(std::clamp(most, 0, kMostReads)); }

}  // namespace

Status DeviceStatus(int error, const std::string& what) {
  Status status = ErrnoStatus(error, what);
  if (status.code() == StatusCode::kResourceExhausted) return status;
  return Unusable(status.message());
}

StatusOr<std::shared_ptr<Device>> Device::Open(const Library& library) {
  int count = 0;
  abi::Device** const list = library.get_device_list(&count);
  if (list == nullptr) {
    return Unusable(ErrnoStatus(errno, "listing RDMA devices").message());
  }
  std::string why;
  std::shared_ptr<Device> opened;
  for (int i = 0; i < count && !opened; ++i) {
    const std::string name = library.get_device_name(list[i]);
    Status status;
    if (list[i]->transport_type != abi::kTransportInfiniBand) {
      status = Unusable("neither InfiniBand nor RoCE");
    } else if (abi::Context* const context = library.open_device(list[i]); context == nullptr) {
      status = ErrnoStatus(errno, "cannot be opened");
    } else {
      const std::shared_ptr<Device> device(new Device(library, context, name));
      status = device->Prepare();
      if (status.ok()) opened = device;
    }
    if (!status.ok()) why += (why.empty() ? ": " : "; ") + name + ": " + status.message();
  }
  library.free_device_list(list);
  if (opened) return opened;
  return Unusable(why.empty() ? "this machine has no RDMA device"
                              : "no RDMA device can be used" + why);
}

Device::Device(const Library& library, abi::Context* context, std::string name)
    : library_(library), context_(context), fork_count_(ForkCount()), name_(std::move(name)) {}

Device::~Device() {
  if (InChild()) return;
  Reactor::Get().Remove(context_->async_fd);
  if (channel_ != nullptr) {
    Reactor::Get().Remove(channel_->fd);
    library_.destroy_comp_channel(channel_);
  }
  if (domain_ != nullptr) library_.dealloc_pd(domain_);
  library_.close_device(context_);
}

bool Device::InChild() const { return ForkCount() != fork_count_; }

Status Device::NotHere() const {
  return Unusable("the RDMA connections of a forked child's parent do not work in the child");
}

Status Device::Prepare() {
  abi::DeviceAttributes attributes = {};
  if (const int error = library_.query_device(context_, &attributes); error != 0) {
    return ErrnoStatus(error, "cannot be queried");
  }
  limits_.region_bytes = attributes.max_mr_size;
  limits_.requests = std::min({kMostRequests, attributes.max_qp_wr, attributes.max_cqe});
  limits_.most_reads = Reads(attributes.max_qp_init_rd_atom);
  limits_.most_served_reads = Reads(attributes.max_qp_rd_atom);
  if (limits_.requests < 1 || limits_.most_reads == 0 || limits_.most_served_reads == 0) {
    return Unusable("it does not do RDMA READ");
  }
  if (Status status = ChoosePort(attributes.ports); !status.ok()) return status;
  domain_ = library_.alloc_pd(context_);
  if (domain_ == nullptr) return ErrnoStatus(errno, "no protection domain");
  channel_ = library_.create_comp_channel(context_);
  if (channel_ == nullptr) return ErrnoStatus(errno, "no completion channel");
  return Watch();
}

Status Device::ChoosePort(uint8_t ports) {
  ports_ = ports;
  Status status = Unusable("it has no port");
  for (int port = 1; port <= ports; ++port) {
    port_ = static_cast<uint8_t>(port);
    status = QueryPort().status();
    if (!status.ok()) continue;
    abi::PortAttributes attributes = {};
    if (const int error = library_.query_port(context_, port_, &attributes); error != 0) {
      return ErrnoStatus(error, "its port cannot be queried");
    }
    limits_.message_bytes = attributes.max_msg_sz;
    if (limits_.message_bytes == 0) return Unusable("it sends no messages");
    name_ += "/" + std::to_string(port);
    return Status();
  }
  return status;
}

StatusOr<Device::Port> Device::QueryPort() const {
  if (InChild()) return NotHere();
  if (failed()) return Unusable(name_ + " has failed");
  abi::PortAttributes attributes = {};
  if (const int error = library_.query_port(context_, port_, &attributes); error != 0) {
    return DeviceStatus(error, "the port of " + name_ + " cannot be queried");
  }
  if (attributes.state != abi::kPortActive) return Unusable("its port is down");
  // The table of all ports; one that is longer is refused.
  const size_t most = static_cast<size_t>(std::max(attributes.gid_count, 1)) * ports_;
  std::vector<abi::GidEntry> entries(std::min(most, kMostGids));
  const ssize_t count =
      library_.query_gid_table(context_, entries.data(), entries.size(), 0, sizeof(abi::GidEntry));
  if (count < 0) return DeviceStatus(static_cast<int>(-count), "the GIDs of " + name_);
  entries.resize(std::min<size_t>(count, entries.size()));
  // A queue pair's address has eight bits for the index.
  entries.erase(std::remove_if(entries.begin(), entries.end(),
                               [this](const abi::GidEntry& entry) {
                                 return entry.port != port_ || entry.index > UINT8_MAX;
                               }),
                entries.end());
  Port port;
  port.mtu =
      static_cast<uint8_t>(std::clamp(attributes.active_mtu, abi::kSmallestMtu, abi::kLargestMtu));
  port.address.link_layer = attributes.link_layer == abi::kLinkLayerUnspecified
                                ? abi::kLinkLayerInfiniBand
                                : attributes.link_layer;
  port.address.lid = attributes.lid;
  if (port.address.link_layer == abi::kLinkLayerEthernet) {
    port.address.names = RoceNames(entries);
    if (port.address.names.empty()) return Unusable("its port has no IP address for RoCE v2");
    return port;
  }
  if (port.address.lid == 0 || entries.empty()) {
    return Unusable("no subnet manager has given its port a LID and a GID");
  }
  port.address.names = {
      {Family::kInfiniBand, entries.front().gid, static_cast<uint8_t>(entries.front().index)}};
  return port;
}

Status Device::Watch() {
  // Also where descriptors are blocking: a look without an event would stop the reactor.
  for (const int fd : {channel_->fd, context_->async_fd}) {
    if (Status status = NonBlocking(fd); !status.ok()) return status;
  }
  const std::weak_ptr<Device> weak = weak_from_this();
  Status status = Reactor::Get().Add(channel_->fd, [weak] {
    if (const std::shared_ptr<Device> self = weak.lock()) self->TakeCompletionEvents();
  });
  if (!status.ok()) return status;
  return Reactor::Get().Add(context_->async_fd, [weak] {
    if (const std::shared_ptr<Device> self = weak.lock()) self->TakeAsyncEvents();
  });
}

void Device::Add(abi::CompletionQueue* queue, abi::QueuePair* pair,
                 std::shared_ptr<EventTarget> target) {
  std::lock_guard<std::mutex> lock(mu_);
  watched_[queue] = {pair, std::move(target)};
}

void Device::Remove(abi::CompletionQueue* queue) {
  std::shared_ptr<EventTarget> dropped;  // without the lock
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = watched_.find(queue);
  if (found == watched_.end()) return;
  dropped = std::move(found->second.target);
  watched_.erase(found);
}

std::shared_ptr<EventTarget> Device::Find(
    const std::function<bool(abi::CompletionQueue*, const Watched&)>& wanted) const {
  std::lock_guard<std::mutex> lock(mu_);
  for (const auto& [queue, watched] : watched_) {
    if (wanted(queue, watched)) return watched.target;
  }
  return nullptr;
}

// A queue is destroyed on the reactor only, so one that an event names is still there.
void Device::TakeCompletionEvents() {
  for (int i = 0; i < kMostEvents; ++i) {
    abi::CompletionQueue* queue = nullptr;
    void* user = nullptr;
    if (library_.get_cq_event(channel_, &queue, &user) != 0) {
      if (errno != EAGAIN && errno != EINTR) Lose(channel_->fd, errno);
      return;
    }
    library_.ack_cq_events(queue, 1);
    std::shared_ptr<EventTarget> target;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (const auto found = watched_.find(queue); found != watched_.end()) {
        target = found->second.target;
      }
    }
    if (target) target->OnCompletions();
  }
}

void Device::TakeAsyncEvents() {
  for (int i = 0; i < kMostEvents; ++i) {
    abi::AsyncEvent event = {};
    if (library_.get_async_event(context_, &event) != 0) {
      if (errno != EAGAIN && errno != EINTR) Lose(context_->async_fd, errno);
      return;
    }
    const std::string what = name_ + ": " + library_.event_type_str(event.type);
    std::shared_ptr<EventTarget> target;
    switch (event.type) {
      case abi::kEventQueueError:
        target = Find(
            [&event](abi::CompletionQueue* queue, const Watched&) { return queue == event.queue; });
        break;
      case abi::kEventPairFatal:
      case abi::kEventPairRequestError:
      case abi::kEventPairAccessError:
        target = Find([&event](abi::CompletionQueue*, const Watched& watched) {
          return watched.pair == event.pair;
        });
        break;
      default:
        break;
    }
    // Before anything else: what an event names is not destroyed until then.
    library_.ack_async_event(&event);
    if (target) target->OnFailure(what);
    if (event.type == abi::kEventDeviceFatal) FailAll(what);
  }
}

// The kernel has taken the device away: its descriptor would poll readable for ever.
void Device::Lose(int fd, int error) {
  Reactor::Get().Remove(fd);
  FailAll(ErrnoStatus(error, name_ + ": its events").message());
}

void Device::FailAll(const std::string& what) {
  if (failed_.exchange(true, std::memory_order_acq_rel)) return;
  Log(Severity::kError, what);
  std::vector<std::shared_ptr<EventTarget>> targets;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [queue, watched] : watched_) targets.push_back(watched.target);
  }
  for (const std::shared_ptr<EventTarget>& target : targets) target->OnFailure(what);
}

}  // namespace ar_grpc::fabric::verbs
