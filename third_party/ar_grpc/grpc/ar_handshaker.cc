// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/ar_handshaker.h"

#include <fcntl.h>
#include <grpc/slice_buffer.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/core/lib/address_utils/parse_address.h"
#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/event_engine/channel_args_endpoint_config.h"
#include "src/core/lib/gprpp/status_helper.h"
#include "src/core/lib/gprpp/time.h"
#include "src/core/lib/gprpp/work_serializer.h"
#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/endpoint.h"
#include "src/core/lib/iomgr/error.h"
#include "src/core/lib/iomgr/exec_ctx.h"
#include "src/core/lib/iomgr/executor.h"
#include "src/core/lib/iomgr/tcp_client.h"
#include "src/core/lib/iomgr/timer.h"
#include "src/core/lib/slice/slice.h"
#include "src/core/lib/transport/handshaker.h"
#include "src/core/lib/transport/handshaker_factory.h"
#include "src/core/lib/transport/handshaker_registry.h"
#include "src/core/lib/transport/http_connect_handshaker.h"
#include "src/core/lib/uri/uri_parser.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/grpc/ar_endpoint.h"
#include "third_party/ar_grpc/grpc/channel_args.h"
#include "third_party/ar_grpc/grpc/mailbox.h"
#include "third_party/ar_grpc/grpc/spin.h"
#include "third_party/ar_grpc/protocol/handshake.h"
#include "third_party/ar_grpc/protocol/node.h"

namespace ar_grpc {
namespace {

using protocol::End;
using protocol::Instant;
using protocol::Step;
using protocol::Steps;

// How long a connection lasts whose fabric could not be had for now; gRPC then makes another.
constexpr int kTransientAgeMs = 10000;

Instant Now() { return std::chrono::steady_clock::now(); }

// Those of the node's fabrics that this channel or server allows, in the order to be tried.
StatusOr<std::vector<std::string>> AllowedFabrics(const protocol::Node& node,
                                                  const grpc_core::ChannelArgs& args) {
  const absl::optional<std::string> narrowed = args.GetOwnedString(kFabricsArg);
  if (!narrowed.has_value() || narrowed->empty()) return node.fabrics();
  StatusOr<std::vector<std::string>> names = fabric::ParseFabrics(narrowed->c_str());
  if (!names.ok()) return names;
  names->erase(std::remove_if(names->begin(), names->end(),
                              [&](const std::string& name) { return !node.Allows(name); }),
               names->end());
  return names;
}

// The machines of both ends, as one.
class Machine {
 public:
  Machine(End end, protocol::HandshakeOptions options, uint16_t version) {
    if (end == End::kClient) {
      client_ = std::make_unique<protocol::ClientHandshake>(std::move(options), version);
    } else {
      server_ = std::make_unique<protocol::ServerHandshake>(
          std::move(options), [](const protocol::Brochure& brochure) {
            fabric::Context* const context = fabric::Find(brochure.fabric);
            return context == nullptr ? Status(StatusCode::kNotFound, "this end does not have it")
                                      : context->Reaches(brochure.bytes);
          });
    }
  }

  template <typename Event>
  Steps Tell(Event event) {
    return client_ ? event(client_.get()) : event(server_.get());
  }
  Steps Reconnected() { return client_->Reconnected(Now()); }

  Instant deadline() const { return client_ ? client_->deadline() : server_->deadline(); }
  bool ended() const { return client_ ? client_->ended() : server_->ended(); }
  bool wants_bytes() const { return client_ ? client_->wants_bytes() : server_->wants_bytes(); }
  const protocol::Peer& peer() const { return client_ ? client_->peer() : server_->peer(); }
  int version_to_remember() const { return client_ ? client_->version_to_remember() : -1; }
  std::string TakeUnread() { return client_ ? client_->TakeUnread() : server_->TakeUnread(); }

 private:
  // One of them.
  std::unique_ptr<protocol::ClientHandshake> client_;
  std::unique_ptr<protocol::ServerHandshake> server_;
};

// One handshake: protocol/handshake.h decides, this carries out.
//
// All that happens goes through `serializer_`, one after another and without a lock held: calls of
// gRPC and of fabrics may come back inline. What attachments say lies in `mailbox_` until a thread
// of gRPC's executor takes it, so the reactor's thread runs nothing of gRPC, and none waits for it.
class ArHandshaker : public grpc_core::Handshaker {
 public:
  ArHandshaker(End end, std::shared_ptr<protocol::Node> node, grpc_pollset_set* interested_parties)
      : end_(end),
        node_(std::move(node)),
        interested_parties_(interested_parties),
        mailbox_(std::make_shared<Mailbox>([this] {
          Ref().release();
          return [this] {
            // In case the executor has no thread: it then leaves the closure to this one.
            grpc_core::ExecCtx exec_ctx;
            grpc_core::Executor::Run(&on_mail_, absl::OkStatus());
          };
        })) {
    grpc_slice_buffer_init(&outgoing_);
    grpc_slice_buffer_init(&incoming_);
    Init<&ArHandshaker::OnSent>(&on_sent_);
    Init<&ArHandshaker::OnReceived>(&on_received_);
    Init<&ArHandshaker::OnReconnected>(&on_reconnected_);
    Init<&ArHandshaker::OnMail>(&on_mail_);
  }

  ~ArHandshaker() override {
    mailbox_->Close();
    if (doomed_endpoint_ != nullptr) grpc_endpoint_destroy(doomed_endpoint_);
    if (doomed_buffer_ != nullptr) {
      grpc_slice_buffer_destroy(doomed_buffer_);
      gpr_free(doomed_buffer_);
    }
    grpc_slice_buffer_destroy(&outgoing_);
    grpc_slice_buffer_destroy(&incoming_);
  }

  const char* name() const override { return "ar_grpc"; }

  void DoHandshake(grpc_tcp_server_acceptor*, grpc_closure* done,
                   grpc_core::HandshakerArgs* args) override {
    serializer_.Run([self = Self(), done, args] { self->Begin(done, args); }, DEBUG_LOCATION);
  }

  void Shutdown(grpc_error_handle why) override {
    serializer_.Run(
        [self = Self(), why] {
          if (self->done_ != nullptr) {
            self->Fail(why.ok() ? GRPC_ERROR_CREATE("handshake shut down") : why);
          }
        },
        DEBUG_LOCATION);
  }

 private:
  // A callback takes over the reference that its starter took.
  template <void (ArHandshaker::*kMember)(grpc_error_handle)>
  void Init(grpc_closure* closure) {
    GRPC_CLOSURE_INIT(
        closure,
        [](void* arg, grpc_error_handle error) {
          grpc_core::RefCountedPtr<ArHandshaker> self(static_cast<ArHandshaker*>(arg));
          ArHandshaker* const handshaker = self.get();
          handshaker->serializer_.Run(
              [self = std::move(self), error] { ((*self).*kMember)(error); }, DEBUG_LOCATION);
        },
        this, nullptr);
  }

  grpc_core::RefCountedPtr<ArHandshaker> Self() {
    return grpc_core::RefCountedPtr<ArHandshaker>(static_cast<ArHandshaker*>(Ref().release()));
  }

  // --- all below runs in the serializer ---

  void Begin(grpc_closure* done, grpc_core::HandshakerArgs* args) {
    args_ = args;
    done_ = done;
    peer_ = std::string(grpc_endpoint_get_peer(args->endpoint));
    StatusOr<std::vector<std::string>> allowed = AllowedFabrics(*node_, args->args);
    if (!allowed.ok()) {
      return Fail(grpc_error_set_int(GRPC_ERROR_CREATE(allowed.status().message()),
                                     grpc_core::StatusIntProperty::kRpcStatus,
                                     GRPC_STATUS_INVALID_ARGUMENT));
    }
    allowed_ = std::move(*allowed);
    uint16_t version = protocol::kVersion;
    if (end_ == End::kClient) {
      version = node_->servers().VersionOf(peer_, Now()).value_or(version);
      // A proxy would have to be asked again for a fresh connection; behind one it is TCP anyway.
      if (version == 0 || args_->args.GetString(GRPC_ARG_HTTP_CONNECT_SERVER).has_value()) {
        const std::string why = "it is known not to speak AR-gRPC";
        return AllowsTcp() ? EndOnTcp(why, /*transient=*/false) : FailForced(why);
      }
    }
    machine_ = std::make_unique<Machine>(end_, Options(), version);
    const std::string bytes = TakeBuffer(args_->read_buffer);
    Do(machine_->Tell([](auto* machine) { return machine->Start(Now()); }));
    if (!bytes.empty()) Received(bytes);
    Go();
  }

  protocol::HandshakeOptions Options() {
    protocol::HandshakeOptions options;
    options.node = node_->id();
    options.tcp_allowed = AllowsTcp();
    for (const std::string& name : allowed_) {
      fabric::Context* const context = fabric::Find(name);
      if (context == nullptr) continue;  // tcp
      Status why = context->Available();
      if (why.ok()) {
        StatusOr<std::string> brochure = context->Brochure();
        if (brochure.ok()) {
          options.fabrics.push_back({name, std::move(*brochure)});
          if (!context->capabilities().stream) options.without_stream.push_back(name);
          continue;
        }
        why = brochure.status();
      }
      if (options.nothing_offered.empty()) {
        options.nothing_offered = absl::StrCat(name, ": ", why.message());
      }
    }
    if (!options.fabrics.empty()) options.nothing_offered.clear();
    return options;
  }

  bool AllowsTcp() const {
    return std::find(allowed_.begin(), allowed_.end(), fabric::kTcp) != allowed_.end();
  }

  void Received(const std::string& bytes) {
    Do(machine_->Tell([&](auto* machine) { return machine->Received(bytes, Now()); }));
  }

  void Do(Steps steps) {
    for (Step& step : steps) steps_.push_back(std::move(step));
  }

  // Carries out what is to be done now, then waits for what the machine waits for.
  void Go() {
    while (done_ != nullptr && !steps_.empty()) {
      // TCP is handed on when all has been sent.
      const Step::Kind kind = steps_.front().kind;
      const bool hands_on = kind == Step::Kind::kEstablished || kind == Step::Kind::kStay ||
                            kind == Step::Kind::kStayPlain;
      if (hands_on && sending_) break;
      if (hands_on && reading_) return Fail(GRPC_ERROR_CREATE("AR-gRPC handshake: a read is left"));
      const Step step = std::move(steps_.front());
      steps_.pop_front();
      CarryOut(step);
      TakeMail();
    }
    if (done_ == nullptr) return;
    if (machine_->ended() || reconnecting_) return;
    SetTimer();
    if (machine_->wants_bytes() && !reading_ && args_->endpoint != nullptr) Receive();
  }

  void CarryOut(const Step& step) {
    switch (step.kind) {
      case Step::Kind::kSend:
        unsent_ += step.bytes;
        if (!sending_) Send();
        return;
      case Step::Kind::kAttach:
        return Attach(step);
      case Step::Kind::kTakeFrame:
        if (attachment_ != nullptr && attempt_ == step.attempt) attachment_->TakeFrame(step.bytes);
        return;
      case Step::Kind::kGiveUp:
        return GiveUp();
      case Step::Kind::kReconnect:
        return Reconnect(step.reason, step.transient);
      case Step::Kind::kEstablished:
        return Establish(step.fabric);
      case Step::Kind::kStay:
        return Stay(step.reason, step.transient);
      case Step::Kind::kStayPlain:
        return EndOnTcp(step.reason, /*transient=*/false);
      case Step::Kind::kFail:
        if (!step.reason.empty()) return FailForced(step.reason);
        return Fail(
            GRPC_ERROR_CREATE(absl::StrCat("the peer ", peer_, " ", step.status.message())));
    }
  }

  // --- TCP ---

  static std::string TakeBuffer(grpc_slice_buffer* buffer) {
    std::string bytes;
    for (size_t i = 0; i < buffer->count; ++i) {
      bytes.append(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(buffer->slices[i])),
                   GRPC_SLICE_LENGTH(buffer->slices[i]));
    }
    grpc_slice_buffer_reset_and_unref(buffer);
    return bytes;
  }

  void Send() {
    if (args_->endpoint == nullptr) return;
    sending_ = true;
    grpc_slice_buffer_reset_and_unref(&outgoing_);
    grpc_slice_buffer_add(&outgoing_, grpc_slice_from_cpp_string(std::exchange(unsent_, {})));
    Ref().release();
    grpc_endpoint_write(args_->endpoint, &outgoing_, &on_sent_, nullptr, INT_MAX);
  }

  void OnSent(grpc_error_handle error) {
    sending_ = false;
    if (done_ == nullptr) return;
    if (reconnecting_) return ConnectAnew();
    if (!error.ok()) return Lost(error);
    if (!unsent_.empty()) Send();
    Go();
  }

  void Receive() {
    reading_ = true;
    Ref().release();
    grpc_endpoint_read(args_->endpoint, &incoming_, &on_received_, /*urgent=*/true,
                       /*min_progress_size=*/1);
  }

  void OnReceived(grpc_error_handle error) {
    reading_ = false;
    if (done_ == nullptr) return;
    if (reconnecting_) return ConnectAnew();
    // What an attachment said before the peer wrote this is told before it.
    TakeMail();
    if (!error.ok()) return Lost(error);
    Received(TakeBuffer(&incoming_));
    Go();
  }

  void Lost(grpc_error_handle error) {
    lost_ = error;
    unsent_.clear();
    // What it wants to do yet, at its end, needs TCP.
    if (machine_->ended()) return Fail(error);
    Do(machine_->Tell([](auto* machine) { return machine->Closed(Now()); }));
    Go();
  }

  // --- time ---

  struct Timer {
    grpc_timer timer;
    grpc_closure closure;
    grpc_core::RefCountedPtr<ArHandshaker> handshaker;
  };

  void SetTimer() {
    const Instant deadline = machine_->deadline();
    if (timer_ != nullptr && deadline == timer_deadline_) return;
    CancelTimer();
    if (deadline == Instant::max()) return;
    timer_ = new Timer;
    timer_->handshaker = Self();
    timer_deadline_ = deadline;
    GRPC_CLOSURE_INIT(
        &timer_->closure,
        [](void* arg, grpc_error_handle error) {
          auto* const timer = static_cast<Timer*>(arg);
          ArHandshaker* const handshaker = timer->handshaker.get();
          handshaker->serializer_.Run(
              [timer, error, self = timer->handshaker] {
                const bool current = self->timer_ == timer;
                if (current) self->timer_ = nullptr;
                delete timer;
                if (current && error.ok()) self->OnTime();
              },
              DEBUG_LOCATION);
        },
        timer_, nullptr);
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Now()).count() + 1;
    grpc_core::ExecCtx::Get()->InvalidateNow();
    grpc_timer_init(
        &timer_->timer,
        grpc_core::Timestamp::Now() + grpc_core::Duration::Milliseconds(std::max<int64_t>(left, 0)),
        &timer_->closure);
  }

  // The timer deletes itself when its closure runs.
  void CancelTimer() {
    if (timer_ != nullptr) grpc_timer_cancel(&std::exchange(timer_, nullptr)->timer);
  }

  void OnTime() {
    if (done_ == nullptr) return;
    TakeMail();
    Do(machine_->Tell([](auto* machine) { return machine->Expired(Now()); }));
    Go();
  }

  // --- attachments ---

  void Attach(const Step& step) {
    GiveUp();
    attempt_ = step.attempt;
    fabric::Context* const context = fabric::Find(step.fabric);
    fabric::AttachEvents events = Mailbox::Events(mailbox_, attempt_);
    StatusOr<std::unique_ptr<fabric::Attachment>> attachment =
        context == nullptr ? StatusOr<std::unique_ptr<fabric::Attachment>>(
                                 Status(StatusCode::kNotFound, "this end does not have it"))
        : end_ == End::kClient ? context->Connect(std::move(events))
                               : context->Accept(std::move(events));
    if (attachment.ok()) {
      attachment_ = std::move(*attachment);
    } else {
      Attached(attempt_, attachment.status());
    }
  }

  void GiveUp() {
    attempt_ = 0;
    attachment_.reset();
    connection_.reset();
    if (wake_ >= 0) close(std::exchange(wake_, -1));
  }

  void Attached(uint32_t attempt, const Status& status) {
    Do(machine_->Tell([&](auto* machine) { return machine->Attached(attempt, status, Now()); }));
  }

  void OnMail(grpc_error_handle) {
    mailbox_->Woken();
    if (done_ == nullptr || machine_ == nullptr) return;
    TakeMail();
    Go();
  }

  void TakeMail() {
    if (done_ == nullptr) return;
    for (Mailbox::Letter& letter : mailbox_->Take()) {
      if (letter.attempt != attempt_) continue;
      if (!letter.ended) {
        Do(machine_->Tell([&](auto* machine) {
          return machine->FrameToSend(letter.attempt, std::move(letter.frame), Now());
        }));
      } else if (letter.connection.ok()) {
        Attached(letter.attempt, Keep(std::move(*letter.connection)));
      } else {
        Attached(letter.attempt, letter.connection.status());
      }
    }
  }

  // Makes sure that the endpoint lacks nothing before the peer is told so.
  Status Keep(std::unique_ptr<fabric::Connection> connection) {
    if (connection->capabilities().stream) {
      wake_ = fcntl(connection->wake_fd(), F_DUPFD_CLOEXEC, 0);
      if (wake_ < 0) {
        return Status(StatusCode::kResourceExhausted,
                      "no descriptor is free for the AR endpoint: raise the limit (ulimit -n)");
      }
    }
    connection_ = std::move(connection);
    return OkStatus();
  }

  // --- a fresh connection ---

  void Reconnect(const std::string& why, bool transient) {
    if (transient) {
      Log(Severity::kWarning, absl::StrCat("connecting to ", peer_, " anew: ", why));
    }
    GiveUp();
    Remember();
    CancelTimer();
    reconnecting_ = true;
    reason_ = why;
    unsent_.clear();
    grpc_endpoint_shutdown(args_->endpoint, GRPC_ERROR_CREATE(why));
    ConnectAnew();
  }

  // Once nothing is under way on the old connection any more.
  void ConnectAnew() {
    if (sending_ || reading_ || args_->endpoint == nullptr) return;
    grpc_endpoint_destroy(std::exchange(args_->endpoint, nullptr));
    grpc_slice_buffer_reset_and_unref(&incoming_);
    absl::StatusOr<grpc_core::URI> uri = grpc_core::URI::Parse(peer_);
    if (!uri.ok() || !grpc_parse_uri(*uri, &address_)) {
      return Fail(
          GRPC_ERROR_CREATE(absl::StrCat("cannot connect to ", peer_, " again: ", reason_)));
    }
    // It may go on when this handshake, and with it the subchannel, has ended.
    connecting_ = grpc_pollset_set_create();
    grpc_pollset_set_add_pollset_set(connecting_, interested_parties_);
    Ref().release();
    grpc_tcp_client_connect(&on_reconnected_, &fresh_endpoint_, connecting_,
                            grpc_event_engine::experimental::ChannelArgsEndpointConfig(args_->args),
                            &address_, args_->deadline);
  }

  void OnReconnected(grpc_error_handle error) {
    grpc_endpoint* const fresh = std::exchange(fresh_endpoint_, nullptr);
    if (done_ == nullptr) {
      if (fresh != nullptr) {
        grpc_endpoint_shutdown(fresh, GRPC_ERROR_CREATE("handshake shut down"));
        grpc_endpoint_destroy(fresh);
      }
      grpc_pollset_set_destroy(std::exchange(connecting_, nullptr));
      return;
    }
    grpc_pollset_set_del_pollset_set(connecting_, interested_parties_);
    grpc_pollset_set_destroy(std::exchange(connecting_, nullptr));
    if (!error.ok()) return Fail(error);
    args_->endpoint = fresh;
    grpc_endpoint_add_to_pollset_set(fresh, interested_parties_);
    reconnecting_ = false;
    lost_ = absl::OkStatus();
    Do(machine_->Reconnected());
    Go();
  }

  // --- the ends ---

  std::shared_ptr<protocol::Link> NewLink(const std::string& fabric) {
    const protocol::Peer& peer = machine_->peer();
    protocol::Link::Description description;
    description.end = end_;
    description.peer = peer.node;
    description.address = peer_;
    description.fabric = fabric;
    description.features = peer.features;
    if (connection_ != nullptr) description.id = peer.link;
    return std::make_shared<protocol::Link>(std::move(description), std::move(connection_));
  }

  void SwapEndpoint(const std::string& fabric) {
    std::shared_ptr<protocol::Link> link = NewLink(fabric);
    args_->endpoint = CreateEndpoint(node_, std::move(link), args_->endpoint,
                                     std::exchange(wake_, -1), interested_parties_, args_->args);
  }

  void Establish(const std::string& fabric) {
    SwapEndpoint(fabric);
    if (end_ == End::kClient) {
      Log(Severity::kInfo, absl::StrCat("connected to ", peer_, " over ", fabric));
    }
    LeaveUnread();
    Finish(absl::OkStatus());
  }

  // Both ends speak AR-gRPC, and stay on TCP.
  void Stay(const std::string& why, bool transient) {
    GiveUp();
    SwapEndpoint(fabric::kTcp);
    EndOnTcp(why, transient);
  }

  void EndOnTcp(const std::string& why, bool transient) {
    if (end_ == End::kClient) {
      Log(transient ? Severity::kWarning : Severity::kInfo,
          absl::StrCat("connected to ", peer_, " over tcp: ", why));
    } else if (transient) {
      Log(Severity::kWarning, absl::StrCat(peer_, " is connected over tcp for now: ", why));
      RetireSoon();
    }
    LeaveUnread();
    Finish(absl::OkStatus());
  }

  // Lets gRPC end the connection, once its calls are done: the next one tries the fabric again.
  void RetireSoon() {
    const absl::optional<int> age = args_->args.GetInt(GRPC_ARG_MAX_CONNECTION_AGE_MS);
    if (age.has_value() && *age <= kTransientAgeMs) return;
    args_->args = args_->args.Set(GRPC_ARG_MAX_CONNECTION_AGE_MS, kTransientAgeMs)
                      .Set(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, INT_MAX);
  }

  void LeaveUnread() {
    if (machine_ == nullptr) return;
    std::string unread = machine_->TakeUnread();
    if (unread.empty()) return;
    grpc_slice_buffer_add(args_->read_buffer, grpc_slice_from_cpp_string(std::move(unread)));
  }

  void FailForced(const std::string& why) {
    const std::string text =
        absl::StrCat("AR_GRPC_FABRICS=", absl::StrJoin(allowed_, ","),
                     " allows no tcp, and nothing else reaches ", peer_, ": ", why);
    Log(Severity::kError, text);
    Fail(grpc_error_set_int(GRPC_ERROR_CREATE(text), grpc_core::StatusIntProperty::kRpcStatus,
                            GRPC_STATUS_UNAVAILABLE));
  }

  void Fail(grpc_error_handle error) {
    if (!lost_.ok()) error = grpc_error_add_child(error, lost_);
    if (args_->endpoint != nullptr) grpc_endpoint_shutdown(args_->endpoint, error);
    // Destroyed with this object: an operation may still be under way.
    doomed_endpoint_ = std::exchange(args_->endpoint, nullptr);
    doomed_buffer_ = std::exchange(args_->read_buffer, nullptr);
    args_->args = grpc_core::ChannelArgs();
    Finish(error);
  }

  void Remember() {
    const int version = machine_ == nullptr ? -1 : machine_->version_to_remember();
    if (version < 0) return;
    node_->servers().RememberVersion(peer_, static_cast<uint16_t>(version), Now());
  }

  void Finish(grpc_error_handle error) {
    Remember();
    GiveUp();
    mailbox_->Close();
    steps_.clear();
    CancelTimer();
    if (connecting_ != nullptr) {
      grpc_pollset_set_del_pollset_set(connecting_, interested_parties_);
    }
    args_ = nullptr;
    grpc_core::ExecCtx::Run(DEBUG_LOCATION, std::exchange(done_, nullptr), error);
  }

  const End end_;
  const std::shared_ptr<protocol::Node> node_;
  grpc_pollset_set* const interested_parties_;
  const std::shared_ptr<Mailbox> mailbox_;
  grpc_core::WorkSerializer serializer_;

  grpc_core::HandshakerArgs* args_ = nullptr;
  // nullptr: the handshake has ended.
  grpc_closure* done_ = nullptr;
  std::string peer_;
  std::vector<std::string> allowed_;
  // nullptr where no handshake is needed.
  std::unique_ptr<Machine> machine_;
  std::deque<Step> steps_;
  absl::Status lost_;

  std::string unsent_;
  bool sending_ = false;
  bool reading_ = false;
  grpc_slice_buffer outgoing_;
  grpc_slice_buffer incoming_;
  grpc_closure on_sent_;
  grpc_closure on_received_;

  Timer* timer_ = nullptr;
  Instant timer_deadline_{};

  uint32_t attempt_ = 0;
  std::unique_ptr<fabric::Attachment> attachment_;
  std::unique_ptr<fabric::Connection> connection_;
  int wake_ = -1;  // the connection's own
  grpc_closure on_mail_;

  bool reconnecting_ = false;
  std::string reason_;
  grpc_resolved_address address_;
  grpc_endpoint* fresh_endpoint_ = nullptr;
  // What the fresh connection is polled by.
  grpc_pollset_set* connecting_ = nullptr;
  grpc_closure on_reconnected_;

  grpc_endpoint* doomed_endpoint_ = nullptr;
  grpc_slice_buffer* doomed_buffer_ = nullptr;
};

class ArHandshakerFactory : public grpc_core::HandshakerFactory {
 public:
  explicit ArHandshakerFactory(End end) : end_(end) {}

  void AddHandshakers(const grpc_core::ChannelArgs& args, grpc_pollset_set* interested_parties,
                      grpc_core::HandshakeManager* manager) override {
    std::shared_ptr<protocol::Node> node = NodeOf(args);
    if (node == nullptr) return;
    manager->Add(
        grpc_core::MakeRefCounted<ArHandshaker>(end_, std::move(node), interested_parties));
  }
  HandshakerPriority Priority() override {
    return HandshakerPriority::kReadAheadSecurityHandshakers;
  }

 private:
  const End end_;
};

}  // namespace

void RegisterHandshakers(grpc_core::CoreConfiguration::Builder* builder) {
  InstallSpin();
  builder->handshaker_registry()->RegisterHandshakerFactory(
      grpc_core::HANDSHAKER_CLIENT, std::make_unique<ArHandshakerFactory>(End::kClient));
  builder->handshaker_registry()->RegisterHandshakerFactory(
      grpc_core::HANDSHAKER_SERVER, std::make_unique<ArHandshakerFactory>(End::kServer));
}

}  // namespace ar_grpc
