// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// libibverbs whose calls fail, one in each child: the attempt that meets it ends with a clear
// status, the next one works, and nothing is left. Its functions are wrapped where this process
// keeps them.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/verbs/library_to_wrap.h"
#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/flow_control.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"
#include "third_party/ar_grpc/fabric/verbs/rdmacm_library.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

// As they are in the libraries.
Library real;
RdmacmLibrary real_rdmacm;
template <typename Owner>
const Owner& Real() {
  if constexpr (std::is_same_v<Owner, RdmacmLibrary>) {
    return real_rdmacm;
  } else {
    return real;
  }
}
abi::ContextOperations real_operations;

// Which call of a function fails, from now on; 0: none.
using Nth = std::atomic<int>;

bool Fails(Nth* nth, int error) {
  if (*nth == 0 || --*nth > 0) return false;
  errno = error;
  return true;
}

template <auto kFunction>
Nth nth_fails{0};
// What a function has made and its counterpart not ended.
template <auto kMaker>
std::atomic<int> living{0};

template <auto kFunction>
struct Maker;
template <typename Made, typename... Arguments, Made* (*Library::*kFunction)(Arguments...)>
struct Maker<kFunction> {
  static Made* Call(Arguments... arguments) {
    if (Fails(&nth_fails<kFunction>, ENOMEM)) return nullptr;
    Made* const made = (real.*kFunction)(arguments...);
    if (made != nullptr) ++living<kFunction>;
    return made;
  }
};

template <auto kFunction, auto kMaker>
struct Ender;
template <typename Made, typename Result, Result (*Library::*kFunction)(Made), auto kMaker>
struct Ender<kFunction, kMaker> {
  static Result Call(Made made) {
    --living<kMaker>;
    return (real.*kFunction)(made);
  }
};

// Gives kAnswer, and EIO as errno.
template <auto kFunction, int kAnswer>
struct Refuser;
template <typename Owner, typename Result, typename... Arguments,
          Result (*Owner::*kFunction)(Arguments...), int kAnswer>
struct Refuser<kFunction, kAnswer> {
  static Result Call(Arguments... arguments) {
    if (Fails(&nth_fails<kFunction>, EIO)) {
      if constexpr (std::is_pointer_v<Result>) {
        return nullptr;
      } else {
        return kAnswer;
      }
    }
    return (Real<Owner>().*kFunction)(arguments...);
  }
};

Nth post_fails{0};
int PostSend(abi::QueuePair* pair, abi::SendRequest* request, abi::SendRequest** refused) {
  return Fails(&post_fails, EIO) ? EIO : real_operations.post_send(pair, request, refused);
}

Nth receive_fails{0};
int PostReceive(abi::QueuePair* pair, abi::ReceiveRequest* request, abi::ReceiveRequest** refused) {
  return Fails(&receive_fails, ENOMEM) ? ENOMEM : real_operations.post_recv(pair, request, refused);
}

Nth poll_fails{0};
int Poll(abi::CompletionQueue* queue, int count, abi::WorkCompletion* completions) {
  return Fails(&poll_fails, EIO) ? -1 : real_operations.poll_cq(queue, count, completions);
}

Nth notify_fails{0};
int Notify(abi::CompletionQueue* queue, int solicited_only) {
  return Fails(&notify_fails, EIO) ? EIO : real_operations.req_notify_cq(queue, solicited_only);
}

// Not destroyed, and destroyed but not by this call.
Nth destroy_is_refused{0};
Nth destroy_is_late{0};
int DestroyPair(abi::QueuePair* pair) {
  if (Fails(&destroy_is_refused, EBUSY)) return EBUSY;
  const int error = Ender<&Library::destroy_qp, &Library::create_qp>::Call(pair);
  return Fails(&destroy_is_late, EIO) ? EIO : error;
}

abi::Context* OpenDevice(abi::Device* device) {
  abi::Context* const context = Maker<&Library::open_device>::Call(device);
  if (context == nullptr) return nullptr;
  real_operations = context->operations;
  context->operations.post_send = PostSend;
  context->operations.post_recv = PostReceive;
  context->operations.poll_cq = Poll;
  context->operations.req_notify_cq = Notify;
  return context;
}

template <auto kMaker, auto kEnder>
void WrapPair(Library* library) {
  library->*kMaker = Maker<kMaker>::Call;
  library->*kEnder = Ender<kEnder, kMaker>::Call;
}

template <auto kFunction, int kAnswer, typename Owner>
void Wrap(Owner* library) {
  library->*kFunction = Refuser<kFunction, kAnswer>::Call;
}

void WrapAll() {
  Library* const library = LibraryToWrap();
  real = *library;
  WrapPair<&Library::get_device_list, &Library::free_device_list>(library);
  WrapPair<&Library::open_device, &Library::close_device>(library);
  WrapPair<&Library::alloc_pd, &Library::dealloc_pd>(library);
  WrapPair<&Library::reg_mr, &Library::dereg_mr>(library);
  WrapPair<&Library::create_comp_channel, &Library::destroy_comp_channel>(library);
  WrapPair<&Library::create_cq, &Library::destroy_cq>(library);
  WrapPair<&Library::create_qp, &Library::destroy_qp>(library);
  library->open_device = OpenDevice;
  library->destroy_qp = DestroyPair;
  Wrap<&Library::query_device, EIO>(library);
  Wrap<&Library::query_port, EIO>(library);
  Wrap<&Library::query_gid_table, -EIO>(library);
  Wrap<&Library::query_pkey, -1>(library);
  Wrap<&Library::modify_qp, EIO>(library);
  Wrap<&Library::get_cq_event, -1>(library);
}

void WrapRdmacm() {
  RdmacmLibrary* const library = RdmacmToWrap();
  real_rdmacm = *library;
  Wrap<&RdmacmLibrary::create_event_channel, 0>(library);
  Wrap<&RdmacmLibrary::create_id, -1>(library);
  Wrap<&RdmacmLibrary::bind_addr, -1>(library);
  Wrap<&RdmacmLibrary::listen, -1>(library);
  Wrap<&RdmacmLibrary::resolve_addr, -1>(library);
  Wrap<&RdmacmLibrary::resolve_route, -1>(library);
  Wrap<&RdmacmLibrary::connect, -1>(library);
  Wrap<&RdmacmLibrary::accept, -1>(library);
  Wrap<&RdmacmLibrary::get_cm_event, -1>(library);
}

// The only one.
struct TheDevice {
  std::string name;
  bool iwarp = false;
};
TheDevice Find() {
  int count = 0;
  abi::Device** const list = real.get_device_list(&count);
  Check(list != nullptr && count == 1, "not one device");
  const TheDevice found = {real.get_device_name(list[0]),
                           list[0]->transport_type == abi::kTransportIwarp};
  real.free_device_list(list);
  return found;
}

// Two ends meet, one reads from the other twice, and both close.
Status Attempt() {
  constexpr size_t kBytes = 100000;
  const auto segment = Value(memory::Segment::Create(kBytes));
  segment->data()[kBytes - 1] = 77;
  const auto registration = Get().Register(segment, 0, kBytes, Access::kRead);
  if (!registration.ok()) return registration.status();
  End server;
  End client;
  const auto accept = Get().Accept(server.events());
  if (!accept.ok()) return accept.status();
  const auto connect = Get().Connect(client.events());
  if (!connect.ok()) return connect.status();
  (*connect)->TakeFrame(*server.NextFrame());
  const auto answer = client.NextFrame();
  if (!answer.has_value()) return client.Take().status();
  (*accept)->TakeFrame(*answer);
  const auto ready = server.NextFrame();
  if (!ready.has_value()) return server.Take().status();
  (*connect)->TakeFrame(*ready);
  const auto reader = client.Take();
  if (!reader.ok()) return reader.status();
  const auto owner = server.Take();
  if (!owner.ok()) return owner.status();
  const Key key = Value((*owner)->Export(*registration));
  Status status;
  for (int i = 0; i < 2 && status.ok(); ++i) {
    std::vector<uint8_t> into(kBytes);
    status = GetNow(**reader, key, 0, into.data(), kBytes);
    if (status.ok()) Check(into.back() == 77, "wrong bytes");
  }
  CloseNow(**reader);
  CloseNow(**owner);
  return status;
}

// What is there while a device is open and has no connections.
bool Quiet(size_t descriptors, bool iwarp) {
  return living<&Library::get_device_list> == 0 && living<&Library::open_device> == 1 &&
         living<&Library::alloc_pd> == 1 && living<&Library::reg_mr> == 0 &&
         living<&Library::create_comp_channel> == 1 && living<&Library::create_cq> == 0 &&
         living<&Library::create_qp> == 0 &&
         // Of its commands, its events and its completions. librdmacm has its own of the first two,
         // and one for events.
         Descriptors() == descriptors + (iwarp ? 6 : 3);
}

struct Case {
  const char* name;
  Nth* nth;
  int call;
  StatusCode code;
  std::string says;
  Nth* other = nullptr;  // whose first call fails, too
};

void Run(const Case& one, bool iwarp) {
  RunOnReactor([] {});
  const size_t descriptors = Descriptors();
  *one.nth = one.call;
  if (one.other != nullptr) *one.other = 1;
  CheckCode(Attempt(), one.code, one.says);
  Check(*one.nth == 0 && (one.other == nullptr || *one.other == 0), "the call did not come");
  CheckCode(Attempt(), StatusCode::kOk);
  const auto begin = std::chrono::steady_clock::now();
  while (!Quiet(descriptors, iwarp)) {
    Check(std::chrono::steady_clock::now() - begin < kPatience, "something is left");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

template <auto kFunction>
constexpr Nth* Of() {
  return &nth_fails<kFunction>;
}

constexpr auto kOk = StatusCode::kOk;
constexpr auto kUnavailable = StatusCode::kUnavailable;
constexpr auto kExhausted = StatusCode::kResourceExhausted;

// In the order of the calls. The server's end comes before the client's.
std::vector<Case> OfAll(const std::string& device) {
  const std::string port = device + "/1";
  return {
      {"get_device_list", Of<&Library::get_device_list>(), 1, kUnavailable, "listing RDMA devices"},
      {"open_device", Of<&Library::open_device>(), 1, kUnavailable, device + ": cannot be opened"},
      {"query_device", Of<&Library::query_device>(), 1, kUnavailable,
       device + ": cannot be queried"},
      {"query_port", Of<&Library::query_port>(), 1, kUnavailable, "port of " + port + " cannot"},
      {"alloc_pd", Of<&Library::alloc_pd>(), 1, kUnavailable, port + ": no protection domain"},
      {"create_comp_channel", Of<&Library::create_comp_channel>(), 1, kUnavailable,
       "no completion channel"},
      {"reg_mr", Of<&Library::reg_mr>(), 1, kExhausted, "registering 100000 bytes with " + port},
      {"query_port of a server", Of<&Library::query_port>(), 3, kUnavailable, "port of " + port},
      {"reg_mr of a server's buffers", Of<&Library::reg_mr>(), 2, kExhausted, "with " + port},
      {"create_cq", Of<&Library::create_cq>(), 1, kExhausted, "a completion queue of " + port},
      {"create_cq of what comes", Of<&Library::create_cq>(), 2, kExhausted, "a completion queue"},
      {"create_qp", Of<&Library::create_qp>(), 1, kExhausted, "a queue pair of " + port},
      {"modify_qp to be initialized", Of<&Library::modify_qp>(), 1, kUnavailable, "initialized"},
      {"post_recv", &receive_fails, 1, kExhausted, "posting receive buffers to " + port},
      {"the last post_recv", &receive_fails, kFirstReceiveBuffers, kExhausted,
       "posting receive buffers"},
      {"req_notify_cq", &notify_fails, 1, kUnavailable, "asking " + port + " for events"},
      {"req_notify_cq of a client", &notify_fails, 2, kUnavailable, "asking " + port},
      {"reg_mr of a client's buffers", Of<&Library::reg_mr>(), 3, kExhausted, "with " + port},
      {"create_cq of a client", Of<&Library::create_cq>(), 3, kExhausted, "a completion queue"},
      {"reg_mr of a target", Of<&Library::reg_mr>(), 4, kExhausted, "registering 100000 bytes"},
      {"get_cq_event", Of<&Library::get_cq_event>(), 1, kUnavailable, port + ": its events"},
      {"req_notify_cq for a read", &notify_fails, 3, kUnavailable, "asking " + port},
      {"poll_cq", &poll_fails, 1, kUnavailable, port + " gives no completions"},
      {"destroy_qp", &destroy_is_refused, 1, kOk, ""},
      {"destroy_qp of a device that has gone", Of<&Library::get_cq_event>(), 1, kUnavailable,
       port + ": its events", &destroy_is_late},
  };
}

// The client connects first.
std::vector<Case> OfRoce(const std::string& device) {
  const std::string port = device + "/1";
  const std::string refused = "posting to " + port + ": Input/output error";
  return {
      // The client posts a greeting before it is connected, and then its READs.
      {"post_send of a greeting", &post_fails, 1, kUnavailable, refused},
      {"post_send", &post_fails, 2, kUnavailable, refused},
      {"query_gid_table", Of<&Library::query_gid_table>(), 1, kUnavailable, "the GIDs of " + port},
      {"query_pkey", Of<&Library::query_pkey>(), 1, kUnavailable, "the partition key of " + port},
      {"query_gid_table of a server", Of<&Library::query_gid_table>(), 2, kUnavailable, "the GIDs"},
      {"create_qp of a client", Of<&Library::create_qp>(), 2, kExhausted, "a queue pair"},
      {"modify_qp to be connected", Of<&Library::modify_qp>(), 3, kUnavailable, "connected to"},
      {"modify_qp to be ready", Of<&Library::modify_qp>(), 4, kUnavailable, "ready to send"},
      {"modify_qp of a server", Of<&Library::modify_qp>(), 5, kUnavailable, "connected to"},
      {"modify_qp of a server to be ready", Of<&Library::modify_qp>(), 6, kUnavailable, "ready"},
      {"modify_qp to be stopped", Of<&Library::modify_qp>(), 7, kOk, ""},
  };
}

// A queue pair is asked for twice: the first time with more inline bytes than soft-iWARP takes.
std::vector<Case> OfIwarp(const std::string& device) {
  using Rdmacm = RdmacmLibrary;
  return {
      {"post_send", &post_fails, 1, kUnavailable,
       "posting to " + device + "/1: Input/output error"},
      {"create_qp of a client", Of<&Library::create_qp>(), 3, kExhausted, "a queue pair"},
      {"modify_qp to be stopped", Of<&Library::modify_qp>(), 3, kOk, ""},
      {"create_event_channel", Of<&Rdmacm::create_event_channel>(), 1, kUnavailable,
       device + "/1: no channel for events of librdmacm"},
      {"create_id", Of<&Rdmacm::create_id>(), 1, kUnavailable,
       device + "/1: librdmacm finds it by no IP address: give its network device one"},
      {"bind_addr", Of<&Rdmacm::bind_addr>(), 1, kUnavailable, "librdmacm finds it by no IP"},
      {"create_id of a server", Of<&Rdmacm::create_id>(), 2, kUnavailable,
       "an id of librdmacm for " + device},
      {"bind_addr of a server", Of<&Rdmacm::bind_addr>(), 2, kUnavailable,
       "listening at 10.77.0.1 with " + device},
      {"listen", Of<&Rdmacm::listen>(), 1, kUnavailable, "listening at 10.77.0.1 with " + device},
      {"create_id of a client", Of<&Rdmacm::create_id>(), 3, kUnavailable,
       "an id of librdmacm for " + device},
      {"resolve_addr", Of<&Rdmacm::resolve_addr>(), 1, kUnavailable,
       "looking for the peer's address from " + device},
      {"resolve_route", Of<&Rdmacm::resolve_route>(), 1, kUnavailable,
       "looking for a route from " + device},
      {"connect", Of<&Rdmacm::connect>(), 1, kUnavailable, "connecting a queue pair of " + device},
      {"accept", Of<&Rdmacm::accept>(), 1, kUnavailable, device + "/1: connecting over iWARP"},
      {"get_cm_event", Of<&Rdmacm::get_cm_event>(), 1, kUnavailable,
       device + "/1: connecting over iWARP: librdmacm's events: Input/output error"},
  };
}

std::vector<Case> CasesOf(const TheDevice& device) {
  std::vector<Case> cases = OfAll(device.name);
  for (Case& one : device.iwarp ? OfIwarp(device.name) : OfRoce(device.name)) {
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  WrapAll();
  const TheDevice device = Find();
  if (device.iwarp) WrapRdmacm();
  const std::vector<Case> cases = CasesOf(device);
  for (const Case& one : cases) {
    std::printf("%s: ", one.name);
    std::fflush(stdout);
    const auto begin = std::chrono::steady_clock::now();
    const pid_t child = fork();
    Check(child >= 0, "fork");
    if (child == 0) {
      Run(one, device.iwarp);
      std::_Exit(0);
    }
    int status = -1;
    Check(waitpid(child, &status, 0) == child && status == 0, one.name);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("ok (%.2f s)\n", took.count());
  }
  std::printf("%zu calls failed\n", cases.size());
  return 0;
}
