// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/device.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/bounce_pool.h"
#include "third_party/ar_grpc/fabric/verbs/flow_control.h"
#include "third_party/ar_grpc/fabric/verbs/numa.h"
#include "third_party/ar_grpc/fabric/verbs/port_names.h"

namespace ar_grpc::fabric::verbs {
namespace {

constexpr int kMostReads = 16;
// A device answers a READ in one piece, and the frames behind it wait: as long as with Soft-RoCE.
constexpr uint32_t kLargestIwarpMessage = 8 << 20;
// More than any port's table has.
constexpr size_t kMostGids = 1 << 16;

Status Unusable(const std::string& why) { return Status(StatusCode::kUnavailable, why); }

// Who has set a variable wants RDMA, and learns once that it cannot be had.
void Complain(const std::string& why) {
  static auto* const said = new std::string;
  {
    std::lock_guard<std::mutex> lock(ForkSafeMutex());
    if (*said == why) return;
    *said = why;
  }
  Log(Severity::kWarning, "no RDMA, TCP is used between hosts: " + why);
}

uint8_t Reads(int most) { return static_cast<uint8_t>(std::clamp(most, 0, kMostReads)); }

}  // namespace

Status DeviceStatus(int error, const std::string& what) {
  if (error == 0) return Unusable(what + ": its library gives no reason");
  Status status = ErrnoStatus(error, what);
  if (status.code() == StatusCode::kResourceExhausted) return status;
  return Unusable(status.message());
}

StatusOr<std::shared_ptr<Device>> Device::Open(const Library& library) {
  const StatusOr<Settings> settings =
      ReadSettings([](const char* name) -> const char* { return std::getenv(name); });
  if (!settings.ok()) {
    Complain(settings.status().message());
    return Unusable(settings.status().message());
  }
  StatusOr<std::shared_ptr<Device>> device = OpenBest(library, *settings);
  if (!device.ok() && settings->given) Complain(device.status().message());
  return device;
}

StatusOr<std::shared_ptr<Device>> Device::OpenBest(const Library& library,
                                                   const Settings& settings) {
  StatusOr<Found> found = FindAll(library, settings);
  if (!found.ok()) return found.status();
  const int home = NodeOfMostProcessors();
  for (;;) {
    const StatusOr<Choice> choice = ChooseDevice(found->candidates, settings, home);
    if (!choice.ok()) return choice.status();
    Candidate& chosen = found->candidates[choice->index];
    const std::shared_ptr<Device>& device = found->devices[choice->index];
    const Status status = device->Start(chosen.port);
    if (status.ok()) {
      Log(Severity::kInfo, choice->line);
      return device;
    }
    chosen.unusable = status.message();
  }
}

StatusOr<Device::Found> Device::FindAll(const Library& library, const Settings& settings) {
  int count = 0;
  abi::Device** const list = library.get_device_list(&count);
  if (list == nullptr) {
    return Unusable(ErrnoStatus(errno, "listing RDMA devices").message());
  }
  Found found;
  for (int i = 0; i < count; ++i) Examine(library, list[i], settings, &found);
  library.free_device_list(list);
  return found;
}

void Device::Examine(const Library& library, abi::Device* device, const Settings& settings,
                     Found* found) {
  Candidate candidate;
  candidate.device = library.get_device_name(device);
  std::shared_ptr<Device> opened;
  // One that the settings do not name is listed, and left alone.
  if (settings.device.empty() || settings.device == candidate.device) {
    Status status;
    if (device->transport_type != abi::kTransportInfiniBand &&
        device->transport_type != abi::kTransportIwarp) {
      status = Unusable("neither InfiniBand nor RoCE nor iWARP");
    } else {
      std::unique_lock<std::mutex> no_fork = HoldOffForks();
      abi::Context* const context = library.open_device(device);
      const int error = errno;
      if (context != nullptr) {
        opened.reset(new Device(library, context, candidate.device, settings));
      }
      no_fork.unlock();
      status = opened ? opened->Prepare() : ErrnoStatus(error, "cannot be opened");
    }
    candidate.unusable = status.message();
  }
  if (!opened || !candidate.unusable.empty()) {
    found->candidates.push_back(std::move(candidate));
    found->devices.push_back(nullptr);
    return;
  }
  const int node = NodeOfDevice(candidate.device);
  for (int port = 1; port <= opened->ports_; ++port) {
    found->candidates.push_back(opened->Describe(static_cast<uint8_t>(port), node));
    found->devices.push_back(opened);
  }
}

Device::Device(const Library& library, abi::Context* context, std::string name, Settings settings)
    : library_(library),
      context_(context),
      fork_count_(ForkCount()),
      device_name_(std::move(name)),
      settings_(std::move(settings)),
      name_(device_name_) {
  descriptors_[0].Set(context_->command_fd);
  descriptors_[1].Set(context_->async_fd);
}

Device::~Device() {
  if (InChild()) return;
  Reactor::Get().Remove(context_->async_fd);
  if (channel_ != nullptr) Reactor::Get().Remove(channel_->fd);
  const std::unique_lock<std::mutex> no_fork = HoldOffForks();
  for (ClosedInChild& descriptor : descriptors_) descriptor.Reset();
  if (channel_ != nullptr) library_.destroy_comp_channel(channel_);
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
  // Beside frames, which have their places in the same queues.
  const int places = std::min(attributes.max_qp_wr, attributes.max_cqe) - int{kSendBuffers};
  if (places < 1) return Unusable("its queues are too short");
  const int requests = std::min(settings_.queue_depth, places);
  limits_.most_reads = Reads(std::min(attributes.max_qp_init_rd_atom, requests));
  limits_.most_served_reads = Reads(attributes.max_qp_rd_atom);
  if (limits_.most_reads == 0 || limits_.most_served_reads == 0) {
    return Unusable("it does not do RDMA READ");
  }
  ports_ = attributes.ports;
  return ports_ > 0 ? Status() : Unusable("it has no port");
}

Candidate Device::Describe(uint8_t port, int numa_node) const {
  Candidate candidate;
  candidate.device = device_name_;
  candidate.port = port;
  candidate.numa_node = numa_node;
  // One that is not to be used is not asked, which could fail.
  if (settings_.port != 0 && settings_.port != port) return candidate;
  const StatusOr<PortState> state = QueryPort(port);
  if (!state.ok()) {
    candidate.unusable = state.status().message();
  } else {
    candidate.link_layer = state->port.address.link_layer;
    candidate.rate = LinkRate(state->attributes.active_width, state->attributes.active_speed);
  }
  return candidate;
}

Status Device::Start(uint8_t port) {
  abi::PortAttributes attributes = {};
  if (const int error = library_.query_port(context_, port, &attributes); error != 0) {
    return ErrnoStatus(error, "its port cannot be queried");
  }
  limits_.message_bytes = attributes.max_msg_sz;
  if (limits_.message_bytes == 0) return Unusable("it sends no messages");
  if (iwarp()) limits_.message_bytes = std::min(limits_.message_bytes, kLargestIwarpMessage);
  port_ = port;
  name_ = PortName(device_name_, port);
  // Another port may have been tried before.
  if (domain_ == nullptr) {
    const std::unique_lock<std::mutex> no_fork = HoldOffForks();
    domain_ = library_.alloc_pd(context_);
    if (domain_ == nullptr) return ErrnoStatus(errno, "no protection domain");
  }
  if (channel_ == nullptr) {
    const std::unique_lock<std::mutex> no_fork = HoldOffForks();
    channel_ = library_.create_comp_channel(context_);
    if (channel_ == nullptr) return ErrnoStatus(errno, "no completion channel");
    descriptors_[2].Set(channel_->fd);
  }
  if (iwarp()) {
    if (Status status = StartManager(); !status.ok()) return status;
  }
  return Watch();
}

StatusOr<Device::Port> Device::QueryPort() const {
  if (InChild()) return NotHere();
  if (failed()) return Unusable(name_ + " has failed");
  const StatusOr<PortState> state = QueryPort(port_);
  if (!state.ok()) return state.status();
  return state->port;
}

StatusOr<Device::PortState> Device::QueryPort(uint8_t port) const {
  PortState state;
  abi::PortAttributes& attributes = state.attributes;
  if (const int error = library_.query_port(context_, port, &attributes); error != 0) {
    return DeviceStatus(error,
                        "the port of " + PortName(device_name_, port) + " cannot be queried");
  }
  if (attributes.state != abi::kPortActive) return Unusable("its port is down");
  state.port.mtu = static_cast<uint8_t>(
      std::clamp<int>(attributes.active_mtu, abi::kSmallestMtu, settings_.largest_mtu));
  Address& address = state.port.address;
  address.link_layer = attributes.link_layer == abi::kLinkLayerUnspecified
                           ? abi::kLinkLayerInfiniBand
                           : attributes.link_layer;
  address.lid = attributes.lid;
  if (iwarp()) {
    address = Address();
    address.link_layer = kLinkLayerIwarp;
    // Of one that is not used nobody asks for names, which would take librdmacm.
    if (!manager_) return state;
    StatusOr<std::vector<NetworkName>> names = manager_->Names();
    if (!names.ok()) return names.status();
    address.names = std::move(*names);
    return state;
  }
  StatusOr<std::vector<NetworkName>> names = Names(port, attributes);
  if (!names.ok()) return names.status();
  address.names = std::move(*names);
  const StatusOr<uint16_t> pkey = PartitionKey(port, attributes);
  if (!pkey.ok()) return pkey.status();
  address.pkey = *pkey;
  return state;
}

StatusOr<std::vector<NetworkName>> Device::Names(uint8_t port,
                                                 const abi::PortAttributes& attributes) const {
  const StatusOr<std::vector<abi::GidEntry>> entries = QueryGids(port, attributes);
  if (!entries.ok()) return entries.status();
  return PortNames(*entries, port, attributes, PortName(device_name_, port), settings_);
}

StatusOr<std::vector<abi::GidEntry>> Device::QueryGids(
    uint8_t port, const abi::PortAttributes& attributes) const {
  // A table that is longer is refused.
  const size_t most = static_cast<size_t>(std::max(attributes.gid_count, 1)) * ports_;
  std::vector<abi::GidEntry> entries(std::min(most, kMostGids));
  const ssize_t count =
      library_.query_gid_table(context_, entries.data(), entries.size(), 0, sizeof(abi::GidEntry));
  if (count < 0) {
    return DeviceStatus(static_cast<int>(-count), "the GIDs of " + PortName(device_name_, port));
  }
  entries.resize(std::min<size_t>(count, entries.size()));
  return entries;
}

StatusOr<uint16_t> Device::PartitionKey(uint8_t port, const abi::PortAttributes& attributes) const {
  const int index = settings_.pkey_index;
  const std::string name = PortName(device_name_, port);
  if (index >= std::max<int>(attributes.pkey_count, 1)) {
    return WrongSetting(kPkeyIndexVariable, std::to_string(index),
                        name + " has no partition key there, only at 0 to " +
                            std::to_string(std::max<int>(attributes.pkey_count, 1) - 1));
  }
  uint16_t pkey = 0;
  errno = 0;
  if (library_.query_pkey(context_, port, index, &pkey) != 0) {
    return DeviceStatus(errno != 0 ? errno : EIO, "the partition key of " + name);
  }
  pkey = ntohs(pkey);
  if ((pkey & kPartition) != 0) return pkey;
  return WrongSetting(kPkeyIndexVariable, std::to_string(index),
                      "that place in the partition table of " + name + " is empty");
}

std::shared_ptr<BouncePool> Device::Bounce() {
  std::lock_guard<std::mutex> lock(mu_);
  std::shared_ptr<BouncePool> bounce = bounce_.lock();
  if (!bounce) bounce_ = bounce = std::make_shared<BouncePool>(shared_from_this());
  return bounce;
}

}  // namespace ar_grpc::fabric::verbs
