// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/gprpp/status_helper.h"
#include "src/core/lib/iomgr/endpoint.h"
#include "src/core/lib/iomgr/exec_ctx.h"
#include "src/core/lib/iomgr/executor.h"
#include "src/core/lib/slice/slice.h"
#include "src/core/lib/transport/http_connect_handshaker.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/grpc/ar_endpoint.h"
#include "third_party/ar_grpc/grpc/channel_args.h"
#include "third_party/ar_grpc/grpc/deadline_timer.h"
#include "third_party/ar_grpc/grpc/fresh_connection.h"
#include "third_party/ar_grpc/grpc/handshake_attachment.h"
#include "third_party/ar_grpc/grpc/handshake_machine.h"
#include "third_party/ar_grpc/grpc/handshake_tcp.h"
#include "third_party/ar_grpc/grpc/new_handshaker.h"
#include "third_party/ar_grpc/grpc/retirement.h"
#include "third_party/ar_grpc/grpc/serialized_handshaker.h"
#include "third_party/ar_grpc/protocol/handshake.h"
#include "third_party/ar_grpc/protocol/late_hellos.h"
#include "third_party/ar_grpc/protocol/node.h"

namespace ar_grpc {
namespace {

using protocol::End;
using protocol::Step;
using protocol::Steps;

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

// One handshake: protocol/handshake.h decides, this carries out.
//
// What attachments say waits until a thread of gRPC's executor takes it, so the reactor's thread
// runs nothing of gRPC, and none waits for it.
class ArHandshaker : public SerializedHandshaker<ArHandshaker> {
 public:
  ArHandshaker(End end, std::shared_ptr<protocol::Node> node, grpc_pollset_set* interested_parties)
      : end_(end),
        node_(std::move(node)),
        interested_parties_(interested_parties),
        attachment_(end, [this] { return WakeLater(); }),
        fresh_(interested_parties) {
    Init<&ArHandshaker::OnSent>(&on_sent_);
    Init<&ArHandshaker::OnReceived>(&on_received_);
    Init<&ArHandshaker::OnReconnected>(&on_reconnected_);
    Init<&ArHandshaker::OnNews>(&on_news_);
  }

  const char* name() const override { return "ar_grpc"; }

  void DoHandshake(grpc_tcp_server_acceptor*, grpc_closure* done,
                   grpc_core::HandshakerArgs* args) override {
    InTurn([done, args](ArHandshaker* self) { self->Begin(done, args); });
  }

  void Shutdown(grpc_error_handle why) override {
    InTurn([why](ArHandshaker* self) {
      if (self->done_ == nullptr) return;
      self->Fail(why.ok() ? GRPC_ERROR_CREATE("handshake shut down") : why);
    });
  }

 private:
  // An attachment has said something: OnNews is to run in a thread of gRPC's.
  std::function<void()> WakeLater() {
    Ref().release();
    return [this] {
      // In case the executor has no thread: it then leaves the closure to this one.
      grpc_core::ExecCtx exec_ctx;
      grpc_core::Executor::Run(&on_news_, absl::OkStatus());
    };
  }

  // --- all below runs in its turn ---

  void Begin(grpc_closure* done, grpc_core::HandshakerArgs* args) {
    args_ = args;
    done_ = done;
    peer_ = std::string(grpc_endpoint_get_peer(args->endpoint));
    StatusOr<std::vector<std::string>> allowed = FabricsOf(args->args, *node_);
    if (!allowed.ok()) {
      return Fail(grpc_error_set_int(GRPC_ERROR_CREATE(allowed.status().message()),
                                     grpc_core::StatusIntProperty::kRpcStatus,
                                     GRPC_STATUS_INVALID_ARGUMENT));
    }
    allowed_ = std::move(*allowed);
    uint16_t version = protocol::kVersion;
    if (end_ == End::kServer) {
      // Now, and not when it is read: the connection that its client made then may be read first.
      host_ = protocol::HostOf(peer_);
      if (protocol::HoldsLateHello(grpc_endpoint_get_fd(args_->endpoint),
                                   protocol::HandshakeOptions().deadline)) {
        node_->late_hellos().Found(host_, Now());
      }
    } else {
      version = node_->servers().VersionOf(peer_, Now()).value_or(version);
      // A proxy would have to be asked again for a fresh connection; behind one it is TCP anyway.
      if (version == 0 || args_->args.GetString(GRPC_ARG_HTTP_CONNECT_SERVER).has_value()) {
        const std::string why = "it is known not to speak AR-gRPC";
        return AllowsTcp(allowed_) ? FinishOnTcp(why, /*transient=*/false) : FailForced(why);
      }
    }
    machine_ = std::make_unique<HandshakeMachine>(end_, HandshakeOptionsFor(node_->id(), allowed_),
                                                  version);
    const std::string bytes = TakeBytes(args_->read_buffer);
    Do(machine_->Start());
    if (!bytes.empty()) Do(machine_->Received(bytes));
    Go();
  }

  void Do(Steps steps) {
    for (Step& step : steps) steps_.push_back(std::move(step));
  }

  // Carries out what is to be done now, then waits for what the machine waits for.
  void Go() {
    while (done_ != nullptr && !steps_.empty()) {
      if (HandsOnTcp(steps_.front().kind)) {
        // When all has been sent, and nobody reads.
        if (tcp_.sending()) break;
        if (tcp_.reading()) return Fail(GRPC_ERROR_CREATE("AR-gRPC handshake: a read is left"));
      }
      const Step step = std::move(steps_.front());
      steps_.pop_front();
      CarryOut(step);
      TakeNews();
    }
    if (done_ == nullptr) return;
    if (machine_->ended() || reconnecting_) return;
    timer_.Set(machine_->deadline(), [self = Self()] { self->InTurn(&ArHandshaker::OnTime); });
    if (!machine_->wants_bytes() || tcp_.reading() || args_->endpoint == nullptr) return;
    Ref().release();
    tcp_.Receive(args_->endpoint, &on_received_);
  }

  void CarryOut(const Step& step) {
    switch (step.kind) {
      case Step::Kind::kSend:
        tcp_.Queue(step.bytes);
        return Send();
      case Step::Kind::kAttach:
        return Attach(step);
      case Step::Kind::kTakeFrame:
        return attachment_.TakeFrame(step.attempt, step.bytes);
      case Step::Kind::kGiveUp:
        return attachment_.GiveUp();
      case Step::Kind::kReconnect:
        return Reconnect(step.reason, step.transient);
      case Step::Kind::kEstablished:
        return Establish(step.fabric);
      case Step::Kind::kStayOnTcp:
        return StayOnTcp(step.reason, step.transient);
      case Step::Kind::kStayOnPlainTcp:
        return StayOnPlainTcp(step.reason, step.transient);
      case Step::Kind::kFail:
        if (!step.reason.empty()) return FailForced(step.reason);
        return Fail(
            GRPC_ERROR_CREATE(absl::StrCat("the peer ", peer_, " ", step.status.message())));
    }
  }

  // --- TCP ---

  void Send() {
    if (tcp_.sending() || !tcp_.has_unsent() || args_->endpoint == nullptr) return;
    Ref().release();
    tcp_.Send(args_->endpoint, &on_sent_);
  }

  void OnSent(grpc_error_handle error) {
    tcp_.Sent();
    if (done_ == nullptr) return;
    if (reconnecting_) return ConnectAnew();
    if (!error.ok()) return Lost(error);
    Send();
    Go();
  }

  void OnReceived(grpc_error_handle error) {
    const std::string bytes = tcp_.TakeReceived();
    if (done_ == nullptr) return;
    if (reconnecting_) return ConnectAnew();
    // What an attachment said before the peer wrote this is told before it.
    TakeNews();
    if (!error.ok()) return Lost(error);
    Do(machine_->Received(bytes));
    Go();
  }

  void Lost(grpc_error_handle error) {
    lost_ = error;
    tcp_.Reset();
    // What it wants to do yet, at its end, needs TCP.
    if (machine_->ended()) return Fail(error);
    Do(machine_->Closed());
    Go();
  }

  // --- time ---

  void OnTime() {
    if (done_ == nullptr) return;
    TakeNews();
    Do(machine_->Expired());
    Go();
  }

  // --- attachments ---

  void Attach(const Step& step) {
    const Status status = attachment_.Begin(fabric::Find(step.fabric), step.attempt);
    if (!status.ok()) Do(machine_->Attached(step.attempt, status));
  }

  void OnNews(grpc_error_handle) {
    attachment_.Woken();
    if (done_ == nullptr || machine_ == nullptr) return;
    TakeNews();
    Go();
  }

  void TakeNews() {
    if (done_ == nullptr) return;
    for (HandshakeAttachment::News& news : attachment_.Take()) {
      Do(news.ended ? machine_->Attached(news.attempt, news.status)
                    : machine_->FrameToSend(news.attempt, std::move(news.frame)));
    }
  }

  // --- a fresh connection ---

  void Reconnect(const std::string& why, bool transient) {
    if (transient) {
      Log(Severity::kWarning, absl::StrCat("connecting to ", peer_, " anew: ", why));
    }
    attachment_.GiveUp();
    Remember();
    timer_.Cancel();
    reconnecting_ = true;
    reason_ = why;
    tcp_.Reset();
    grpc_endpoint_shutdown(args_->endpoint, GRPC_ERROR_CREATE(why));
    ConnectAnew();
  }

  // Once nothing is under way on the old connection any more.
  void ConnectAnew() {
    if (tcp_.sending() || tcp_.reading() || args_->endpoint == nullptr) return;
    grpc_endpoint_destroy(std::exchange(args_->endpoint, nullptr));
    Ref().release();
    const absl::Status started =
        fresh_.Start(peer_, args_->args, args_->deadline, &on_reconnected_);
    if (started.ok()) return;
    Unref();
    Fail(grpc_error_add_child(
        GRPC_ERROR_CREATE(absl::StrCat("cannot connect to ", peer_, " again: ", reason_)),
        started));
  }

  void OnReconnected(grpc_error_handle error) {
    if (done_ == nullptr || !error.ok()) {
      fresh_.Discard();
      if (done_ != nullptr) Fail(error);
      return;
    }
    args_->endpoint = fresh_.Take();
    reconnecting_ = false;
    lost_ = absl::OkStatus();
    Do(machine_->Reconnected());
    Go();
  }

  // --- the ends ---

  // Of a peer that a device reaches, by TCP.
  double FarUs(const fabric::Connection* connection) const {
    if (connection == nullptr || !connection->capabilities().crosses_network) return 0;
    const auto round_trip = QuickestRoundTrip(grpc_endpoint_get_fd(args_->endpoint));
    const protocol::Selector* const selector = node_->selector();
    return round_trip && selector != nullptr ? selector->FarUs(*round_trip) : 0;
  }

  void SwapEndpoint(const std::string& fabric, bool retires = false) {
    const protocol::Peer& peer = machine_->peer();
    std::unique_ptr<fabric::Connection> connection = attachment_.TakeConnection();
    protocol::Link::Description description;
    description.end = end_;
    description.peer = peer.node;
    description.address = peer_;
    description.fabric = fabric;
    description.features = peer.features;
    description.far_us = FarUs(connection.get());
    if (retires) {
      // Before the endpoint is made, as it goes by these.
      description.retires_after =
          node_->clients().AgeOnTcp(protocol::ClientMemory::NameOf(peer.node), Now());
      args_->args = WithRetirement(args_->args, &description.retires_after);
    }
    if (connection != nullptr) description.id = peer.link;
    auto link = std::make_shared<protocol::Link>(std::move(description), std::move(connection));
    args_->endpoint = CreateEndpoint(node_, std::move(link), args_->endpoint,
                                     attachment_.TakeWake(), interested_parties_, args_->args);
  }

  void Establish(const std::string& fabric) {
    SwapEndpoint(fabric);
    if (end_ == End::kServer) {
      node_->clients().Forget(protocol::ClientMemory::NameOf(machine_->peer().node));
      node_->clients().Forget(host_);
    }
    if (end_ == End::kClient) {
      Log(Severity::kInfo, absl::StrCat("connected to ", peer_, " over ", fabric));
    }
    LeaveUnread();
    Finish(absl::OkStatus());
  }

  // Both ends speak AR-gRPC, and stay on TCP.
  void StayOnTcp(const std::string& why, bool transient) {
    attachment_.GiveUp();
    SwapEndpoint(fabric::kTcp, /*retires=*/transient && end_ == End::kServer);
    FinishOnTcp(why, transient);
  }

  void StayOnPlainTcp(const std::string& why, bool transient) {
    // Without a reason the client has said no hello; it may have been on an earlier connection.
    const bool greeted = end_ == End::kClient || !why.empty();
    if (greeted || !node_->late_hellos().TakeOne(host_, Now())) return FinishOnTcp(why, transient);
    std::chrono::milliseconds age = node_->clients().AgeOnTcp(host_, Now());
    args_->args = WithRetirement(args_->args, &age);
    FinishOnTcp("a hello from its host was found too late", /*transient=*/true);
  }

  void FinishOnTcp(const std::string& why, bool transient) {
    if (end_ == End::kClient) {
      Log(transient ? Severity::kWarning : Severity::kInfo,
          absl::StrCat("connected to ", peer_, " over tcp: ", why));
    } else if (transient) {
      Log(Severity::kWarning, absl::StrCat(peer_, " is connected over tcp for now: ", why));
    }
    LeaveUnread();
    Finish(absl::OkStatus());
  }

  void LeaveUnread() {
    if (machine_ == nullptr) return;
    std::string unread = machine_->TakeUnread();
    if (unread.empty()) return;
    grpc_slice_buffer_add(args_->read_buffer, grpc_slice_from_cpp_string(std::move(unread)));
  }

  void FailForced(const std::string& why) {
    const std::string text = absl::StrCat(
        args_->args.GetString(kFabricsArg).has_value() ? kFabricsArg : kFabricsVariable, "=",
        absl::StrJoin(allowed_, ","), " allows no tcp, and nothing else reaches ", peer_, ": ",
        why);
    Log(Severity::kError, text);
    Fail(grpc_error_set_int(GRPC_ERROR_CREATE(text), grpc_core::StatusIntProperty::kRpcStatus,
                            GRPC_STATUS_UNAVAILABLE));
  }

  void Fail(grpc_error_handle error) {
    if (!lost_.ok()) error = grpc_error_add_child(error, lost_);
    remains_.Take(args_, error);
    Finish(error);
  }

  void Remember() {
    const int version = machine_ == nullptr ? -1 : machine_->version_to_remember();
    if (version < 0) return;
    node_->servers().RememberVersion(peer_, static_cast<uint16_t>(version), Now());
  }

  void Finish(grpc_error_handle error) {
    Remember();
    attachment_.Close();
    steps_.clear();
    timer_.Cancel();
    fresh_.Abandon();
    args_ = nullptr;
    grpc_core::ExecCtx::Run(DEBUG_LOCATION, std::exchange(done_, nullptr), error);
  }

  const End end_;
  const std::shared_ptr<protocol::Node> node_;
  grpc_pollset_set* const interested_parties_;

  grpc_core::HandshakerArgs* args_ = nullptr;
  // nullptr: the handshake has ended.
  grpc_closure* done_ = nullptr;
  std::string peer_;
  std::string host_;  // of a server's client
  std::vector<std::string> allowed_;
  // nullptr where no handshake is needed.
  std::unique_ptr<HandshakeMachine> machine_;
  std::deque<Step> steps_;
  absl::Status lost_;

  HandshakeTcp tcp_;
  grpc_closure on_sent_;
  grpc_closure on_received_;
  DeadlineTimer timer_;

  HandshakeAttachment attachment_;
  grpc_closure on_news_;

  bool reconnecting_ = false;
  std::string reason_;
  FreshConnection fresh_;
  grpc_closure on_reconnected_;

  HandshakeRemains remains_;
};

}  // namespace

grpc_core::RefCountedPtr<grpc_core::Handshaker> NewHandshaker(
    End end, std::shared_ptr<protocol::Node> node, grpc_pollset_set* interested_parties) {
  return grpc_core::MakeRefCounted<ArHandshaker>(end, std::move(node), interested_parties);
}

}  // namespace ar_grpc
