// Preloaded into a server, it holds a collective's receive where its cancel can be lost: the call
// is known to whom may cancel it, and has not yet said how that is done.

#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>

#define LIBRARY "libtensorflow_cc.so.2"
#define SET_CANCEL_CALLBACK "_ZN3tsl11CallOptions17SetCancelCallbackESt8functionIFvvEE"
#define RECV_FROM_PEER                                                                     \
  "_ZN10tensorflow33CollectiveRemoteAccessDistributed12RecvFromPeerERKNSt7__cxx1112basic_" \
  "stringIcSt11char_traitsIcESaIcEEES8_bS8_PNS_6DeviceEPNS_13DeviceContextERKN3tsl19"      \
  "AllocatorAttributesEPNS_6TensorERKNS_14DeviceLocalityEiPNSD_19CancellationManagerERKSt" \
  "8functionIFvRKN4absl12lts_202301256StatusEEE"
#define TENSOR_DATA "_ZNK10tensorflow6Tensor11tensor_dataEv"

namespace {

// As a std::string_view is returned.
struct Bytes {
  unsigned long size;
  const char* data;
};

std::atomic<int> hold_ms{0};
std::atomic<const void*> destination{nullptr};
thread_local bool receives = false;

template <typename Function>
Function Real(const char* name) {
  void* const library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) abort();
  return reinterpret_cast<Function>(found);
}

}  // namespace

extern "C" {

void hold_receives(int milliseconds) { hold_ms = milliseconds; }
// Where the bytes of the last receive that was held belong.
const void* held_destination() { return destination; }

// What is passed by reference, or as std::function is, comes as a pointer.
void SetCancelCallback(void* options, void* cancel) __asm__(SET_CANCEL_CALLBACK);
void RecvFromPeer(void* access, const void* device, const void* task, bool local, const void* key,
                  void* to_device, void* context, const void* attributes, const void* tensor,
                  const void* locality, int stream, void* cancels,
                  const void* done) __asm__(RECV_FROM_PEER);

void SetCancelCallback(void* options, void* cancel) {
  static const auto real = Real<decltype(&SetCancelCallback)>(SET_CANCEL_CALLBACK);
  // A receive may set two, one after the other: its own, and its call's.
  if (const int ms = receives ? hold_ms.exchange(0) : 0; ms > 0) {
    const timespec held = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&held, nullptr);
  }
  real(options, cancel);
}

void RecvFromPeer(void* access, const void* device, const void* task, bool local, const void* key,
                  void* to_device, void* context, const void* attributes, const void* tensor,
                  const void* locality, int stream, void* cancels, const void* done) {
  static const auto real = Real<decltype(&RecvFromPeer)>(RECV_FROM_PEER);
  static const auto data = Real<Bytes (*)(const void*)>(TENSOR_DATA);
  if (hold_ms > 0) destination = data(tensor).data;
  receives = true;
  real(access, device, task, local, key, to_device, context, attributes, tensor, locality, stream,
       cancels, done);
  receives = false;
}
}
