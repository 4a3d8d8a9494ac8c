// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What a device says beside its completions: each event that libibverbs knows, and one that it does
// not, names a queue, a pair or the port while READs are under way. Events that this device never
// gives are put before its own, where this process keeps the library's functions; what can be made
// to happen comes from the kernel. Both ends are in this process.

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/verbs/library_to_wrap.h"
#include "tests/verbs/own_pair.h"
#include "tests/verbs/two_hosts.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/flow_control.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"
#include "third_party/ar_grpc/fabric/verbs/rdmacm_library.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kBytes = size_t{64} << 10;
// More than a queue pair has with its device at once.
constexpr size_t kReads = 32;
constexpr int kStorm = 10000;
// Of device_events.cc.
constexpr uint64_t kMostAtOnce = 64;
// As the interface numbers them.
constexpr int kCommunicationEstablished = 4;
constexpr int kMigrationError = 7;
constexpr int kPortActive = 9;
constexpr int kPortError = 10;
constexpr int kLastRequestReached = 16;

// As they are in the libraries.
Library real;
RdmacmLibrary real_rdmacm;
abi::ContextOperations real_operations;

std::mutex mu;
// Guarded by mu: the events of an opened device. Its descriptor is an epoll set of its own one and
// of a bell that rings while something is put before its own events.
struct Source {
  int own_fd = -1;
  UniqueFd both;
  UniqueFd bell;
  std::deque<abi::AsyncEvent> given;
};
// Never destroyed: the reactor takes events while the program ends.
auto& sources = *new std::map<abi::Context*, Source>;
// Objects that a given event names, and is to be acknowledged for; nullptr stands for the port.
auto& unacknowledged = *new std::map<const void*, int>;
auto& pairs = *new std::vector<abi::QueuePair*>;  // in the order in which they were made
auto& seen = *new std::map<int, int>;             // events of the kernel, by type
uint64_t taken = 0;
uint64_t acknowledged = 0;
uint64_t round_now = 0;  // of the reactor
uint64_t of_this_round = 0;
uint64_t most_at_once = 0;

// Whether a call for an event fails.
std::atomic<bool> broken{false};

// Whether completions are seen, so that no READ ends before its time.
std::atomic<bool> answers{true};
// A queue of which none is.
std::atomic<abi::CompletionQueue*> unseen{nullptr};
// The next queue that is made has so many places; 0: as many as are asked for.
std::atomic<int> queue_after{0};

// nullptr for the port, or all of the device.
const void* Named(const abi::AsyncEvent& event) {
  if (event.type == abi::kEventQueueError) return event.queue;
  const bool of_pair = event.type >= abi::kEventPairFatal && event.type <= kMigrationError;
  return of_pair || event.type == kLastRequestReached ? event.pair : nullptr;
}

// The library's own calls want the device's descriptor in its place. Requires mu.
template <typename Call>
auto WithOwnDescriptor(abi::Context* context, Call call) {
  const int both = std::exchange(context->async_fd, sources.at(context).own_fd);
  const auto result = call();
  context->async_fd = both;
  return result;
}

int GetAsyncEvent(abi::Context* context, abi::AsyncEvent* event) {
  if (broken) {
    errno = EIO;
    return -1;
  }
  std::lock_guard<std::mutex> lock(mu);
  const uint64_t round = Reactor::Get().rounds();
  if (std::exchange(round_now, round) != round) of_this_round = 0;
  Source& source = sources.at(context);
  if (!source.given.empty()) {
    *event = source.given.front();
    source.given.pop_front();
    ++unacknowledged[Named(*event)];
    ++taken;
    most_at_once = std::max(most_at_once, ++of_this_round);
    return 0;
  }
  ClearWakeUp(source.bell.get());
  const int error =
      WithOwnDescriptor(context, [&] { return real.get_async_event(context, event); });
  if (error == 0) ++seen[event->type];
  return error;
}

// The library's own would count one that the kernel never gave, and wait for ever.
void AckAsyncEvent(abi::AsyncEvent* event) {
  {
    std::lock_guard<std::mutex> lock(mu);
    const auto found = unacknowledged.find(Named(*event));
    if (found != unacknowledged.end() && found->second > 0) {
      --found->second;
      ++acknowledged;
      return;
    }
  }
  real.ack_async_event(event);
}

// As the kernel does: of what has gone no event comes any more. And as the library: it waits for
// ever where one was not acknowledged.
void Forget(abi::Context* context, const void* object) {
  std::lock_guard<std::mutex> lock(mu);
  Check(unacknowledged[object] == 0, "what is destroyed has an event that was not acknowledged");
  unacknowledged.erase(object);
  std::deque<abi::AsyncEvent>& given = sources.at(context).given;
  given.erase(std::remove_if(given.begin(), given.end(),
                             [&](const abi::AsyncEvent& one) { return Named(one) == object; }),
              given.end());
}

int DestroyPair(abi::QueuePair* pair) {
  Forget(pair->context, pair);
  return real.destroy_qp(pair);
}
int DestroyQueue(abi::CompletionQueue* queue) {
  Forget(queue->context, queue);
  return real.destroy_cq(queue);
}

abi::QueuePair* CreatePair(abi::ProtectionDomain* domain, abi::QueuePairInit* init) {
  std::lock_guard<std::mutex> lock(mu);
  abi::QueuePair* const pair =
      WithOwnDescriptor(init->send_queue->context, [&] { return real.create_qp(domain, init); });
  if (pair != nullptr) pairs.push_back(pair);
  return pair;
}

abi::CompletionQueue* CreateQueue(abi::Context* context, int entries, void* user,
                                  abi::CompletionChannel* channel, int vector) {
  const bool small = queue_after > 0 && --queue_after == 0;
  std::lock_guard<std::mutex> lock(mu);
  return WithOwnDescriptor(
      context, [&] { return real.create_cq(context, small ? 1 : entries, user, channel, vector); });
}

int Poll(abi::CompletionQueue* queue, int count, abi::WorkCompletion* completions) {
  if (!answers || queue == unseen) return 0;
  return real_operations.poll_cq(queue, count, completions);
}

abi::Context* OpenDevice(abi::Device* device) {
  abi::Context* const context = real.open_device(device);
  real_operations = context->operations;
  context->operations.poll_cq = Poll;
  Source source;
  source.own_fd = context->async_fd;
  Must(fcntl(source.own_fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
  source.bell = Value(NewWakeFd());
  source.both = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {source.own_fd, source.bell.get()}) {
    epoll_event event = {};
    event.events = EPOLLIN;
    Must(epoll_ctl(source.both.get(), EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
  }
  context->async_fd = source.both.get();
  std::lock_guard<std::mutex> lock(mu);
  sources[context] = std::move(source);
  return context;
}

int CloseDevice(abi::Context* context) {
  {
    std::lock_guard<std::mutex> lock(mu);
    context->async_fd = sources.at(context).own_fd;
    sources.erase(context);
  }
  return real.close_device(context);
}

void Wrap() {
  Library* const library = LibraryToWrap();
  real = *library;
  library->open_device = OpenDevice;
  library->close_device = CloseDevice;
  library->create_qp = CreatePair;
  library->create_cq = CreateQueue;
  library->destroy_qp = DestroyPair;
  library->destroy_cq = DestroyQueue;
  library->get_async_event = GetAsyncEvent;
  library->ack_async_event = AckAsyncEvent;
}

// The id of librdmacm that was connected last, and whether its device is to be removed now: the
// next call for an event gives that one.
std::atomic<abi::ConnectionId*> last_id{nullptr};
std::atomic<bool> removal{false};
std::atomic<int> removals_acknowledged{0};
abi::ConnectionEvent removal_event = {};

int ConnectId(abi::ConnectionId* id, abi::ConnectionParameters* parameters) {
  last_id = id;
  return real_rdmacm.connect(id, parameters);
}
int GetManagerEvent(abi::EventChannel* channel, abi::ConnectionEvent** event) {
  if (!removal.exchange(false)) return real_rdmacm.get_cm_event(channel, event);
  removal_event.id = last_id;
  removal_event.type = abi::kDeviceRemoval;
  *event = &removal_event;
  return 0;
}
int AckManagerEvent(abi::ConnectionEvent* event) {
  if (event != &removal_event) return real_rdmacm.ack_cm_event(event);
  ++removals_acknowledged;
  return 0;
}

void WrapRdmacm() {
  RdmacmLibrary* const library = RdmacmToWrap();
  real_rdmacm = *library;
  library->connect = ConnectId;
  library->get_cm_event = GetManagerEvent;
  library->ack_cm_event = AckManagerEvent;
}

std::string device_name;  // "rxe0/1"
void FindDevice() {
  int count = 0;
  abi::Device** const list = real.get_device_list(&count);
  Check(list != nullptr && count == 1, "not one device");
  device_name = real.get_device_name(list[0]) + std::string("/1");
  real.free_device_list(list);
}

// The pair of the reader's end of the connection that was made last.
abi::QueuePair* LastPair() {
  std::lock_guard<std::mutex> lock(mu);
  return pairs.back();
}

void Give(const abi::AsyncEvent& event, abi::Context* context, int times = 1) {
  std::lock_guard<std::mutex> lock(mu);
  Source& source = sources.at(context);
  source.given.insert(source.given.end(), times, event);
  WakeUp(source.bell.get());
}

void Soon(const std::function<bool()>& holds, const char* what) {
  const auto begin = std::chrono::steady_clock::now();
  while (!holds()) {
    Check(std::chrono::steady_clock::now() - begin < kPatience, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool AllTaken() {
  std::lock_guard<std::mutex> lock(mu);
  return std::all_of(sources.begin(), sources.end(),
                     [](const auto& source) { return source.second.given.empty(); });
}

int Seen(int type) {
  std::lock_guard<std::mutex> lock(mu);
  return seen[type];
}

size_t OpenDevices() {
  std::lock_guard<std::mutex> lock(mu);
  return sources.size();
}

void CheckAcknowledged(uint64_t events) {
  Soon(AllTaken, "events that nobody takes");
  RunOnReactor([] {});  // what took the last one is through with it
  std::lock_guard<std::mutex> lock(mu);
  Check(taken == events && acknowledged == events,
        std::to_string(acknowledged) + " acknowledgements of " + std::to_string(taken) +
            " events, of " + std::to_string(events));
  taken = acknowledged = 0;
}

// A byte of the stream and a READ.
void Works(const Pair& pair, const Memory& memory) {
  const Key key = Value(pair.owner->Export(memory.registration));
  std::vector<uint8_t> into(kBytes);
  CheckCode(GetNow(*pair.reader, key, 0, into.data(), kBytes), StatusCode::kOk);
  Check(std::equal(into.begin(), into.end(), memory.segment->data()), "wrong bytes");
  uint8_t byte = 77;
  const iovec part = {&byte, 1};
  Check(Value(pair.reader->Write(&part, 1)) == 1, "a full stream");
  byte = 0;
  Soon([&] { return Value(pair.owner->Read(&byte, 1)) == 1; }, "no byte comes");
  Check(byte == 77, "another byte");
}

void IsOver(Connection* end, const std::string& why) {
  Soon([&] { return end->closed(); }, "an end that failed is not closed");
  uint8_t byte = 0;
  const iovec part = {&byte, 1};
  for (const Status& status : {end->Read(&byte, 1).status(), end->Write(&part, 1).status(),
                               end->Post(Message()).status(), end->ArmRead().status()}) {
    CheckCode(status, StatusCode::kUnavailable);
    Check(status.message() == why, "'" + status.message() + "', not '" + why + "'");
  }
}

void Close(const Pair& pair) {
  CloseNow(*pair.reader);
  CloseNow(*pair.owner);
}

// READs of which the device has some; of their ends none is seen until then.
class Reads {
 public:
  Reads(Connection* end, const Key& key) : end_(end) {
    answers = false;
    for (size_t i = 0; i < kReads; ++i) {
      end->Get(key, 0, into_[i].data(), kBytes, nullptr, [this, i](Status s) { ended_[i].Set(s); });
    }
  }
  // All have ended; how many well. The others, and those that the device never had, say why.
  size_t End(const std::string& why) {
    answers = true;
    end_->Progress();  // what was not seen gives no event again
    size_t good = 0;
    for (Awaited<Status>& one : ended_) {
      const Status status = one.Get();
      good += status.ok() ? 1 : 0;
      if (status.ok()) continue;
      CheckCode(status, StatusCode::kUnavailable);
      Check(status.message() == why, "a READ: '" + status.message() + "', not '" + why + "'");
    }
    return good;
  }

 private:
  Connection* const end_;
  std::vector<std::vector<uint8_t>> into_{kReads, std::vector<uint8_t>(kBytes)};
  std::array<Awaited<Status>, kReads> ended_;
};

// What an event names.
enum class Names { kSent, kReceived, kPair, kPort, kDevice };

struct Case {
  int type;
  const char* name;
  Names names;
  bool fails = false;  // the connection of what it names, or all
};

constexpr std::array<Case, 22> kCases = {{
    {0, "CQ_ERR of what is sent", Names::kSent, true},
    {0, "CQ_ERR of what comes", Names::kReceived, true},
    {1, "QP_FATAL", Names::kPair, true},
    {2, "QP_REQ_ERR", Names::kPair, true},
    {3, "QP_ACCESS_ERR", Names::kPair, true},
    {4, "COMM_EST", Names::kPair},
    {5, "SQ_DRAINED", Names::kPair},
    {6, "PATH_MIG", Names::kPair},
    {7, "PATH_MIG_ERR", Names::kPair},
    {8, "DEVICE_FATAL", Names::kDevice, true},
    {9, "PORT_ACTIVE", Names::kPort},
    {10, "PORT_ERR", Names::kPort},
    {11, "LID_CHANGE", Names::kPort},
    {12, "PKEY_CHANGE", Names::kPort},
    {13, "SM_CHANGE", Names::kPort},
    {14, "SRQ_ERR", Names::kPort},
    {15, "SRQ_LIMIT_REACHED", Names::kPort},
    {16, "QP_LAST_WQE_REACHED", Names::kPair},
    {17, "CLIENT_REREGISTER", Names::kPort},
    {18, "GID_CHANGE", Names::kPort},
    {19, "WQ_FATAL", Names::kPort},
    {77, "none that is known", Names::kPort},
}};

abi::AsyncEvent EventOf(const Case& one, abi::QueuePair* pair) {
  abi::AsyncEvent event = {};
  event.type = one.type;
  switch (one.names) {
    case Names::kSent:
      event.queue = pair->send_queue;
      break;
    case Names::kReceived:
      event.queue = pair->receive_queue;
      break;
    case Names::kPair:
      event.pair = pair;
      break;
    case Names::kPort:
    case Names::kDevice:
      event.port = 1;
      break;
  }
  return event;
}

std::string Failure(int type) {
  return "the RDMA connection has failed: " + device_name + ": " + real.event_type_str(type);
}

void EventComes(const Case& one) {
  const Memory memory(kBytes);
  const Pair other = Connected();
  const Pair hit = Connected();
  abi::QueuePair* const pair = LastPair();
  const Key key = Value(hit.owner->Export(memory.registration));
  const std::string why = Failure(one.type);
  const auto begin = std::chrono::steady_clock::now();
  Reads reads(hit.reader.get(), key);
  Give(EventOf(one, pair), pair->context);
  CheckAcknowledged(1);
  const bool all = one.names == Names::kDevice;
  if (one.fails) IsOver(hit.reader.get(), why);
  const size_t good = reads.End(why);
  Check(one.fails ? good < kReads : good == kReads, std::to_string(good) + " READs ended well");
  if (all) {
    for (const Pair* const each : {&hit, &other}) {
      IsOver(each->owner.get(), why);
      IsOver(each->reader.get(), why);
    }
    CheckCode(other.owner->Export(memory.registration).status(), StatusCode::kUnavailable, why);
    // The next attempt opens the device again; memory is registered with that one.
    const Memory again(kBytes);
    const Pair next = Connected();
    CheckCode(next.owner->Export(memory.registration).status(), StatusCode::kInvalidArgument,
              "not registered with this connection's RDMA device");
    Works(next, again);
    Check(OpenDevices() == 2, "the device was not opened again");
    Close(next);
  } else {
    if (!one.fails) Works(hit, memory);
    Works(other, memory);
    const Pair next = Connected();
    Works(next, memory);
    Check(OpenDevices() == 1, "a device was opened again");
    Close(next);
  }
  std::printf("%zu of %zu READs ended well, %.2f s, ", good, kReads, Seconds(begin));
  Close(hit);
  Close(other);
}

// Others have their turn: not too many events are taken at once, and READs go on meanwhile whose
// ends only the reactor looks for.
void Storm(const Case& one) {
  const Memory memory(kBytes);
  const Pair pair = Connected();
  const Key key = Value(pair.owner->Export(memory.registration));
  const Pair named = Connected();
  abi::QueuePair* const last = LastPair();
  {
    std::lock_guard<std::mutex> lock(mu);
    most_at_once = 0;
  }
  const abi::AsyncEvent event = EventOf(one, last);
  // An event that ends the pair leaves its device.
  abi::Context* const device = last->context;
  Give(event, device, kStorm);
  int reads = 0;
  std::vector<uint8_t> into(kBytes);
  while (!AllTaken()) {
    if (reads > 0) Give(event, device);  // it goes on until a few READs have ended
    CheckCode(GetNow(*pair.reader, key, 0, into.data(), kBytes), StatusCode::kOk);
    if (++reads == 5) break;
  }
  Soon(AllTaken, "a storm does not end");
  if (one.fails) {
    IsOver(named.reader.get(), Failure(one.type));
  } else {
    Works(named, memory);
  }
  Works(pair, memory);
  std::lock_guard<std::mutex> lock(mu);
  std::printf("%d READs meanwhile, %lu of %lu events, at most %lu at once, ", reads, acknowledged,
              taken, most_at_once);
  Check(taken == acknowledged, "events that were not acknowledged once");
  Check(one.fails || taken >= kStorm, "events were lost");
  Check(most_at_once <= kMostAtOnce, "too many events at once");
  taken = acknowledged = 0;
}

// The kernel's own: a queue for what comes has too few places, and nobody looks at it.
void QueueOverruns() {
  const Memory memory(kBytes);
  const Pair other = Connected();
  queue_after = 4;  // of the reader, what comes
  const Pair hit = Connected();
  Check(queue_after == 0, "no queue was made smaller");
  unseen = LastPair()->receive_queue;
  const int before = Seen(abi::kEventQueueError);
  const std::vector<uint8_t> bytes(kFirstDataWindow * kFrameBytes);
  const iovec part = {const_cast<uint8_t*>(bytes.data()), bytes.size()};
  // With soft-iWARP the first frame that finds no place ends the connection, at both ends.
  static_cast<void>(hit.owner->Write(&part, 1).ok());
  for (int i = 0; i < kFirstMessageWindow; ++i) static_cast<void>(hit.owner->Post(Message()).ok());
  IsOver(hit.reader.get(), Failure(abi::kEventQueueError));
  Check(Seen(abi::kEventQueueError) > before, "the kernel has not said so");
  Works(other, memory);
  Close(hit);
  Close(other);
  unseen = nullptr;
}

void Shell(const std::string& command) { Check(std::system(command.c_str()) == 0, command); }

// The kernel's own: the network device is down for a moment, and longer.
void PortGoesDown(bool iwarp) {
  const Memory memory(kBytes);
  const Pair pair = Connected();
  Works(pair, memory);
  const int errors = Seen(kPortError);
  const int active = Seen(kPortActive);
  Shell("ip link set veth0 down");
  Soon([&] { return Seen(kPortError) > errors; }, "no event of a port that is down");
  const std::string down = "its port is down";
  CheckCode(Get().Available(), StatusCode::kUnavailable, down);
  CheckCode(Get().Accept(End().events()).status(), StatusCode::kUnavailable, down);
  CheckCode(Get().Connect(End().events()).status(), StatusCode::kUnavailable, down);
  Shell("ip link set veth0 up");
  Soon([&] { return Seen(kPortActive) > active; }, "no event of a port that is up");
  Soon([] { return Get().Available().ok(); }, "a port that is up cannot be used");
  if (iwarp) {
    Soon([&] { return pair.reader->closed(); }, "soft-iWARP ends connections of such a port");
    CheckCode(pair.reader->Post(Message()).status(), StatusCode::kUnavailable);
  } else {
    Works(pair, memory);
  }
  Works(Connected(), memory);
  Check(OpenDevices() == 1, "a device was opened again");
}

// The kernel's own: an address goes away, and with it the GID of both ends. Soft-RoCE would tell of
// it by the completion of what is sent next, or, where a request before that has no answer yet, by
// none at all.
void AddressGoes(bool iwarp) {
  const Memory memory(kBytes);
  const Pair pair = Connected();
  Works(pair, memory);
  const int changes = Seen(abi::kEventGidChange);
  Shell("ip addr del 10.77.0.1/24 dev veth0");
  // Over iWARP it is TCP's, which waits for the address.
  Awaited<Status> waited;
  std::vector<uint8_t> into(kBytes);
  if (iwarp) {
    const Key key = Value(pair.owner->Export(memory.registration));
    pair.reader->Get(key, 0, into.data(), kBytes, nullptr,
                     [&](Status status) { waited.Set(std::move(status)); });
  } else {
    const std::string why =
        "the RDMA connection has failed: " + device_name + ": its address 10.77.0.1 has gone";
    IsOver(pair.reader.get(), why);
    IsOver(pair.owner.get(), why);
    Check(Seen(abi::kEventGidChange) > changes, "the kernel has not said so");
  }
  Shell("ip addr add 10.77.0.1/24 dev veth0");
  if (iwarp) {
    CheckCode(waited.Get(), StatusCode::kOk);
  } else {
    Soon([&] { return Seen(abi::kEventGidChange) > changes + 1; }, "no second event");
  }
  const Pair next = Connected();
  Works(next, memory);
  // Another one's is none of theirs.
  const int before = Seen(abi::kEventGidChange);
  Shell("ip addr add 10.78.0.1/24 dev veth0 && ip addr del 10.78.0.1/24 dev veth0");
  if (!iwarp) Soon([&] { return Seen(abi::kEventGidChange) > before + 1; }, "no event");
  RunOnReactor([] {});
  Works(next, memory);
  Check(OpenDevices() == 1, "a device was opened again");
  Close(next);
}

// One that has failed is let go, too, where nobody asks for another one: a kernel that removes it
// may wait for that.
void NobodyAsksAgain() {
  {
    const Memory memory(kBytes);
    const Pair pair = Connected();
    abi::AsyncEvent event = {};
    event.type = abi::kEventDeviceFatal;
    Give(event, LastPair()->context);
    CheckAcknowledged(1);
    IsOver(pair.reader.get(), Failure(abi::kEventDeviceFatal));
    Check(OpenDevices() == 1, "a device that is in use is closed");
    Close(pair);
  }
  Soon([] { return OpenDevices() == 0; }, "a device that has failed stays open");
  const Memory memory(kBytes);
  const Pair pair = Connected();
  Works(pair, memory);
  Close(pair);
}

// A device whose events cannot be taken would leave all waiting for them. It fails as one that says
// so itself; the next attempt opens it again.
void EventsCannotBeTaken() {
  {
    const Memory memory(kBytes);
    const Pair pair = Connected();
    broken = true;
    abi::AsyncEvent event = {};
    event.type = kPortActive;
    Give(event, LastPair()->context);
    const std::string why =
        "the RDMA connection has failed: " + device_name + ": its events: Input/output error";
    IsOver(pair.reader.get(), why);
    IsOver(pair.owner.get(), why);
    broken = false;
    Close(pair);
  }
  Soon([] { return OpenDevices() == 0; }, "a device without events stays open");
  const Memory memory(kBytes);
  const Pair pair = Connected();
  Works(pair, memory);
  Close(pair);
}

// librdmacm hears of it where the kernel tells it before it tells libibverbs.
void DeviceIsRemoved() {
  {
    const Memory memory(kBytes);
    const Pair other = Connected();
    const Pair hit = Connected();
    const Key key = Value(hit.owner->Export(memory.registration));
    Reads reads(hit.reader.get(), key);
    removal = true;
    // One in the making has events.
    End server;
    End client;
    const auto accept = Value(Get().Accept(server.events()));
    const auto connect = Value(Get().Connect(client.events()));
    connect->TakeFrame(*server.NextFrame());
    const std::string device = device_name.substr(0, device_name.find('/'));
    const std::string why =
        "the RDMA connection has failed: " + device + ": the device is being removed";
    CheckCode(client.Take().status(), StatusCode::kUnavailable, why);
    for (const Pair* const each : {&other, &hit}) {
      IsOver(each->reader.get(), why);
      IsOver(each->owner.get(), why);
    }
    Check(reads.End(why) < kReads, "all READs ended well");
    Check(!removal && removals_acknowledged == 1, "not acknowledged once");
  }
  Soon([] { return OpenDevices() == 0; }, "a device that is removed stays open");
  const Memory memory(kBytes);
  const Pair pair = Connected();
  Works(pair, memory);
  Close(pair);
}

// Nothing is left after it but what was there before all.
void Run(const std::string& name, const Holdings& before, const std::function<void()>& one) {
  std::printf("%s: ", name.c_str());
  std::fflush(stdout);
  const auto begin = std::chrono::steady_clock::now();
  one();
  UntilNothingIsLeftBut(before);
  Check(OpenDevices() == 1, "a device that has failed is still open");
  std::printf("ok event (%.2f s)\n", Seconds(begin));
  std::fflush(stdout);
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  Wrap();
  FindDevice();
  const bool iwarp = device_name.rfind("siw", 0) == 0;
  if (iwarp) WrapRdmacm();
  {
    const Pair once = Connected();  // what a process makes once
    CloseNow(*once.reader);
    CloseNow(*once.owner);
  }
  const Holdings before = AtRest();
  for (const Case& one : kCases) {
    Run(one.name, before, [&one] { EventComes(one); });
  }
  for (const Case& one : kCases) {
    if (one.type == kCommunicationEstablished || one.type == kPortError ||
        one.type == ar_grpc::fabric::verbs::abi::kEventPairFatal) {
      Run("a storm of " + std::string(one.name), before, [&one] { Storm(one); });
    }
  }
  Run("a queue that overruns", before, QueueOverruns);
  Run("a device that fails, and nobody asks for another", before, NobodyAsksAgain);
  Run("events that cannot be taken", before, EventsCannotBeTaken);
  if (iwarp) Run("a device that is removed", before, DeviceIsRemoved);
  Run("an address that goes away", before, [iwarp] { AddressGoes(iwarp); });
  Run("a port that goes down", before, [iwarp] { PortGoesDown(iwarp); });
}
