// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CONNECTION_MANAGER_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CONNECTION_MANAGER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"
#include "third_party/ar_grpc/fabric/verbs/closed_in_child.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"
#include "third_party/ar_grpc/fabric/verbs/rdmacm_library.h"

// How queue pairs of an iWARP device are connected: by IP address and port, over a TCP connection
// of the device's own, which librdmacm and the kernel make. The queue pairs themselves, like all
// memory, belong to the device as this process has opened it; librdmacm, whose own contexts stay
// unused, is told their numbers alone.
namespace ar_grpc::fabric::verbs {

class ConnectionManager;
class ManagedId;

struct ManagerEvent {
  int type = 0;   // abi::k…
  int error = 0;  // an errno where what was begun has failed
  std::string text;
  std::string private_data;            // what the peer has said
  std::shared_ptr<ManagedId> request;  // of abi::kConnectRequest: its end here; let go: refused
};
// On the reactor, holding no lock; must not block.
using ManagerEvents = std::function<void(const ManagerEvent& event)>;

// What a queue pair is connected with.
struct ConnectionTerms {
  uint32_t pair = 0;  // its number
  uint8_t reads = 0;  // that it may have under way
  uint8_t served_reads = 0;
  std::string private_data;
};

// librdmacm's id of a listener or of one end of a connection, which it ends when it goes: on the
// reactor, where every event is acknowledged at once, so that this never waits. Thread-safe, but
// for its calls: one at a time.
class ManagedId : public std::enable_shared_from_this<ManagedId> {
 public:
  ~ManagedId();
  ManagedId(const ManagedId&) = delete;

  // Before the first call below; and again, when somebody else is to hear. `events` holds what it
  // needs, and is let go with the id or by another call.
  void OnEvents(ManagerEvents events);

  // Begins to look for the peer, from one of this device's own addresses. kAddressResolved follows.
  Status ResolveAddress(const NetworkName& own, const NetworkName& peer, uint16_t port);
  // Then kRouteResolved follows.
  Status ResolveRoute();
  // Whether what was resolved is this device's way.
  bool OnDevice() const;
  // Waits for the network, up to two minutes where a host is silent. kEstablished follows,
  // kDisconnected or an error; the id stays until then, as the kernel would wait for that to end
  // it.
  Status Connect(const ConnectionTerms& terms);
  // The answer to a request. The same follows.
  Status Accept(const ConnectionTerms& terms);
  // Where a listener listens.
  uint16_t port() const;

 private:
  friend class ConnectionManager;
  ManagedId(std::shared_ptr<ConnectionManager> manager, abi::ConnectionId* id);
  Status Begin(int (*call)(abi::ConnectionId*, abi::ConnectionParameters*),
               const ConnectionTerms& terms, const char* what);
  Status Refused(const char* what) const;
  void Handle(const ManagerEvent& event);
  bool connecting();

  const std::shared_ptr<ConnectionManager> manager_;
  abi::ConnectionId* const id_;
  std::mutex mu_;
  ManagerEvents events_;
  std::shared_ptr<ManagedId> connecting_;  // this, while it is being connected
};

// librdmacm's events for one device. Belongs to the process that opened it, as Device does.
class ConnectionManager : public std::enable_shared_from_this<ConnectionManager> {
 public:
  // `lost` runs, on the reactor, when no more events can be had.
  static StatusOr<std::shared_ptr<ConnectionManager>> Open(
      const Library& verbs, std::string device, std::function<void(const std::string& what)> lost);
  ~ConnectionManager();
  ConnectionManager(const ConnectionManager&) = delete;

  // The device's IP addresses, one of each family, as they are now. kUnavailable: it has none.
  StatusOr<std::vector<NetworkName>> Names();
  // A listener at `own`, on a free port.
  StatusOr<std::shared_ptr<ManagedId>> Listen(const NetworkName& own, ManagerEvents events);
  StatusOr<std::shared_ptr<ManagedId>> NewId();

 private:
  friend class ManagedId;
  ConnectionManager(const Library& verbs, const RdmacmLibrary& library, std::string device,
                    std::function<void(const std::string& what)> lost);
  bool InChild() const;
  Status Watch();
  void TakeEvents();
  void Take(abi::ConnectionEvent* raw);
  void Lose(int error);
  std::shared_ptr<ManagedId> Wrap(abi::ConnectionId* id);
  std::shared_ptr<ManagedId> Find(abi::ConnectionId* id) const;
  bool IsOurs(const abi::ConnectionId* id) const;
  bool LeadsHere(const NetworkName& name) const;
  void End(abi::ConnectionId* id);

  const Library& verbs_;
  const RdmacmLibrary& library_;
  const std::string device_;
  const uint32_t fork_count_;
  const std::function<void(const std::string& what)> lost_;
  abi::EventChannel* channel_ = nullptr;
  ClosedInChild descriptor_;  // of channel_
  mutable std::mutex mu_;
  std::map<abi::ConnectionId*, std::weak_ptr<ManagedId>> ids_;
  // The machine's addresses when they were last tried, and those that led to the device.
  std::vector<NetworkName> tried_;
  std::vector<NetworkName> names_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CONNECTION_MANAGER_H_
