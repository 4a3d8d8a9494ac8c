// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/connection_manager.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"

namespace ar_grpc::fabric::verbs {
namespace {

// A round of events; the reactor comes back for more.
constexpr int kMostEvents = 64;
constexpr int kResolveMs = 2000;
// Connections of strangers may wait beside the peer's.
constexpr int kBacklog = 8;
// librdmacm counts ports by itself, and one that it finds free may be another program's.
constexpr int kMostPorts = 16;
constexpr size_t kMostAddresses = 256;
constexpr size_t kMapped = 12;  // bytes of a GID before its IPv4 address

struct SocketAddress {
  SocketAddress(const NetworkName& name, uint16_t port) {
    if (name.family == Family::kIpv4) {
      sockaddr_in ipv4 = {};
      ipv4.sin_family = AF_INET;
      ipv4.sin_port = htons(port);
      std::memcpy(&ipv4.sin_addr, name.gid.data() + kMapped, sizeof(ipv4.sin_addr));
      std::memcpy(&storage, &ipv4, sizeof(ipv4));
    } else {
      sockaddr_in6 ipv6 = {};
      ipv6.sin6_family = AF_INET6;
      ipv6.sin6_port = htons(port);
      std::memcpy(&ipv6.sin6_addr, name.gid.data(), name.gid.size());
      std::memcpy(&storage, &ipv6, sizeof(ipv6));
    }
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  sockaddr_storage storage = {};
};

bool SameName(const NetworkName& a, const NetworkName& b) {
  return a.family == b.family && a.gid == b.gid;
}

// false: no address that others could dial.
bool ReadName(const sockaddr* address, NetworkName* name) {
  if (address->sa_family == AF_INET) {
    sockaddr_in ipv4 = {};
    std::memcpy(&ipv4, address, sizeof(ipv4));
    name->family = Family::kIpv4;
    name->gid[kMapped - 2] = name->gid[kMapped - 1] = 0xff;
    std::memcpy(name->gid.data() + kMapped, &ipv4.sin_addr, sizeof(ipv4.sin_addr));
    return true;
  }
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 ipv6 = {};
  std::memcpy(&ipv6, address, sizeof(ipv6));
  name->family = Family::kIpv6;
  std::memcpy(name->gid.data(), &ipv6.sin6_addr, name->gid.size());
  return !IN6_IS_ADDR_LINKLOCAL(&ipv6.sin6_addr) && !IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr);
}

// Of all network devices that are up, IPv4 first.
StatusOr<std::vector<NetworkName>> MachineAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus(errno, "listing this machine's addresses");
  std::vector<NetworkName> names;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    NetworkName name;
    const bool up = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (!up || each->ifa_addr == nullptr || !ReadName(each->ifa_addr, &name)) continue;
    if (names.size() < kMostAddresses) names.push_back(name);
  }
  freeifaddrs(list);
  std::stable_sort(names.begin(), names.end(),
                   [](const NetworkName& a, const NetworkName& b) { return a.family < b.family; });
  return names;
}

abi::ConnectionParameters Parameters(const ConnectionTerms& terms) {
  abi::ConnectionParameters parameters = {};
  parameters.private_data = terms.private_data.data();
  parameters.private_data_bytes = static_cast<uint8_t>(terms.private_data.size());
  parameters.initiator_depth = terms.reads;
  parameters.responder_resources = terms.served_reads;
  parameters.pair_number = terms.pair;
  return parameters;
}

}  // namespace

ManagedId::ManagedId(std::shared_ptr<ConnectionManager> manager, abi::ConnectionId* id)
    : manager_(std::move(manager)), id_(id) {}

ManagedId::~ManagedId() { manager_->End(id_); }

void ManagedId::OnEvents(ManagerEvents events) {
  std::lock_guard<std::mutex> lock(mu_);
  events_.swap(events);  // what was there goes without the lock
}

Status ManagedId::Refused(const char* what) const {
  return DeviceStatus(errno, what + manager_->device_);
}

Status ManagedId::ResolveAddress(const NetworkName& own, const NetworkName& peer, uint16_t port) {
  SocketAddress from(own, 0);
  SocketAddress to(peer, port);
  if (manager_->library_.resolve_addr(id_, from.get(), to.get(), kResolveMs) == 0) return Status();
  return Refused("looking for the peer's address from ");
}

Status ManagedId::ResolveRoute() {
  if (manager_->library_.resolve_route(id_, kResolveMs) == 0) return Status();
  return Refused("looking for a route from ");
}

bool ManagedId::OnDevice() const { return manager_->IsOurs(id_); }

Status ManagedId::Connect(const ConnectionTerms& terms) {
  return Begin(manager_->library_.connect, terms, "connecting a queue pair of ");
}

Status ManagedId::Accept(const ConnectionTerms& terms) {
  return Begin(manager_->library_.accept, terms, "accepting a connection of ");
}

Status ManagedId::Begin(int (*call)(abi::ConnectionId*, abi::ConnectionParameters*),
                        const ConnectionTerms& terms, const char* what) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    connecting_ = shared_from_this();
  }
  abi::ConnectionParameters parameters = Parameters(terms);
  if (call(id_, &parameters) == 0) return Status();
  Status status = Refused(what);
  std::lock_guard<std::mutex> lock(mu_);
  connecting_.reset();  // the caller holds it
  return status;
}

uint16_t ManagedId::port() const { return ntohs(manager_->library_.get_src_port(id_)); }

bool ManagedId::connecting() {
  std::lock_guard<std::mutex> lock(mu_);
  return connecting_ != nullptr;
}

void ManagedId::Handle(const ManagerEvent& event) {
  std::shared_ptr<ManagedId> connecting;
  ManagerEvents events;
  {
    std::lock_guard<std::mutex> lock(mu_);
    const bool over = event.type == abi::kEstablished || event.type == abi::kDisconnected;
    if (over || event.error != 0) connecting.swap(connecting_);
    events = events_;
  }
  if (events) events(event);
}

StatusOr<std::shared_ptr<ConnectionManager>> ConnectionManager::Open(
    const Library& verbs, std::string device, std::function<void(const std::string& what)> lost) {
  const StatusOr<const RdmacmLibrary*> library = LoadRdmacm();
  if (!library.ok()) return library.status();
  const std::shared_ptr<ConnectionManager> made(
      new ConnectionManager(verbs, **library, std::move(device), std::move(lost)));
  if (Status status = made->Watch(); !status.ok()) return status;
  return made;
}

ConnectionManager::ConnectionManager(const Library& verbs, const RdmacmLibrary& library,
                                     std::string device,
                                     std::function<void(const std::string& what)> lost)
    : verbs_(verbs),
      library_(library),
      device_(std::move(device)),
      fork_count_(ForkCount()),
      lost_(std::move(lost)) {}

ConnectionManager::~ConnectionManager() {
  if (InChild() || channel_ == nullptr) return;
  Reactor::Get().Remove(channel_->fd);
  const std::unique_lock<std::mutex> no_fork = HoldOffForks();
  descriptor_.Reset();
  library_.destroy_event_channel(channel_);
}

bool ConnectionManager::InChild() const { return ForkCount() != fork_count_; }

Status ConnectionManager::Watch() {
  {
    const std::unique_lock<std::mutex> no_fork = HoldOffForks();
    channel_ = library_.create_event_channel();
    if (channel_ == nullptr) return DeviceStatus(errno, "no channel for events of librdmacm");
    descriptor_.Set(channel_->fd);
  }
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "fcntl");
  }
  return Reactor::Get().Add(channel_->fd, [weak = weak_from_this()] {
    if (const std::shared_ptr<ConnectionManager> self = weak.lock()) self->TakeEvents();
  });
}

void ConnectionManager::TakeEvents() {
  for (int i = 0; i < kMostEvents; ++i) {
    abi::ConnectionEvent* event = nullptr;
    if (library_.get_cm_event(channel_, &event) != 0) {
      if (errno != EAGAIN && errno != EINTR) Lose(errno);
      return;
    }
    Take(event);
  }
}

void ConnectionManager::Take(abi::ConnectionEvent* raw) {
  ManagerEvent event;
  event.type = raw->type;
  const char* const text = library_.event_str(raw->type);
  event.text = text != nullptr ? text : "an unknown event";
  event.error = std::abs(raw->status);
  const bool good = raw->type == abi::kAddressResolved || raw->type == abi::kRouteResolved ||
                    raw->type == abi::kConnectRequest || raw->type == abi::kEstablished ||
                    raw->type == abi::kDisconnected;
  if (!good && event.error == 0) event.error = ECONNABORTED;
  // Where it went well the number means other things.
  if (raw->type == abi::kDisconnected || raw->type == abi::kConnectRequest) event.error = 0;
  abi::ConnectionId* target = raw->id;
  if (raw->type == abi::kConnectRequest) {
    target = raw->listener;
    event.request = Wrap(raw->id);
    if (raw->parameters.private_data != nullptr) {
      event.private_data.assign(static_cast<const char*>(raw->parameters.private_data),
                                raw->parameters.private_data_bytes);
    }
  }
  // Before anything else: an id is not ended until all of its events are acknowledged.
  library_.ack_cm_event(raw);
  const std::shared_ptr<ManagedId> id = Find(target);
  if (!id) return;
  // The kernel waits until nobody has the device, and lets nobody connect over it any more. An id
  // can be on another one: which it is shows only once its address is resolved.
  if (event.type == abi::kDeviceRemoval && id->OnDevice())
    lost_(device_ + ": the device is being removed");
  id->Handle(event);
}

// The descriptor would poll readable for ever.
void ConnectionManager::Lose(int error) {
  Reactor::Get().Remove(channel_->fd);
  ManagerEvent event;
  event.type = abi::kDeviceRemoval;
  event.error = error;
  event.text = "librdmacm's events";
  std::vector<std::shared_ptr<ManagedId>> ids;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [raw, weak] : ids_) {
      if (std::shared_ptr<ManagedId> id = weak.lock()) ids.push_back(std::move(id));
    }
  }
  lost_(ErrnoStatus(error, device_ + ": librdmacm's events").message());
  for (const std::shared_ptr<ManagedId>& id : ids) {
    // The kernel still has a part in one that is being connected, and will not say when no more.
    if (!id->connecting()) id->Handle(event);
  }
}

std::shared_ptr<ManagedId> ConnectionManager::Wrap(abi::ConnectionId* id) {
  std::shared_ptr<ManagedId> wrapped(new ManagedId(shared_from_this(), id));
  std::lock_guard<std::mutex> lock(mu_);
  ids_[id] = wrapped;
  return wrapped;
}

std::shared_ptr<ManagedId> ConnectionManager::Find(abi::ConnectionId* id) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = ids_.find(id);
  return found == ids_.end() ? nullptr : found->second.lock();
}

void ConnectionManager::End(abi::ConnectionId* id) {
  if (InChild()) return;
  {
    std::lock_guard<std::mutex> lock(mu_);
    ids_.erase(id);
  }
  // The reactor has run since the device was opened.
  static_cast<void>(StartOnReactor([self = shared_from_this(), id] {
    if (self->library_.destroy_id(id) == 0) return;
    Log(Severity::kError,
        ErrnoStatus(errno, "ending an id of librdmacm for " + self->device_).message());
  }));
}

StatusOr<std::shared_ptr<ManagedId>> ConnectionManager::NewId() {
  abi::ConnectionId* id = nullptr;
  if (library_.create_id(channel_, &id, nullptr, abi::kPortSpaceTcp) != 0) {
    return DeviceStatus(errno, "an id of librdmacm for " + device_);
  }
  return Wrap(id);
}

StatusOr<std::shared_ptr<ManagedId>> ConnectionManager::Listen(const NetworkName& own,
                                                               ManagerEvents events) {
  for (int i = 1;; ++i) {
    StatusOr<std::shared_ptr<ManagedId>> id = NewId();
    if (!id.ok()) return id.status();
    (*id)->OnEvents(events);
    SocketAddress any_port(own, 0);
    if (library_.bind_addr((*id)->id_, any_port.get()) == 0 &&
        library_.listen((*id)->id_, kBacklog) == 0) {
      return id;
    }
    if (errno == EADDRINUSE && i < kMostPorts) continue;
    return DeviceStatus(errno, "listening at " + AddressText(own) + " with " + device_);
  }
}

bool ConnectionManager::IsOurs(const abi::ConnectionId* id) const {
  return id->verbs != nullptr && verbs_.get_device_name(id->verbs->device) == device_;
}

bool ConnectionManager::LeadsHere(const NetworkName& name) const {
  abi::ConnectionId* id = nullptr;
  if (library_.create_id(channel_, &id, nullptr, abi::kPortSpaceTcp) != 0) return false;
  SocketAddress address(name, 0);
  const bool ours = library_.bind_addr(id, address.get()) == 0 && IsOurs(id);
  library_.destroy_id(id);  // it has had no events
  return ours;
}

StatusOr<std::vector<NetworkName>> ConnectionManager::Names() {
  const StatusOr<std::vector<NetworkName>> all = MachineAddresses();
  if (!all.ok()) return all.status();
  std::vector<NetworkName> names;
  bool known = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    known = std::equal(all->begin(), all->end(), tried_.begin(), tried_.end(), SameName);
    if (known) names = names_;
  }
  if (!known) {
    for (const NetworkName& name : *all) {
      if (!names.empty() && names.back().family == name.family) continue;
      if (LeadsHere(name)) names.push_back(name);
    }
    std::lock_guard<std::mutex> lock(mu_);
    tried_ = *all;
    names_ = names;
  }
  if (!names.empty()) return names;
  return Status(StatusCode::kUnavailable,
                "librdmacm finds it by no IP address: give its network device one");
}

}  // namespace ar_grpc::fabric::verbs
