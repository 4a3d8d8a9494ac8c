// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_VERBS_SAME_ABI_H_
#define TESTS_VERBS_SAME_ABI_H_

#include <cstddef>
#include <type_traits>

// How what we declare of a library is compared with its own header, by static assertions. `abi` is
// ours, for the includer to name.

#define SAME_SIZE(ours, theirs) static_assert(sizeof(abi::ours) == sizeof(theirs), #ours)
#define SAME_PLACE(ours, our_member, theirs, their_member)                                       \
  static_assert(offsetof(abi::ours, our_member) == offsetof(theirs, their_member), #our_member); \
  static_assert(sizeof(abi::ours::our_member) == sizeof(theirs::their_member), #our_member)
#define SAME_NUMBER(ours, theirs) static_assert(static_cast<int>(abi::ours) == (theirs), #ours)

// Arguments and results that are as wide, and pointers where those are.
template <typename Ours, typename Theirs>
constexpr bool SameWord() {
  if constexpr (std::is_void_v<Ours> || std::is_void_v<Theirs>) {
    return std::is_void_v<Ours> && std::is_void_v<Theirs>;
  } else {
    return sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
  }
}
template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename Our, typename... Ours, typename Their, typename... Theirs>
struct SameCall<Our (*)(Ours...), Their (*)(Theirs...)> {
  static constexpr bool Same() {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
      return SameWord<Our, Their>() && (SameWord<Ours, Theirs>() && ...);
    } else {
      return false;
    }
  }
  static constexpr bool value = Same();
};
#define SAME_CALL(library, ours, theirs)                                                   \
  static_assert(                                                                           \
      SameCall<decltype(ar_grpc::fabric::verbs::library::ours), decltype(&theirs)>::value, \
      #theirs)

#endif  // TESTS_VERBS_SAME_ABI_H_
