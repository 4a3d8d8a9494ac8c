// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/iwarp_attachment.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/fabric/verbs/aside.h"
#include "third_party/ar_grpc/fabric/verbs/connection.h"
#include "third_party/ar_grpc/fabric/verbs/connection_manager.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"
#include "third_party/ar_grpc/fabric/verbs/iwarp_frame.h"
#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"

namespace ar_grpc::fabric::verbs {
namespace {

// One end in the making. It outlives its Attachment while the kernel connects its queue pair.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  virtual ~Attempt() = default;
  virtual void TakeFrame(const std::string& frame) = 0;

  // In a forked child a thread of the parent's may hold the lock for ever.
  bool InChild() const { return pair_->device()->InChild(); }

  void GiveUp() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (std::exchange(over_, true)) return;
    }
    Drop();
    pair_->Close({});
  }

 protected:
  Attempt(std::shared_ptr<QueuePair> pair, const Device::Port& port, AttachEvents events)
      : pair_(std::move(pair)), port_(port), events_(std::move(events)) {}

  // Lets go what only an attempt needs; without the lock, once it is over.
  virtual void Drop() = 0;

  const Device& device() const { return *pair_->device(); }
  ConnectionManager& manager() const { return *pair_->device()->manager(); }
  Status Unusable(const std::string& why) const {
    return Status(StatusCode::kUnavailable, device().name() + ": " + why);
  }
  static Status OutOfOrder() {
    return Status(StatusCode::kInvalidArgument, "the peer's RDMA end does not keep to the order");
  }
  ReadDepth OwnReads() const {
    return {device().limits().most_reads, device().limits().most_served_reads};
  }

  // Neither end asks for more READs at once than the other one serves.
  StatusOr<ConnectionTerms> Terms(const ReadDepth& peer) const {
    ConnectionTerms terms;
    terms.pair = pair_->number();
    terms.reads = std::min(OwnReads().most, peer.most_served);
    terms.served_reads = std::min(OwnReads().most_served, peer.most);
    if (terms.reads > 0 && terms.served_reads > 0) return terms;
    return Status(StatusCode::kUnavailable, "the peer's RDMA device does not do RDMA READ");
  }

  // What an event says that ends an attempt; kOk for others.
  Status StatusOf(const ManagerEvent& event) const {
    const std::string what = device().name() + ": connecting over iWARP";
    if (event.error != 0) return DeviceStatus(event.error, what + ": " + event.text);
    if (event.type != abi::kDisconnected) return Status();
    return Status(StatusCode::kUnavailable, what + ": the peer's end has gone");
  }

  // The pair is connected by `id`, whose later events are the pair's. They do not end the attempt:
  // a server may close as soon as it has said its last word, and that may still be on its way. An
  // error: the pair has closed.
  Status Link(const std::shared_ptr<ManagedId>& id) {
    id->OnEvents([weak = std::weak_ptr<QueuePair>(pair_)](const ManagerEvent& event) {
      if (event.type != abi::kDisconnected && event.error == 0) return;
      if (const std::shared_ptr<QueuePair> pair = weak.lock()) pair->OnDisconnected();
    });
    return pair_->EndConnecting(id);
  }

  // It was not connected.
  void Unlink(const std::shared_ptr<ManagedId>& id, Status status) {
    id->OnEvents({});
    static_cast<void>(pair_->EndConnecting(nullptr));
    Finish(std::move(status), 0);
  }

  void Finish(Status status, uint64_t peer_seal) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (std::exchange(over_, true)) return;
    }
    Drop();
    if (status.ok()) {
      return events_.done(
          std::unique_ptr<Connection>(std::make_unique<VerbsConnection>(pair_, peer_seal)));
    }
    pair_->Close({});
    events_.done(std::move(status));
  }

  const std::shared_ptr<QueuePair> pair_;
  const Device::Port port_;
  const AttachEvents events_;
  std::mutex mu_;
  bool over_ = false;
};

class Server final : public Attempt {
 public:
  Server(std::shared_ptr<QueuePair> pair, const Device::Port& port, AttachEvents events)
      : Attempt(std::move(pair), port, std::move(events)), token_(NewToken()) {}

  Status Begin() {
    IwarpInvitation invitation;
    invitation.seal = pair_->seal();
    invitation.reads = OwnReads();
    invitation.token = token_;
    invitation.address = port_.address;
    std::vector<std::shared_ptr<ManagedId>> listeners;
    for (const NetworkName& name : port_.address.names) {
      StatusOr<std::shared_ptr<ManagedId>> listener =
          manager().Listen(name, [weak = weak_from_this()](const ManagerEvent& event) {
            const std::shared_ptr<Attempt> self = weak.lock();
            if (self) static_cast<Server*>(self.get())->OnListener(event);
          });
      if (!listener.ok()) return listener.status();
      invitation.ports.push_back((*listener)->port());
      listeners.push_back(std::move(*listener));
    }
    {
      std::lock_guard<std::mutex> lock(mu_);
      listeners_ = std::move(listeners);
    }
    events_.send(Encode(invitation));
    return Status();
  }

  void TakeFrame(const std::string& frame) override {
    const StatusOr<uint64_t> seal = DecodeConnected(frame);
    if (!seal.ok()) return Finish(seal.status(), 0);
    bool again = false;
    {
      std::lock_guard<std::mutex> lock(mu_);
      again = std::exchange(peer_seal_, *seal).has_value();
    }
    if (again) return Finish(OutOfOrder(), 0);
    Advance();
  }

 private:
  void Drop() override {
    std::vector<std::shared_ptr<ManagedId>> listeners;
    std::lock_guard<std::mutex> lock(mu_);
    listeners.swap(listeners_);
  }

  void OnListener(const ManagerEvent& event) {
    if (event.error != 0) return Finish(StatusOf(event), 0);
    if (!event.request) return;
    // Whoever has no token is refused, as the request goes.
    const StatusOr<IwarpIntroduction> introduction = DecodeIntroduction(event.private_data);
    if (!introduction.ok() || introduction->token != token_) return;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (over_ || std::exchange(introduced_, true)) return;
    }
    const StatusOr<ConnectionTerms> terms = Terms(introduction->reads);
    if (!terms.ok()) return Finish(terms.status(), 0);
    Accept(event.request, *terms);
  }

  void Accept(const std::shared_ptr<ManagedId>& request, const ConnectionTerms& terms) {
    if (Status status = pair_->BeginConnecting(terms.reads); !status.ok())
      return Finish(std::move(status), 0);
    const auto self = std::static_pointer_cast<Server>(shared_from_this());
    pair_->WhenHeard([self] {
      if (Status status = self->pair_->Usable(); !status.ok()) {
        return self->Finish(std::move(status), 0);
      }
      {
        std::lock_guard<std::mutex> lock(self->mu_);
        self->heard_ = true;
      }
      self->Advance();
    });
    // Held until one of them comes: the device has the pair meanwhile.
    const std::weak_ptr<ManagedId> weak = request;
    request->OnEvents([self, weak](const ManagerEvent& event) {
      const std::shared_ptr<ManagedId> id = weak.lock();
      if (!id) return;
      if (Status status = self->StatusOf(event); !status.ok()) return self->Unlink(id, status);
      if (event.type != abi::kEstablished) return;
      if (Status status = self->Link(id); !status.ok()) self->Finish(std::move(status), 0);
    });
    if (Status status = request->Accept(terms); !status.ok()) Unlink(request, std::move(status));
  }

  // Once the peer has said that it is connected, and its first frame is here.
  void Advance() {
    uint64_t peer_seal = 0;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (over_ || !peer_seal_.has_value() || !heard_ || std::exchange(ready_, true)) return;
      peer_seal = *peer_seal_;
    }
    events_.send(ReadyFrame());
    Finish(Status(), peer_seal);
  }

  const Token token_;
  std::vector<std::shared_ptr<ManagedId>> listeners_;
  std::optional<uint64_t> peer_seal_;
  bool introduced_ = false;
  bool heard_ = false;
  bool ready_ = false;
};

class Client final : public Attempt {
 public:
  Client(std::shared_ptr<QueuePair> pair, const Device::Port& port, AttachEvents events)
      : Attempt(std::move(pair), port, std::move(events)) {}

  void TakeFrame(const std::string& frame) override {
    State state = State::kWaiting;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (over_) return;
      state = state_;
      if (state_ == State::kWaiting) state_ = State::kConnecting;
    }
    switch (state) {
      case State::kWaiting:
        if (Status status = TakeInvitation(frame); !status.ok()) Finish(std::move(status), 0);
        return;
      case State::kConnecting:
        // Only a peer that does not wait for its answer.
        return Finish(OutOfOrder(), 0);
      case State::kConnected:
        return Finish(IsReadyFrame(frame) ? Status() : OutOfOrder(), peer_seal_);
    }
  }

 private:
  enum class State { kWaiting, kConnecting, kConnected };

  void Drop() override {
    std::shared_ptr<ManagedId> id;
    std::lock_guard<std::mutex> lock(mu_);
    id.swap(id_);
  }

  Status TakeInvitation(const std::string& frame) {
    const StatusOr<IwarpInvitation> invitation = DecodeInvitation(frame);
    if (!invitation.ok()) return invitation.status();
    StatusOr<ConnectionTerms> terms = Terms(invitation->reads);
    if (!terms.ok()) return terms.status();
    const StatusOr<Route> route = FindRoute(port_.address, invitation->address);
    if (!route.ok()) return route.status();
    peer_seal_ = invitation->seal;
    terms_ = std::move(*terms);
    terms_.private_data = Encode(IwarpIntroduction{invitation->token, OwnReads()});
    const auto of_family = [&route](const NetworkName& name) {
      return name.family == route->peer.family;
    };
    const std::vector<NetworkName>& own = port_.address.names;
    const std::vector<NetworkName>& theirs = invitation->address.names;
    const auto from = std::find_if(own.begin(), own.end(), of_family);
    const auto to = std::find_if(theirs.begin(), theirs.end(), of_family);
    StatusOr<std::shared_ptr<ManagedId>> id = manager().NewId();
    if (!id.ok()) return id.status();
    (*id)->OnEvents([weak = weak_from_this()](const ManagerEvent& event) {
      const std::shared_ptr<Attempt> self = weak.lock();
      if (self) static_cast<Client*>(self.get())->OnResolved(event);
    });
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (over_) return Status();
      id_ = *id;
    }
    return (*id)->ResolveAddress(*from, *to, invitation->ports[to - theirs.begin()]);
  }

  void OnResolved(const ManagerEvent& event) {
    if (Status status = StatusOf(event); !status.ok()) return Finish(std::move(status), 0);
    std::shared_ptr<ManagedId> id;
    {
      std::lock_guard<std::mutex> lock(mu_);
      id = id_;
    }
    if (!id) return;
    Status status;
    if (event.type == abi::kAddressResolved) {
      status = id->OnDevice() ? id->ResolveRoute()
                              : Unusable("the way to the peer's address is another device's");
    } else if (event.type == abi::kRouteResolved) {
      status = BeginConnecting(id);
    }
    if (!status.ok()) Finish(std::move(status), 0);
  }

  Status BeginConnecting(const std::shared_ptr<ManagedId>& id) {
    if (Status status = pair_->BeginConnecting(terms_.reads); !status.ok()) return status;
    const auto self = std::static_pointer_cast<Client>(shared_from_this());
    // Held until one of them comes: the device has the pair meanwhile.
    const std::weak_ptr<ManagedId> weak = id;
    id->OnEvents([self, weak](const ManagerEvent& event) {
      const std::shared_ptr<ManagedId> id = weak.lock();
      if (!id) return;
      if (Status status = self->StatusOf(event); !status.ok()) return self->Unlink(id, status);
      if (event.type == abi::kEstablished) self->OnConnected(id);
    });
    Status status = RunAside([self, id] {
      if (Status status = id->Connect(self->terms_); !status.ok()) {
        self->Unlink(id, std::move(status));
      }
    });
    if (!status.ok()) Unlink(id, status);
    return Status();
  }

  void OnConnected(const std::shared_ptr<ManagedId>& id) {
    if (Status status = Link(id); !status.ok()) return Finish(std::move(status), 0);
    if (Status status = pair_->Greet(); !status.ok()) return Finish(std::move(status), 0);
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (over_) return;
      state_ = State::kConnected;
    }
    events_.send(ConnectedFrame(pair_->seal()));
  }

  std::shared_ptr<ManagedId> id_;
  State state_ = State::kWaiting;
  uint64_t peer_seal_ = 0;  // like terms_ set before anything is connected
  ConnectionTerms terms_;
};

class IwarpAttachment final : public Attachment {
 public:
  explicit IwarpAttachment(std::shared_ptr<Attempt> attempt) : attempt_(std::move(attempt)) {}
  ~IwarpAttachment() override {
    if (!attempt_->InChild()) attempt_->GiveUp();
  }
  void TakeFrame(const std::string& frame) override {
    const std::shared_ptr<Attempt> attempt = attempt_;  // an event may destroy this
    attempt->TakeFrame(frame);
  }

 private:
  const std::shared_ptr<Attempt> attempt_;
};

}  // namespace

StatusOr<std::unique_ptr<Attachment>> AttachIwarp(std::shared_ptr<Device> device,
                                                  const Device::Port& port, bool server,
                                                  AttachEvents events) {
  StatusOr<std::shared_ptr<QueuePair>> pair = QueuePair::Create(std::move(device));
  if (!pair.ok()) return pair.status();
  if (!server) {
    auto client = std::make_shared<Client>(std::move(*pair), port, std::move(events));
    return std::unique_ptr<Attachment>(std::make_unique<IwarpAttachment>(std::move(client)));
  }
  const auto made = std::make_shared<Server>(std::move(*pair), port, std::move(events));
  auto attachment = std::make_unique<IwarpAttachment>(made);  // an error gives it up
  if (Status status = made->Begin(); !status.ok()) return status;
  return std::unique_ptr<Attachment>(std::move(attachment));
}

}  // namespace ar_grpc::fabric::verbs
