// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/mpi/calls.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <type_traits>
#include <utility>

#include "third_party/ar_grpc/mpi/abi.h"

namespace ar_grpc::mpi {
namespace {

// Finds functions and variables, and remembers the first that is not there.
class Symbols {
 public:
  Symbols(void* handle, const std::string& path) : handle_(handle), path_(path) {}

  template <typename Function>
  void Find(Function* function, const char* name) {
    *function = reinterpret_cast<Function>(Lookup(name));
  }
  void* Lookup(const char* name) {
    void* const found = dlsym(handle_, name);
    if (found == nullptr && status_.ok()) {
      status_ = Status(
          StatusCode::kUnimplemented,
          path_ + " has no " + name + ": install MPICH 3.4, Open MPI 4, Intel MPI 2019 or newer");
    }
    return found;
  }
  const Status& status() const { return status_; }

 private:
  void* const handle_;
  const std::string path_;
  Status status_;
};

template <typename Abi>
class Bound final : public Calls {
 public:
  using Handle = typename Abi::Handle;

  explicit Bound(Symbols* symbols)
      : world_(Value(symbols, Abi::kWorld)),
        self_(Value(symbols, Abi::kSelf)),
        byte_(Value(symbols, Abi::kByte)),
        errors_return_(Value(symbols, Abi::kErrorsReturn)) {
    symbols->Find(&mpi_.Get_library_version, "MPI_Get_library_version");
    symbols->Find(&mpi_.Initialized, "MPI_Initialized");
    symbols->Find(&mpi_.Finalized, "MPI_Finalized");
    symbols->Find(&mpi_.Init_thread, "MPI_Init_thread");
    symbols->Find(&mpi_.Query_thread, "MPI_Query_thread");
    symbols->Find(&mpi_.Finalize, "MPI_Finalize");
    symbols->Find(&mpi_.Comm_rank, "MPI_Comm_rank");
    symbols->Find(&mpi_.Comm_size, "MPI_Comm_size");
    symbols->Find(&mpi_.Comm_idup, "MPI_Comm_idup");
    symbols->Find(&mpi_.Comm_set_errhandler, "MPI_Comm_set_errhandler");
    symbols->Find(&mpi_.Comm_get_attr, "MPI_Comm_get_attr");
    symbols->Find(&mpi_.Comm_create_keyval, "MPI_Comm_create_keyval");
    symbols->Find(&mpi_.Comm_set_attr, "MPI_Comm_set_attr");
    symbols->Find(&mpi_.Ibcast, "MPI_Ibcast");
    symbols->Find(&mpi_.Issend, "MPI_Issend");
    symbols->Find(&mpi_.Improbe, "MPI_Improbe");
    symbols->Find(&mpi_.Imrecv, "MPI_Imrecv");
    symbols->Find(&mpi_.Test, "MPI_Test");
    symbols->Find(&mpi_.Get_count, "MPI_Get_count");
    symbols->Find(&mpi_.Error_class, "MPI_Error_class");
    symbols->Find(&mpi_.Error_string, "MPI_Error_string");
  }

  std::string Version() override {
    char text[abi::kMostVersionText] = {};
    int length = 0;
    mpi_.Get_library_version(text, &length);
    const std::string whole(text, strnlen(text, sizeof(text)));
    return whole.substr(0, whole.find_first_of("\n,"));
  }
  bool Initialized() override { return Flag(mpi_.Initialized); }
  bool Finalized() override { return Flag(mpi_.Finalized); }

  StatusOr<ThreadLevel> Init() override {
    int provided = 0;
    const int code = mpi_.Init_thread(nullptr, nullptr, Abi::kThreadMultiple, &provided);
    if (code != abi::kSuccess) return Error("MPI_Init_thread", code);
    return LevelOf(provided);
  }
  StatusOr<ThreadLevel> Level() override {
    int provided = 0;
    const int code = mpi_.Query_thread(&provided);
    if (code != abi::kSuccess) return Error("MPI_Query_thread", code);
    return LevelOf(provided);
  }
  Status Finalize() override { return StatusOf("MPI_Finalize", mpi_.Finalize()); }
  // The first that MPI_Finalize does is to free what hangs on MPI_COMM_SELF.
  Status BeforeFinalize(std::function<void()> run) override {
    const auto copy = [](Handle, int, void*, void*, void*, int* flag) {
      *flag = 0;
      return abi::kSuccess;
    };
    const auto gone = [](Handle, int, void* value, void*) {
      const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(value));
      (*own)();
      return abi::kSuccess;
    };
    int key = 0;
    const Status made =
        StatusOf("MPI_Comm_create_keyval", mpi_.Comm_create_keyval(copy, gone, &key, nullptr));
    if (!made.ok()) return made;
    auto value = std::make_unique<std::function<void()>>(std::move(run));
    const Status set = StatusOf("MPI_Comm_set_attr", mpi_.Comm_set_attr(self_, key, value.get()));
    if (set.ok()) (void)value.release();  // MPI's
    return set;
  }

  Communicator World() override { return As<Communicator>(world_); }
  StatusOr<int> Rank(Communicator communicator) override {
    int rank = 0;
    const int code = mpi_.Comm_rank(Of(communicator), &rank);
    if (code != abi::kSuccess) return Error("MPI_Comm_rank", code);
    return rank;
  }
  StatusOr<int> Size(Communicator communicator) override {
    int size = 0;
    const int code = mpi_.Comm_size(Of(communicator), &size);
    if (code != abi::kSuccess) return Error("MPI_Comm_size", code);
    return size;
  }
  StatusOr<Request> StartCopy(Communicator communicator, Communicator* copy) override {
    // MPI writes it when the request ends, as wide as its handles are: for numbers the lower half.
    *copy = Communicator{};
    Handle request;
    const int code = mpi_.Comm_idup(Of(communicator), reinterpret_cast<Handle*>(copy), &request);
    return Started("MPI_Comm_idup", code, request);
  }
  Status ReturnErrors(Communicator communicator) override {
    return StatusOf("MPI_Comm_set_errhandler",
                    mpi_.Comm_set_errhandler(Of(communicator), errors_return_));
  }
  StatusOr<int> LargestTag(Communicator communicator) override {
    int* bound = nullptr;
    int flag = 0;
    const int code = mpi_.Comm_get_attr(Of(communicator), Abi::kTagUpperBound, &bound, &flag);
    if (code != abi::kSuccess) return Error("MPI_Comm_get_attr", code);
    // What each MPI has at least.
    return flag != 0 && bound != nullptr ? *bound : 32767;
  }
  StatusOr<Request> StartBroadcast(void* bytes, size_t size, int root,
                                   Communicator communicator) override {
    if (size > INT_MAX) return TooLong(size);
    Handle request;
    const int code =
        mpi_.Ibcast(bytes, static_cast<int>(size), byte_, root, Of(communicator), &request);
    return Started("MPI_Ibcast", code, request);
  }

  StatusOr<Request> StartSend(const void* bytes, size_t size, int rank, int tag,
                              Communicator communicator) override {
    if (size > INT_MAX) return TooLong(size);
    Handle request;
    const int code =
        mpi_.Issend(bytes, static_cast<int>(size), byte_, rank, tag, Of(communicator), &request);
    return Started("MPI_Issend", code, request);
  }
  StatusOr<Request> StartReceive(void* into, const Arrival& arrival) override {
    if (arrival.bytes > INT_MAX) return TooLong(arrival.bytes);
    Handle message = Of(arrival.message);
    Handle request;
    const int code = mpi_.Imrecv(into, static_cast<int>(arrival.bytes), byte_, &message, &request);
    return Started("MPI_Imrecv", code, request);
  }
  StatusOr<std::optional<Arrival>> Probe(Communicator communicator) override {
    int flag = 0;
    Handle message;
    typename Abi::Status status{};
    const int code =
        mpi_.Improbe(Abi::kAnySource, Abi::kAnyTag, Of(communicator), &flag, &message, &status);
    if (code != abi::kSuccess) return Error("MPI_Improbe", code);
    if (flag == 0) return std::optional<Arrival>();
    int count = 0;
    // More than INT_MAX bytes, which we never send, are told as a negative number.
    if (mpi_.Get_count(&status, byte_, &count) != abi::kSuccess) count = -1;
    Arrival arrival;
    arrival.message = As<Message>(message);
    arrival.rank = status.source;
    arrival.tag = status.tag;
    arrival.bytes = count < 0 ? UINT64_MAX : static_cast<uint64_t>(count);
    return std::optional<Arrival>(arrival);
  }
  std::optional<Status> Test(Request request) override {
    Handle handle = Of(request);
    int ended = 0;
    typename Abi::Status status;
    const int code = mpi_.Test(&handle, &ended, &status);
    // An error without an end is one of other messages: MPI may go on to use this one's memory.
    if (ended == 0 && handle == Of(request)) return std::nullopt;
    return StatusOf("MPI_Test", code);
  }

 private:
  static Handle Value(Symbols*, intptr_t value) { return reinterpret_cast<Handle>(value); }
  static Handle Value(Symbols*, int value) { return static_cast<Handle>(value); }
  static Handle Value(Symbols* symbols, const char* name) {
    return reinterpret_cast<Handle>(symbols->Lookup(name));
  }

  template <typename Neutral>
  static Neutral As(Handle handle) {
    if constexpr (std::is_pointer_v<Handle>) {
      return static_cast<Neutral>(reinterpret_cast<uintptr_t>(handle));
    } else {
      return static_cast<Neutral>(static_cast<unsigned>(handle));
    }
  }
  template <typename Neutral>
  static Handle Of(Neutral neutral) {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<Handle>(static_cast<uintptr_t>(neutral));
    } else {
      return static_cast<Handle>(static_cast<unsigned>(neutral));
    }
  }

  static bool Flag(int (*function)(int*)) {
    int flag = 0;
    return function(&flag) == abi::kSuccess && flag != 0;
  }
  static ThreadLevel LevelOf(int provided) {
    return provided >= Abi::kThreadMultiple ? ThreadLevel::kMultiple : ThreadLevel::kLess;
  }

  int ClassOf(int code) {
    int error_class = code;
    return mpi_.Error_class(code, &error_class) == abi::kSuccess ? error_class : code;
  }
  Status Error(const char* what, int code) {
    char text[abi::kMostErrorText + 1] = {};
    int length = 0;
    if (mpi_.Error_string(code, text, &length) != abi::kSuccess) length = 0;
    text[abi::kMostErrorText] = '\0';
    std::string says = length > 0 ? std::string(text) : "error " + std::to_string(code);
    // MPICH tells which of its functions called which, a line each.
    std::replace(says.begin(), says.end(), '\n', ' ');
    return Status(
        ClassOf(code) == Abi::kTruncated ? StatusCode::kInvalidArgument : StatusCode::kUnavailable,
        std::string(what) + ": " + says);
  }
  Status StatusOf(const char* what, int code) {
    return code == abi::kSuccess ? OkStatus() : Error(what, code);
  }
  StatusOr<Request> Started(const char* what, int code, Handle request) {
    if (code != abi::kSuccess) return Error(what, code);
    return As<Request>(request);
  }
  static Status TooLong(size_t size) {
    return Status(StatusCode::kInvalidArgument,
                  "a message of " + std::to_string(size) + " bytes is too long for MPI");
  }

  abi::Functions<Abi> mpi_{};
  const Handle world_;
  const Handle self_;
  const Handle byte_;
  const Handle errors_return_;
};

template <typename Abi>
StatusOr<std::unique_ptr<Calls>> BindTo(void* handle, const std::string& path) {
  Symbols symbols(handle, path);
  std::unique_ptr<Calls> bound = std::make_unique<Bound<Abi>>(&symbols);
  if (!symbols.status().ok()) return symbols.status();
  return bound;
}

}  // namespace

StatusOr<std::unique_ptr<Calls>> Bind(Flavour flavour, void* handle, const std::string& path) {
  switch (flavour) {
    case Flavour::kStandard:
      return BindTo<abi::Standard>(handle, path);
    case Flavour::kOpenMpi:
      return BindTo<abi::OpenMpi>(handle, path);
    case Flavour::kMpich:
      return BindTo<abi::Mpich>(handle, path);
  }
  return Status(StatusCode::kInternal, "no such binary interface of MPI");
}

}  // namespace ar_grpc::mpi
