// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_COMMON_REFUSE_THREADS_H_
#define TESTS_COMMON_REFUSE_THREADS_H_

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

// For a program's one source: while it is true, no thread can be started. A limit of processes does
// not bind root, so the refusal is played.
inline std::atomic<bool> refuse_threads{false};

extern "C" int pthread_create(pthread_t* id, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const Create create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return refuse_threads ? EAGAIN : create(id, attributes, start, argument);
}

#endif  // TESTS_COMMON_REFUSE_THREADS_H_
