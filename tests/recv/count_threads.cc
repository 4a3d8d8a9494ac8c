// Preloaded, it counts the threads that the process starts.

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

static std::atomic<long> started{0};

extern "C" {

long threads_started() { return started.load(); }

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  static const auto next =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  ++started;
  return next(thread, attributes, run, argument);
}
}
