// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/ar_handshaker.h"

#include <grpc/slice_buffer.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/core/lib/address_utils/parse_address.h"
#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/event_engine/channel_args_endpoint_config.h"
#include "src/core/lib/gprpp/status_helper.h"
#include "src/core/lib/gprpp/sync.h"
#include "src/core/lib/gprpp/time.h"
#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/endpoint.h"
#include "src/core/lib/iomgr/error.h"
#include "src/core/lib/iomgr/exec_ctx.h"
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
#include "third_party/ar_grpc/grpc/spin.h"
#include "third_party/ar_grpc/protocol/hello.h"
#include "third_party/ar_grpc/protocol/peers.h"

namespace ar_grpc {
namespace {

using protocol::Look;
using protocol::Role;

// A peer that has not finished its part of the handshake by then never will. Shorter than gRPC's
// own 120 s, which a server's shutdown would wait for.
constexpr auto kPeekTimeout = grpc_core::Duration::Seconds(5);
constexpr int kConnectTimeoutMs = 2000;
constexpr char kClosed[] = "it closed the connection at the hello";
// How long a server that does not speak AR-gRPC is spared the hello.
constexpr auto kRemembered = std::chrono::minutes(1);

// Servers that answered the hello with something else, by address.
class PlainServers {
 public:
  static PlainServers& Get() {
    static PlainServers* const servers = new PlainServers;
    return *servers;
  }
  void Remember(const std::string& address) {
    std::lock_guard<std::mutex> lock(mu_);
    until_[address] = std::chrono::steady_clock::now() + kRemembered;
  }
  bool Remembers(const std::string& address) {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = until_.find(address);
    if (found == until_.end()) return false;
    if (std::chrono::steady_clock::now() < found->second) return true;
    until_.erase(found);
    return false;
  }

 private:
  std::mutex mu_;
  std::map<std::string, std::chrono::steady_clock::time_point> until_;
};

// The listener of a fabric, made when the first client asks for it; nullptr and why, if it cannot.
StatusOr<fabric::Listener*> ListenerOf(fabric::Context* context) {
  static std::mutex* const mu = new std::mutex;
  static auto* const listeners = new std::map<fabric::Context*, std::unique_ptr<fabric::Listener>>;
  std::lock_guard<std::mutex> lock(*mu);
  std::unique_ptr<fabric::Listener>& listener = (*listeners)[context];
  if (listener == nullptr) {
    StatusOr<std::unique_ptr<fabric::Listener>> made = context->Listen();
    if (!made.ok()) return made.status();
    listener = std::move(*made);
  }
  return listener.get();
}

// What AR_GRPC_FABRICS allows. The server factory refuses a value that cannot be parsed; a bare
// client goes on with the default, and the log says so.
const std::vector<std::string>& AllowedFabrics() {
  static const auto* const allowed = [] {
    auto parsed = fabric::ParseFabrics(getenv("AR_GRPC_FABRICS"));
    if (!parsed.ok()) {
      Log(Severity::kError, parsed.status().message());
      parsed = fabric::ParseFabrics(nullptr);
    }
    return new std::vector<std::string>(*parsed);
  }();
  return *allowed;
}

bool Allowed(const std::string& name) {
  const std::vector<std::string>& all = AllowedFabrics();
  return std::find(all.begin(), all.end(), name) != all.end();
}

// One handshake. The states, and what each waits for:
//
//   client  kHello     its hello to be sent, then the server's answer
//           kConnect   the fabric's own connection
//           kVerdict   the verdict to be sent
//           kReconnect a fresh TCP connection to a server that does not speak AR-gRPC
//   server  kPeek      the first bytes: a hello, or anything else, which is left to HTTP/2
//           kAnswer    the answer to be sent, then the client's verdict
//   both    kEstablished, kFallback (the connection stays on TCP) or kFailed: the end
class ArHandshaker : public grpc_core::Handshaker {
 public:
  ArHandshaker(Role role, grpc_pollset_set* interested_parties)
      : role_(role), interested_parties_(interested_parties) {
    grpc_slice_buffer_init(&outgoing_);
    grpc_slice_buffer_init(&incoming_);
    Init<&ArHandshaker::OnSent>(&on_sent_);
    Init<&ArHandshaker::OnReceived>(&on_received_);
    Init<&ArHandshaker::OnConnected>(&on_connected_);
    Init<&ArHandshaker::OnReconnected>(&on_reconnected_);
    Init<&ArHandshaker::OnTimeout>(&on_timeout_);
  }

  ~ArHandshaker() override {
    if (doomed_endpoint_ != nullptr) grpc_endpoint_destroy(doomed_endpoint_);
    if (doomed_buffer_ != nullptr) {
      grpc_slice_buffer_destroy(doomed_buffer_);
      gpr_free(doomed_buffer_);
    }
    if (connecting_ != nullptr) grpc_pollset_set_destroy(connecting_);
    grpc_slice_buffer_destroy(&outgoing_);
    grpc_slice_buffer_destroy(&incoming_);
  }

  const char* name() const override { return "ar_grpc"; }

  void DoHandshake(grpc_tcp_server_acceptor*, grpc_closure* done,
                   grpc_core::HandshakerArgs* args) override {
    grpc_core::MutexLock lock(&mu_);
    args_ = args;
    done_ = done;
    peer_ = std::string(grpc_endpoint_get_peer(args->endpoint));
    TakeReadBuffer(args_->read_buffer);
    if (role_ == Role::kServer) {
      state_ = State::kPeek;
      StartTimer();
      return Examine();
    }
    // A proxy would have to be asked again for a fresh connection; behind one it is TCP anyway.
    if (args_->args.GetString(GRPC_ARG_HTTP_CONNECT_SERVER).has_value() ||
        PlainServers::Get().Remembers(peer_)) {
      return StayPlain("it is known not to speak AR-gRPC");
    }
    state_ = State::kHello;
    StartTimer();
    protocol::Hello hello;
    hello.node = protocol::Peers::Get().self();
    for (const std::string& name : AllowedFabrics()) {
      if (name == fabric::kTcp) continue;
      const Status available = fabric::Find(name)->Available();
      if (available.ok()) {
        hello.fabrics.push_back(name);
      } else if (nothing_offered_.empty()) {
        nothing_offered_ = absl::StrCat(name, ": ", available.message());
      }
    }
    if (!hello.fabrics.empty()) nothing_offered_.clear();
    Send(protocol::Encode(hello));
  }

  void Shutdown(grpc_error_handle why) override {
    grpc_core::MutexLock lock(&mu_);
    if (done_ == nullptr) return;
    shutdown_ = why.ok() ? GRPC_ERROR_CREATE("handshake shut down") : why;
    if (args_->endpoint != nullptr) grpc_endpoint_shutdown(args_->endpoint, shutdown_);
    // No operation of the endpoint is under way that would end it.
    if (state_ == State::kConnect || state_ == State::kReconnect) Fail(shutdown_);
  }

 private:
  enum class State {
    kHello,
    kConnect,
    kVerdict,
    kReconnect,
    kPeek,
    kAnswer,
    kEstablished,
    kFallback,
    kFailed,
  };

  // A callback of this object's, which takes over the reference that its starter took. Endpoints
  // may call back before they return, with mu_ held, so it always runs from gRPC's queue.
  struct Callback {
    grpc_closure closure;
    grpc_closure queued;
  };

  template <void (ArHandshaker::*kMember)(grpc_error_handle)>
  void Init(Callback* callback) {
    GRPC_CLOSURE_INIT(
        &callback->closure,
        [](void* arg, grpc_error_handle error) {
          grpc_core::ExecCtx::Run(DEBUG_LOCATION, &static_cast<Callback*>(arg)->queued, error);
        },
        callback, nullptr);
    GRPC_CLOSURE_INIT(
        &callback->queued,
        [](void* arg, grpc_error_handle error) {
          grpc_core::RefCountedPtr<ArHandshaker> self(static_cast<ArHandshaker*>(arg));
          grpc_core::MutexLock lock(&self->mu_);
          ((*self).*kMember)(error);
        },
        this, nullptr);
  }

  grpc_core::RefCountedPtr<ArHandshaker> Self() {
    return grpc_core::RefCountedPtr<ArHandshaker>(static_cast<ArHandshaker*>(Ref().release()));
  }

  // --- what both ends do ---

  void Send(std::string bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    grpc_slice_buffer_reset_and_unref(&outgoing_);
    grpc_slice_buffer_add(&outgoing_, grpc_slice_from_cpp_string(std::move(bytes)));
    Ref().release();
    grpc_endpoint_write(args_->endpoint, &outgoing_, &on_sent_.closure, nullptr, INT_MAX);
  }

  void Receive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Ref().release();
    grpc_endpoint_read(args_->endpoint, &incoming_, &on_received_.closure, /*urgent=*/true,
                       /*min_progress_size=*/1);
  }

  void TakeReadBuffer(grpc_slice_buffer* buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (size_t i = 0; i < buffer->count; ++i) {
      received_.append(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(buffer->slices[i])),
                       GRPC_SLICE_LENGTH(buffer->slices[i]));
    }
    grpc_slice_buffer_reset_and_unref(buffer);
  }

  void OnSent(grpc_error_handle error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (done_ == nullptr) return;
    if (!shutdown_.ok()) return Fail(shutdown_);
    if (!error.ok()) {
      // A server that does not know us may have closed already.
      if (state_ == State::kHello) return Reconnect(kClosed);
      return Fail(error);
    }
    switch (state_) {
      case State::kHello:
      case State::kAnswer:
        return staying_ ? Stay(staying_reason_) : Receive();
      case State::kVerdict:
        return verdict_.established ? Establish(std::move(connection_)) : Stay(verdict_.reason);
      default:
        return Fail(GRPC_ERROR_CREATE("AR-gRPC handshake: sent in an unknown state"));
    }
  }

  void OnReceived(grpc_error_handle error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (done_ == nullptr) return;
    if (!shutdown_.ok()) return Fail(shutdown_);
    if (!error.ok()) {
      if (state_ == State::kHello) {
        return timed_out_ ? Avoid("it did not answer the hello") : Reconnect(kClosed);
      }
      return Fail(timed_out_ ? GRPC_ERROR_CREATE(absl::StrCat(
                                   "the peer ", peer_, " fell silent in the AR-gRPC handshake"))
                             : error);
    }
    TakeReadBuffer(&incoming_);
    Examine();
  }

  void Examine() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const protocol::Seen seen = protocol::LookAt(received_);
    if (seen.look == Look::kUnfinished) return Receive();
    if (seen.look == Look::kForeign) {
      if (state_ == State::kPeek) return StayPlain("");
      if (state_ == State::kHello) return Avoid("it does not speak AR-gRPC");
      return Fail(
          GRPC_ERROR_CREATE(absl::StrCat("the peer ", peer_, " broke off the AR-gRPC handshake")));
    }
    const std::string frame = received_.substr(0, seen.size);
    received_.erase(0, seen.size);
    if (state_ == State::kPeek) return OnHello(frame);
    if (state_ == State::kHello) return OnAnswer(frame);
    OnVerdict(frame);
  }

  // The deadline of this handshake's reads and writes: it shuts the endpoint down, which ends them.
  void StartTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Ref().release();
    timer_started_ = true;
    grpc_timer_init(&timer_, grpc_core::Timestamp::Now() + kPeekTimeout, &on_timeout_.closure);
  }

  void OnTimeout(grpc_error_handle error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!error.ok() || done_ == nullptr || state_ == State::kReconnect) return;
    timed_out_ = true;
    if (args_->endpoint != nullptr) {
      grpc_endpoint_shutdown(args_->endpoint, GRPC_ERROR_CREATE("AR-gRPC handshake timed out"));
    }
  }

  // --- the client ---

  void OnAnswer(const std::string& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    StatusOr<protocol::Answer> answer = protocol::DecodeAnswer(frame);
    if (!answer.ok()) {
      if (answer.status().code() == StatusCode::kUnimplemented) {
        return StayPlain(answer.status().message());
      }
      return Avoid(answer.status().message());
    }
    server_ = answer->node;
    if (answer->fabric.empty()) {
      return Stay(nothing_offered_.empty() ? answer->reason : nothing_offered_);
    }
    if (!Allowed(answer->fabric) || fabric::Find(answer->fabric) == nullptr) {
      return Avoid(absl::StrCat("it chose a fabric that was not offered: ", answer->fabric));
    }
    fabric_ = answer->fabric;
    token_ = answer->token;
    state_ = State::kConnect;
    // The callback runs on the reactor's thread, so gRPC's context is made there.
    const Status begun = fabric::Find(fabric_)->Connect(
        answer->address, answer->token, kConnectTimeoutMs,
        [self = Self()](StatusOr<std::unique_ptr<fabric::Connection>> connection) {
          grpc_core::ApplicationCallbackExecCtx callback_context;
          grpc_core::ExecCtx context;
          grpc_core::MutexLock lock(&self->mu_);
          if (connection.ok()) {
            self->connection_ = std::move(*connection);
          } else {
            self->verdict_.reason = connection.status().message();
          }
          self->Ref().release();
          grpc_core::ExecCtx::Run(DEBUG_LOCATION, &self->on_connected_.queued, absl::OkStatus());
        });
    if (begun.ok()) return;
    verdict_.reason = begun.message();
    OnConnected(absl::OkStatus());
  }

  void OnConnected(grpc_error_handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (done_ == nullptr) return;
    state_ = State::kVerdict;
    verdict_.established = connection_ != nullptr;
    Send(protocol::Encode(verdict_));
  }

  // The server does not speak AR-gRPC: it is spared the hello for a while.
  void Avoid(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (Allowed(fabric::kTcp)) PlainServers::Get().Remember(peer_);
    Reconnect(why);
  }

  // The server has been confused by the hello: TCP anew. One that only closed may just be dying,
  // and what listens there next may speak AR-gRPC.
  void Reconnect(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!Allowed(fabric::kTcp)) return FailForced(why);
    absl::StatusOr<grpc_core::URI> uri = grpc_core::URI::Parse(peer_);
    if (!uri.ok() || !grpc_parse_uri(*uri, &address_)) {
      return Fail(GRPC_ERROR_CREATE(absl::StrCat("cannot connect to ", peer_, " again: ", why)));
    }
    reason_ = why;
    state_ = State::kReconnect;
    grpc_endpoint_shutdown(args_->endpoint, GRPC_ERROR_CREATE(why));
    grpc_endpoint_destroy(std::exchange(args_->endpoint, nullptr));
    received_.clear();
    // It may go on when this handshake, and with it the subchannel, has ended.
    connecting_ = grpc_pollset_set_create();
    grpc_pollset_set_add_pollset_set(connecting_, interested_parties_);
    Ref().release();
    grpc_tcp_client_connect(&on_reconnected_.closure, &fresh_endpoint_, connecting_,
                            grpc_event_engine::experimental::ChannelArgsEndpointConfig(args_->args),
                            &address_, args_->deadline);
  }

  void OnReconnected(grpc_error_handle error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    grpc_endpoint* const fresh = std::exchange(fresh_endpoint_, nullptr);
    if (done_ == nullptr) {
      if (fresh != nullptr) {
        grpc_endpoint_shutdown(fresh, shutdown_);
        grpc_endpoint_destroy(fresh);
      }
      return;
    }
    if (!error.ok()) return Fail(error);
    args_->endpoint = fresh;
    grpc_endpoint_add_to_pollset_set(fresh, interested_parties_);
    StayPlain(reason_);
  }

  // --- the server ---

  void OnHello(const std::string& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    StatusOr<protocol::Hello> hello = protocol::DecodeHello(frame);
    state_ = State::kAnswer;
    protocol::Answer answer;
    answer.node = protocol::Peers::Get().self();
    if (!hello.ok()) {
      if (hello.status().code() != StatusCode::kUnimplemented) {
        return Fail(GRPC_ERROR_CREATE(
            absl::StrCat("the client ", peer_, " sent a ", hello.status().message())));
      }
      // Another version: it reads from the header of the answer that it, too, is to stay on TCP.
      foreign_version_ = true;
      answer.reason = hello.status().message();
    } else {
      client_ = hello->node;
      ChooseFabric(hello->fabrics, &answer);
    }
    staying_ = answer.fabric.empty();
    staying_reason_ = answer.reason;
    Send(protocol::Encode(answer));
  }

  void ChooseFabric(const std::vector<std::string>& offered, protocol::Answer* answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    answer->reason = offered.empty() ? "the client offers no fabric"
                                     : "the server allows none of the client's fabrics";
    for (const std::string& name : offered) {
      fabric::Context* const context = fabric::Find(name);
      if (context == nullptr || !Allowed(name)) {
        continue;
      }
      StatusOr<fabric::Listener*> listener = ListenerOf(context);
      if (!listener.ok()) {
        answer->reason = listener.status().message();
        continue;
      }
      listener_ = *listener;
      token_ = NewToken();
      // The listener forgets the token when this handshake ends, whichever way.
      listener_->Expect(token_, [arrived = arrived_](auto connection) {
        std::lock_guard<std::mutex> lock(arrived->mu);
        if (connection.ok()) arrived->connection = std::move(*connection);
      });
      fabric_ = name;
      answer->fabric = name;
      answer->address = listener_->address();
      answer->token = token_;
      answer->reason.clear();
      return;
    }
  }

  void OnVerdict(const std::string& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    StatusOr<protocol::Verdict> verdict = protocol::DecodeVerdict(frame);
    if (!verdict.ok()) {
      return Fail(GRPC_ERROR_CREATE(
          absl::StrCat("the client ", peer_, " sent a ", verdict.status().message())));
    }
    if (!verdict->established) return Stay(verdict->reason);
    std::unique_ptr<fabric::Connection> connection;
    {
      std::lock_guard<std::mutex> lock(arrived_->mu);
      connection = std::move(arrived_->connection);
    }
    if (connection == nullptr) {
      return Fail(
          GRPC_ERROR_CREATE(absl::StrCat("the client ", peer_, " says it is connected over ",
                                         fabric_, ", but no connection came")));
    }
    Establish(std::move(connection));
  }

  // --- the three ends ---

  void Establish(std::unique_ptr<fabric::Connection> connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!received_.empty()) {
      return Fail(GRPC_ERROR_CREATE(
          absl::StrCat("the peer ", peer_, " wrote to TCP after it had left it")));
    }
    const bool client = role_ == Role::kClient;
    auto link = std::make_shared<protocol::Link>(role_, client ? server_ : client_, peer_, fabric_,
                                                 token_, std::move(connection));
    grpc_endpoint* const endpoint =
        CreateEndpoint(std::move(link), args_->endpoint, interested_parties_, args_->args);
    if (endpoint == nullptr) {
      return Fail(GRPC_ERROR_CREATE(
          "no descriptor is free for the AR endpoint: raise the limit (ulimit -n)"));
    }
    args_->endpoint = endpoint;
    state_ = State::kEstablished;
    if (client) Log(Severity::kInfo, absl::StrCat("connected to ", peer_, " over ", fabric_));
    Finish(absl::OkStatus());
  }

  // Both ends speak AR-gRPC, and stay on TCP.
  void Stay(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (foreign_version_) return StayPlain(why);
    if (role_ == Role::kClient && !Allowed(fabric::kTcp)) return FailForced(why);
    const bool client = role_ == Role::kClient;
    auto link = std::make_shared<protocol::Link>(role_, client ? server_ : client_, peer_,
                                                 fabric::kTcp, protocol::LinkId{}, nullptr);
    args_->endpoint =
        CreateEndpoint(std::move(link), args_->endpoint, interested_parties_, args_->args);
    EndOnTcp(why);
  }

  // The other end does not speak AR-gRPC, or not this version.
  void StayPlain(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (role_ == Role::kClient && !Allowed(fabric::kTcp)) return FailForced(why);
    EndOnTcp(why);
  }

  void EndOnTcp(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    state_ = State::kFallback;
    if (role_ == Role::kClient) {
      Log(Severity::kInfo, absl::StrCat("connected to ", peer_, " over tcp: ", why));
    }
    if (!received_.empty()) {
      grpc_slice_buffer_add(args_->read_buffer, grpc_slice_from_cpp_string(std::move(received_)));
    }
    Finish(absl::OkStatus());
  }

  void FailForced(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::string text =
        absl::StrCat("AR_GRPC_FABRICS=", absl::StrJoin(AllowedFabrics(), ","),
                     " allows no tcp, and nothing else reaches ", peer_, ": ", why);
    Log(Severity::kError, text);
    Fail(grpc_error_set_int(GRPC_ERROR_CREATE(text), grpc_core::StatusIntProperty::kRpcStatus,
                            GRPC_STATUS_UNAVAILABLE));
  }

  void Fail(grpc_error_handle error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    state_ = State::kFailed;
    if (args_->endpoint != nullptr) grpc_endpoint_shutdown(args_->endpoint, error);
    // Destroyed with this object: an operation may still be under way.
    doomed_endpoint_ = std::exchange(args_->endpoint, nullptr);
    doomed_buffer_ = std::exchange(args_->read_buffer, nullptr);
    args_->args = grpc_core::ChannelArgs();
    Finish(error);
  }

  void Finish(grpc_error_handle error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (listener_ != nullptr) std::exchange(listener_, nullptr)->Forget(token_);
    connection_.reset();
    if (connecting_ != nullptr) {
      grpc_pollset_set_del_pollset_set(connecting_, interested_parties_);
    }
    if (timer_started_) grpc_timer_cancel(&timer_);
    args_ = nullptr;
    grpc_core::ExecCtx::Run(DEBUG_LOCATION, std::exchange(done_, nullptr), error);
  }

  // Filled by the listener, on the reactor's thread; outlives this object if it must.
  struct Arrived {
    std::mutex mu;
    std::unique_ptr<fabric::Connection> connection;
  };

  const Role role_;
  grpc_pollset_set* const interested_parties_;
  const std::shared_ptr<Arrived> arrived_ = std::make_shared<Arrived>();

  grpc_core::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kHello;
  grpc_core::HandshakerArgs* args_ ABSL_GUARDED_BY(mu_) = nullptr;
  // nullptr: the handshake has ended.
  grpc_closure* done_ ABSL_GUARDED_BY(mu_) = nullptr;
  absl::Status shutdown_ ABSL_GUARDED_BY(mu_);
  bool timed_out_ ABSL_GUARDED_BY(mu_) = false;
  bool timer_started_ ABSL_GUARDED_BY(mu_) = false;
  std::string peer_ ABSL_GUARDED_BY(mu_);
  std::string reason_ ABSL_GUARDED_BY(mu_);
  // Bytes of TCP that belong to no frame yet.
  std::string received_ ABSL_GUARDED_BY(mu_);
  // Why a client's hello names no fabric, where that is not by AR_GRPC_FABRICS.
  std::string nothing_offered_ ABSL_GUARDED_BY(mu_);
  std::string fabric_ ABSL_GUARDED_BY(mu_);
  protocol::NodeId server_ ABSL_GUARDED_BY(mu_) = {};
  protocol::NodeId client_ ABSL_GUARDED_BY(mu_) = {};
  protocol::Verdict verdict_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<fabric::Connection> connection_ ABSL_GUARDED_BY(mu_);
  fabric::Listener* listener_ ABSL_GUARDED_BY(mu_) = nullptr;
  Token token_ ABSL_GUARDED_BY(mu_) = {};
  // The answer that is being sent names no fabric.
  bool staying_ ABSL_GUARDED_BY(mu_) = false;
  bool foreign_version_ ABSL_GUARDED_BY(mu_) = false;
  std::string staying_reason_ ABSL_GUARDED_BY(mu_);
  grpc_resolved_address address_ ABSL_GUARDED_BY(mu_);
  grpc_endpoint* fresh_endpoint_ ABSL_GUARDED_BY(mu_) = nullptr;
  // What the fresh connection is polled by.
  grpc_pollset_set* connecting_ ABSL_GUARDED_BY(mu_) = nullptr;
  grpc_endpoint* doomed_endpoint_ ABSL_GUARDED_BY(mu_) = nullptr;
  grpc_slice_buffer* doomed_buffer_ ABSL_GUARDED_BY(mu_) = nullptr;

  grpc_slice_buffer outgoing_;
  grpc_slice_buffer incoming_;
  grpc_timer timer_;
  Callback on_sent_;
  Callback on_received_;
  Callback on_connected_;
  Callback on_reconnected_;
  Callback on_timeout_;
};

class ArHandshakerFactory : public grpc_core::HandshakerFactory {
 public:
  explicit ArHandshakerFactory(Role role) : role_(role) {}

  void AddHandshakers(const grpc_core::ChannelArgs&, grpc_pollset_set* interested_parties,
                      grpc_core::HandshakeManager* manager) override {
    manager->Add(grpc_core::MakeRefCounted<ArHandshaker>(role_, interested_parties));
  }
  HandshakerPriority Priority() override {
    return HandshakerPriority::kReadAheadSecurityHandshakers;
  }

 private:
  const Role role_;
};

}  // namespace

void RegisterHandshakers(grpc_core::CoreConfiguration::Builder* builder) {
  InstallSpin();
  builder->handshaker_registry()->RegisterHandshakerFactory(
      grpc_core::HANDSHAKER_CLIENT, std::make_unique<ArHandshakerFactory>(Role::kClient));
  builder->handshaker_registry()->RegisterHandshakerFactory(
      grpc_core::HANDSHAKER_SERVER, std::make_unique<ArHandshakerFactory>(Role::kServer));
}

}  // namespace ar_grpc
