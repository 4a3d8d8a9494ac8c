// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// One-sided access: Register, Export, Get, Put and Map.

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "tests/conformance/suite.h"

namespace ar_grpc::fabric::testing {

Shared Share(Context& context, Access access, size_t size) {
  Shared shared;
  shared.segment = Value(memory::Segment::Create(size));
  Check(shared.segment->size() >= size, "as large as asked for");
  for (size_t i = 0; i < size; ++i) shared.segment->data()[i] = Pattern(i, 7);
  shared.registration = Value(context.Register(shared.segment, 0, size, access));
  return shared;
}

void CheckCarries(const Subject& subject, Connection& from, Connection& to) {
  if (HasStream(subject)) {
    const std::string text = "alive";
    WriteAll(from, text.data(), text.size());
    Eventually("read", [&] { return Value(to.Readable()) == text.size(); });
    return;
  }
  const Shared shared = Share(*subject.context, Access::kRead, 4096);
  const Key key = Value(from.Export(shared.registration));
  uint8_t byte = 0;
  CheckOk(Get(subject, to, key, 9, &byte, 1));
  Check(byte == Pattern(9, 7), "the byte");
}

namespace {

void GetReadsWithinBounds(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  Pair pair = Attach(subject);
  const Key key = Value(pair.acceptor->Export(shared.registration));
  Check(!key.empty() && key.size() <= kLargestKey, "a key's size");
  const uint64_t size = kSegmentSize;
  std::vector<uint8_t> into(size + 1, 0xEE);
  const auto get = [&](uint64_t offset, size_t length) {
    return Get(subject, *pair.connector, key, offset, into.data(), length);
  };
  for (const auto& [offset, length] : {std::pair<uint64_t, size_t>{0, 1},
                                       {1, 4095},
                                       {4097, 100000},
                                       {0, kSegmentSize},
                                       {kSegmentSize - 1, 1}}) {
    into[length] = 0xEE;
    CheckOk(get(offset, length));
    for (size_t i = 0; i < length; ++i) Check(into[i] == Pattern(offset + i, 7), "the bytes");
    Check(into[length] == 0xEE, "no byte more");
  }
  const uint64_t got = pair.connector->get_bytes();
  Check(got == 1 + 4095 + 100000 + kSegmentSize + 1, "bytes are counted");
  CheckOk(get(0, 0));
  CheckOk(get(size, 0));
  for (const auto& [offset, length] : {std::pair<uint64_t, size_t>{size, 1},
                                       {size + 1, 0},
                                       {0, size + 1},
                                       {size - 1, 2},
                                       {UINT64_MAX, 1},
                                       {UINT64_MAX, 0},
                                       {1, SIZE_MAX},
                                       {UINT64_MAX - 1, SIZE_MAX}}) {
    CheckCode(get(offset, length), StatusCode::kInvalidArgument);
  }
  Check(pair.connector->get_bytes() == got, "what failed is not counted");
  shared.segment->data()[5] = 99;
  CheckOk(get(5, 1));
  Check(into[0] == 99, "the owner's writes show");
}

void BothEndsExport(const Subject& subject) {
  const Shared one = Share(*subject.context);
  const Shared two = Share(*subject.context);
  two.segment->data()[3] = 33;
  Pair pair = Attach(subject);
  // The connector first, which waits for nothing after that.
  const Key of_two = Value(pair.connector->Export(two.registration));
  const Key of_one = Value(pair.acceptor->Export(one.registration));
  uint8_t byte = 0;
  CheckOk(Get(subject, *pair.acceptor, of_two, 3, &byte, 1));
  Check(byte == 33, "the connector's");
  CheckOk(Get(subject, *pair.connector, of_one, 3, &byte, 1));
  Check(byte == Pattern(3, 7), "the acceptor's");
  Check(Value(pair.connector->Export(two.registration)) == of_two, "the same key again");
}

void APartIsReadWithinItsBounds(const Subject& subject) {
  const auto segment = Value(memory::Segment::Create(kSegmentSize));
  for (size_t i = 0; i < kSegmentSize; ++i) segment->data()[i] = Pattern(i, 7);
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto part = Value(subject.context->Register(segment, 3 * page, 5 * page, Access::kRead));
  Check(part->segment() == segment && part->offset() == 3 * page && part->size() == 5 * page,
        "as registered");
  Pair pair = Attach(subject);
  const Key key = Value(pair.acceptor->Export(part));
  std::vector<uint8_t> into(5 * page);
  CheckOk(Get(subject, *pair.connector, key, 0, into.data(), into.size()));
  for (size_t i = 0; i < into.size(); ++i) {
    Check(into[i] == Pattern(3 * page + i, 7), "the part's bytes");
  }
  for (const auto& [offset, length] :
       {std::pair<uint64_t, size_t>{5 * page, 1}, {1, 5 * page}, {UINT64_MAX - 3 * page + 1, 1}}) {
    CheckCode(Get(subject, *pair.connector, key, offset, into.data(), length),
              StatusCode::kInvalidArgument);
  }
}

void GetByManyThreads(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  Pair pair = Attach(subject);
  const Key key = Value(pair.connector->Export(shared.registration));
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      std::vector<uint8_t> into(60000);
      std::mt19937 random(id);
      for (int i = 0; i < 200 / kSlowdown; ++i) {
        const uint64_t offset = random() % (kSegmentSize - into.size());
        CheckOk(Get(subject, *pair.acceptor, key, offset, into.data(), into.size()));
        for (size_t at = 0; at < into.size(); ++at) {
          Check(into[at] == Pattern(offset + at, 7), "the bytes");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void AHugeGet(const Subject& subject) {
  const size_t size = size_t{64} << 20;
  const auto segment = Value(memory::Segment::Create(size));
  const auto whole = Value(subject.context->Register(segment, 0, size, Access::kRead));
  const size_t step = 4093;
  for (size_t i = 0; i < size; i += step) segment->data()[i] = Pattern(i, 3) | 1;
  Pair pair = Attach(subject);
  const Key key = Value(pair.acceptor->Export(whole));
  std::vector<uint8_t> into(size);
  CheckOk(Get(subject, *pair.connector, key, 0, into.data(), size));
  Check(std::memcmp(into.data(), segment->data(), size) == 0, "the bytes");
}

void WrongKeysAreRefused(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  Pair pair = Attach(subject);
  std::vector<uint8_t> into(100);
  const auto refused = [&](const Key& key) {
    CheckCode(Get(subject, *pair.connector, key, 0, into.data(), into.size()),
              StatusCode::kInvalidArgument);
    Check(!pair.connector->closed(), "the connection lives on");
  };
  refused("");
  refused("x");
  refused(std::string(24, '\0'));
  refused(std::string(24, '\xff'));
  refused(std::string(kLargestKey, 'k'));
  refused(std::string(100000, 'k'));
  const Key key = Value(pair.acceptor->Export(shared.registration));
  for (size_t size = 0; size < key.size(); ++size) refused(key.substr(0, size));
  refused(key + "x");
  // A flipped bit never reads memory that was not given.
  for (size_t i = 0; i < key.size() * 8; ++i) {
    Key flipped = key;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << i % 8));
    static_cast<void>(GetNow(*pair.connector, flipped, 0, into.data(), into.size()).ok());
  }
  CheckOk(Get(subject, *pair.connector, key, 0, into.data(), into.size()));
  // A key counts for the connection over which it was exported, and for the other end of it.
  Pair other = Attach(subject);
  CheckCode(Get(subject, *other.connector, key, 0, into.data(), 1), StatusCode::kInvalidArgument);
  CheckCode(Get(subject, *pair.acceptor, key, 0, into.data(), 1), StatusCode::kInvalidArgument);
}

void AKeyEndsWithItsRegistration(const Subject& subject) {
  Shared shared = Share(*subject.context);
  Pair pair = Attach(subject);
  const Key key = Value(pair.acceptor->Export(shared.registration));
  uint8_t byte = 0;
  CheckOk(Get(subject, *pair.connector, key, 1000, &byte, 1));
  shared.registration.reset();
  if (subject.keys_end) {
    CheckCode(Get(subject, *pair.connector, key, 1000, &byte, 1), subject.refusal);
    Check(pair.connector->closed() == subject.refusal_breaks, "whether the connection lives on");
    if (subject.refusal_breaks) pair = Attach(subject);
    const auto again = Value(subject.context->Register(shared.segment, 0, 4096, Access::kRead));
    const Key fresh = Value(pair.acceptor->Export(again));
    CheckOk(Get(subject, *pair.connector, fresh, 1000, &byte, 1));
    CheckCode(Get(subject, *pair.connector, key, 1000, &byte, 1), StatusCode::kInvalidArgument);
  } else {
    // Where peers map the memory they keep it, also when its owner has let go of it.
    shared.segment.reset();
    CheckOk(Get(subject, *pair.connector, key, 1000, &byte, 1));
  }
  Check(byte == Pattern(1000, 7), "the byte");
}

void ASegmentOutlivesItsOwnersHandle(const Subject& subject) {
  Shared shared = Share(*subject.context);
  Pair pair = Attach(subject);
  const Key key = Value(pair.acceptor->Export(shared.registration));
  shared.segment.reset();
  uint8_t byte = 0;  // Valgrind does not see what a device writes
  CheckOk(Get(subject, *pair.connector, key, 1000, &byte, 1));
  Check(byte == Pattern(1000, 7), "the registration holds it");
}

void DiscardedPagesReadAsZeros(const Subject& subject) {
  Shared shared = Share(*subject.context);
  const memory::Segment& segment = *shared.segment;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  Pair pair = Attach(subject);
  Key key = Value(pair.acceptor->Export(shared.registration));
  std::vector<uint8_t> into(4 * page);
  CheckOk(Get(subject, *pair.connector, key, 0, into.data(), into.size()));
  // Who pins pages must let go of them first.
  shared.registration.reset();
  CheckOk(shared.segment->Discard(page, 2 * page));
  shared.registration =
      Value(subject.context->Register(shared.segment, 0, kSegmentSize, Access::kRead));
  key = Value(pair.acceptor->Export(shared.registration));
  CheckOk(Get(subject, *pair.connector, key, 0, into.data(), into.size()));
  for (size_t i = 0; i < into.size(); ++i) {
    const bool zero = i >= page && i < 3 * page;
    Check(into[i] == (zero ? 0 : Pattern(i, 7)) && segment.data()[i] == into[i], "zeros or kept");
  }
  segment.data()[page] = 3;
  CheckOk(Get(subject, *pair.connector, key, page, into.data(), 1));
  Check(into[0] == 3, "the pages can be used again");
}

void RegisterRefusesNonsense(const Subject& subject) {
  Context& context = *subject.context;
  const auto segment = Value(memory::Segment::Create(4096));
  const uint64_t size = segment->size();
  CheckCode(context.Register(nullptr, 0, 1, Access::kRead).status(), StatusCode::kInvalidArgument);
  for (const auto& [offset, length] : {std::pair<uint64_t, uint64_t>{0, 0},
                                       {0, size + 1},
                                       {size, 1},
                                       {size - 1, 2},
                                       {1, UINT64_MAX},
                                       {UINT64_MAX, 1},
                                       {UINT64_MAX - 1, 4}}) {
    CheckCode(context.Register(segment, offset, length, Access::kRead).status(),
              StatusCode::kInvalidArgument);
  }
  Pair pair = Attach(subject);
  CheckCode(pair.acceptor->Export(nullptr).status(), StatusCode::kInvalidArgument);
  if (subject.other != subject.context) {
    const Shared foreign = Share(*subject.other);
    CheckCode(pair.acceptor->Export(foreign.registration).status(), StatusCode::kInvalidArgument);
  }
}

void PutWritesWhereItMay(const Subject& subject) {
  Pair pair = Attach(subject);
  const std::vector<uint8_t> from(5000, 0x42);
  if (!subject.context->capabilities().put) {
    Check(!pair.connector->capabilities().put, "nor do its connections");
    const auto segment = Value(memory::Segment::Create(4096));
    CheckCode(subject.context->Register(segment, 0, 1, Access::kWrite).status(),
              StatusCode::kUnimplemented);
    CheckCode(PutNow(*pair.connector, "", 0, from.data(), 1), StatusCode::kUnimplemented);
    return;
  }
  const Shared shared = Share(*subject.context, Access::kWrite);
  const Key key = Value(pair.acceptor->Export(shared.registration));
  CheckOk(Put(subject, *pair.connector, key, 1000, from.data(), from.size()));
  for (size_t i = 0; i < kSegmentSize; ++i) {
    const bool put = i >= 1000 && i < 6000;
    Check(shared.segment->data()[i] == (put ? 0x42 : Pattern(i, 7)), "these bytes and no others");
  }
  CheckOk(Put(subject, *pair.connector, key, kSegmentSize, from.data(), 0));
  for (const auto& [offset, length] : {std::pair<uint64_t, size_t>{kSegmentSize, 1},
                                       {kSegmentSize - 1, 2},
                                       {UINT64_MAX, 1},
                                       {UINT64_MAX - 1, 4}}) {
    CheckCode(Put(subject, *pair.connector, key, offset, from.data(), length),
              StatusCode::kInvalidArgument);
  }
  const Shared read_only = Share(*subject.context);
  const Key reading = Value(pair.acceptor->Export(read_only.registration));
  CheckCode(Put(subject, *pair.connector, reading, 0, from.data(), 1),
            StatusCode::kInvalidArgument);
  Check(read_only.segment->data()[0] == Pattern(0, 7), "as before");
}

void MapReadsInPlace(const Subject& subject) {
  Shared shared = Share(*subject.context);
  Pair pair = Attach(subject);
  const Key key = Value(pair.acceptor->Export(shared.registration));
  if (!subject.context->capabilities().map) {
    Check(!pair.connector->capabilities().map, "nor do its connections");
    CheckCode(pair.connector->Map(key, 0, 1).status(), StatusCode::kUnimplemented);
    return;
  }
  Lease lease = Value(pair.connector->Map(key, 1000, 5000));
  Check(lease.size == 5000, "the size");
  for (size_t i = 0; i < 5000; ++i) Check(lease.data.get()[i] == Pattern(1000 + i, 7), "the bytes");
  shared.segment->data()[1001] = 123;
  Check(static_cast<const volatile uint8_t*>(lease.data.get())[1] == 123, "in place");
  for (const auto& [offset, length] :
       {std::pair<uint64_t, size_t>{kSegmentSize, 1}, {kSegmentSize - 1, 2}, {UINT64_MAX, 1}}) {
    CheckCode(pair.connector->Map(key, offset, length).status(), StatusCode::kInvalidArgument);
  }
  CheckCode(pair.connector->Map("", 0, 1).status(), StatusCode::kInvalidArgument);
  pair = Pair();
  shared = Shared();
  Check(lease.data.get()[0] == Pattern(1000, 7), "a lease outlives all else");
}

void AGetHoldsWhatItIsGiven(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  Pair pair = Attach(subject);
  const Key key = Value(pair.acceptor->Export(shared.registration));
  for (int i = 0; i < 50; ++i) {
    auto target = std::make_shared<std::vector<uint8_t>>(10000);
    const std::weak_ptr<std::vector<uint8_t>> held = target;
    uint8_t* const into = target->data();
    Ended ended;
    std::atomic<bool> done{false};
    const std::thread::id caller = std::this_thread::get_id();
    const bool inlined = pair.connector->capabilities().inline_get;
    pair.connector->Get(key, 0, into, 10000, std::move(target),
                        [&, end = ended.done()](Status status) {
                          if (inlined) {
                            Check(std::this_thread::get_id() == caller, "the calling thread");
                          }
                          done = true;
                          end(std::move(status));
                        });
    if (inlined) Check(done, "over when the call returns");
    const Status status = ended.Wait();
    if (!subject.flaky) CheckOk(status);
    Eventually("let go", [&] { return held.expired(); });
  }
}

// That the suite meets what it is to bear: targets that a failed Get has written in part.
void AFlakySubjectFailsHalfWay(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  Pair pair = Attach(subject);
  const Key key = Value(pair.acceptor->Export(shared.registration));
  int failed = 0;
  for (int i = 0; i < 1000 && failed == 0; ++i) {
    std::vector<uint8_t> into(1000, 0xEE);
    const Status status = GetNow(*pair.connector, key, 0, into.data(), into.size());
    if (status.ok()) continue;
    CheckCode(status, StatusCode::kUnavailable);
    ++failed;
    Check(into[0] == Pattern(0, 7) && into[999] == 0xEE, "written in part");
  }
  Check(failed > 0, "none failed");
}

void CapabilitiesAreTheContexts(const Subject& subject) {
  Pair pair = Attach(subject);
  const Capabilities all = subject.context->capabilities();
  for (const auto* end : {&pair.connector, &pair.acceptor}) {
    const Capabilities can = (*end)->capabilities();
    Check(can.stream == all.stream && can.get == all.get && can.put == all.put &&
              can.map == all.map && can.inline_get == all.inline_get,
          "a connection can what its context says");
    (*end)->Progress();
  }
}

}  // namespace

std::vector<Case> MemoryCases(const Subject& subject) {
  return CasesOf(subject,
                 {
                     {"capabilities are the context's", CapabilitiesAreTheContexts},
                     {"get reads within bounds", GetReadsWithinBounds},
                     {"both ends export", BothEndsExport},
                     {"a part is read within its bounds", APartIsReadWithinItsBounds},
                     {"get by many threads", GetByManyThreads},
                     {"a huge get", AHugeGet},
                     {"wrong keys are refused", WrongKeysAreRefused},
                     {"a key ends with its registration", AKeyEndsWithItsRegistration},
                     {"a segment outlives its owner's handle", ASegmentOutlivesItsOwnersHandle},
                     {"discarded pages read as zeros", DiscardedPagesReadAsZeros},
                     {"register refuses nonsense", RegisterRefusesNonsense},
                     {"put writes where it may", PutWritesWhereItMay},
                     {"map reads in place", MapReadsInPlace},
                     {"a get holds what it is given", AGetHoldsWhatItIsGiven},
                     {"a flaky subject fails half-way", AFlakySubjectFailsHalfWay, subject.flaky},
                 });
}

}  // namespace ar_grpc::fabric::testing
