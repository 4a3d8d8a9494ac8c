// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Which way a tensor takes: the tables from modelled figures, the envelope's properties, and what
// is measured, also where the machine is busy or refuses threads.

#include "third_party/ar_grpc/protocol/cost_model.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/common/refuse_threads.h"
#include "tests/conformance/forwarding.h"
#include "tests/conformance/hostile.h"
#include "tests/units/expect.h"
#include "third_party/ar_grpc/base/thread.h"
#include "third_party/ar_grpc/fabric/loopback/loopback.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/protocol/measure.h"

namespace {
std::vector<int>* strangers = nullptr;
}  // namespace

// Others who connect to whatever listens on TCP, before its owner can.
extern "C" int listen(int fd, int backlog) {
  using Listen = int (*)(int, int);
  static const Listen real = reinterpret_cast<Listen>(dlsym(RTLD_NEXT, "listen"));
  const int result = real(fd, backlog);
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (result != 0 || !strangers || getsockname(fd, plain, &size) != 0 ||
      address.sin_family != AF_INET) {
    return result;
  }
  for (int i = 0; i < 2 * backlog + 8; ++i) {
    const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    (void)connect(stranger, plain, size);
    strangers->push_back(stranger);
  }
  return result;
}

namespace {

using namespace ar_grpc;            // NOLINT
using namespace ar_grpc::protocol;  // NOLINT

void ExpectText(const std::string& got, const std::string& wanted, int line) {
  if (got == wanted) return;
  std::fprintf(stderr, "line %d: got\n%swanted\n%s", line, got.c_str(), wanted.c_str());
  ++failures;
}
#define EXPECT_TEXT(got, wanted) ExpectText(got, wanted, __LINE__)

constexpr bool kBoth[] = {false, true};
constexpr Nature kCopiesInline = {true};

// --- tables ---

void GoldenTables() {
  const SchemeTable shm = SchemeTable::Make(AssumedShm());
  EXPECT_TEXT(shm.Print(true, true),
              "       0 B .. 16.52 KiB   eager                    5.4 us\n"
              " 16.52 KiB .. any size    rendezvous               7.7 us\n");
  EXPECT_TEXT(shm.Print(true, false),
              "       0 B .. 55.9 KiB    eager                    5.4 us\n"
              "  55.9 KiB .. any size    staged rendezvous       13.3 us\n");
  EXPECT_TEXT(shm.Print(false, false),
              "       0 B .. 2 GiB       eager                    5.4 us\n"
              "     2 GiB .. any size    chunked rendezvous  290872.5 us\n");
  const SchemeTable verbs = SchemeTable::Make(AssumedVerbs());
  EXPECT_TEXT(verbs.Print(true, true),
              "       0 B .. 33.53 KiB   eager                    6.0 us\n"
              " 33.53 KiB .. any size    rendezvous              10.4 us\n");
  // To register memory for it takes longer than to copy it twice more.
  for (const bool can_read : kBoth) {
    EXPECT_TEXT(verbs.Print(can_read, !can_read),
                "       0 B .. 2 GiB       eager                    6.0 us\n"
                "     2 GiB .. any size    chunked rendezvous  238361.9 us\n");
  }
  const SchemeTable tcp = SchemeTable::Make(AssumedTcp());
  EXPECT_TEXT(tcp.Print(false, false),
              "       0 B .. 2 GiB       eager                   12.3 us\n"
              "     2 GiB .. any size    chunked rendezvous  392919.0 us\n");
  const std::vector<Row>& rows = tcp.rows(false, false);
  EXPECT(rows.size() == 2 && rows[1].first == kEagerLimit + 1);
}

// To another building, and to the next room.
void FarIsWhatTcpTakesMoreThanWithinTheHost() {
  EXPECT(FarUs(20, 20) == 0 && FarUs(10, 20) == 0 && FarUs(531, 20) == 0);
  EXPECT(FarUs(532, 20) == 512 && FarUs(50020, 20) == 50000 && FarUs(1e12, 20) == kMostFarUs);
  EXPECT(FarUs(std::numeric_limits<double>::quiet_NaN(), 20) == 0);
}

void GoldenTablesOfAFarPeer() {
  Figures verbs = AssumedVerbs();
  verbs.far_us = 1024;
  // What the stream's credits hold needs no second round trip.
  const SchemeTable far = SchemeTable::Make(verbs);
  EXPECT_TEXT(far.Print(true, true),
              "       0 B .. 128 KiB     eager                    6.0 us\n"
              "   128 KiB .. any size    rendezvous            1038.3 us\n");
  EXPECT_TEXT(far.Print(true, false),
              "       0 B .. 131 KiB     eager                    6.0 us\n"
              "   131 KiB .. any size    staged rendezvous     1066.0 us\n");
  // As long as nothing is ahead that needs the credits.
  const auto choose = [&](uint64_t bytes, uint64_t ahead) {
    return far.Choose({bytes, true, true, ahead});
  };
  const uint64_t credit = verbs.credit_bytes;
  EXPECT(choose(16 << 10, 0) == Scheme::kEager && choose(credit, 0) == Scheme::kEager);
  EXPECT(choose(16 << 10, credit - (16 << 10)) == Scheme::kEager);
  EXPECT(choose(16 << 10, credit) == Scheme::kRead && choose(credit, 1) == Scheme::kRead);
  EXPECT(choose(kDescriptorBytes + 1, credit) == Scheme::kRead);
  // Its descriptor would wait as long.
  EXPECT(choose(kDescriptorBytes, 2 * credit) == Scheme::kEager);
  EXPECT(far.Choose({1, false, false, 2 * credit}) == Scheme::kEager);
  // A stream that is limited by the wire does not wait for credits.
  verbs.send.bytes_per_us = 100;
  const Situation large{1 << 20, true, true};
  const double slow = ModelOf(Scheme::kEager).Cost(large, verbs);
  verbs.credit_bytes = uint64_t{1} << 62;
  EXPECT(slow == ModelOf(Scheme::kEager).Cost(large, verbs));
  // More chunks than the credits carry would only wait.
  verbs = AssumedVerbs();
  verbs.far_us = 32768;
  EXPECT(PlanChunks(verbs).bytes == kPartBytes && PlanChunks(verbs).in_flight == 2);
  verbs.credit_bytes = uint64_t{1} << 62;
  EXPECT(PlanChunks(verbs).bytes == kLargestChunkBytes && PlanChunks(verbs).in_flight == 8);
  // What is far is asked for in larger operations, and in more.
  Figures quick = AssumedVerbs();
  quick.get.start_us = quick.get.operation_us = 0;
  quick.wake_us = 0.1;
  const auto parts = [&](double far_us) {
    quick.far_us = far_us;
    return PlanReads(quick);
  };
  EXPECT(parts(0).bytes == kPartBytes && parts(0).in_flight == kFewestInFlight);
  EXPECT(parts(16).bytes == kPartBytes && parts(16).in_flight == 4);
  EXPECT(parts(1024).bytes == uint64_t{4} << 20 && parts(1024).in_flight == 8);
  EXPECT(parts(50000).bytes == kLargestPartBytes && parts(50000).in_flight == 8);
}

void ModelsAreNamedAndPossible() {
  const std::map<Scheme, std::string> names = {{Scheme::kEager, "eager"},
                                               {Scheme::kRead, "rendezvous"},
                                               {Scheme::kStagedRead, "staged rendezvous"},
                                               {Scheme::kChunked, "chunked rendezvous"}};
  EXPECT(AllSchemes().size() == names.size());
  for (const auto& [scheme, name] : names) EXPECT(ModelOf(scheme).name() == name);
  EXPECT(ModelOf(Scheme::kEager).Possible({kEagerLimit, false, false}));
  EXPECT(!ModelOf(Scheme::kEager).Possible({kEagerLimit + 1, true, true}));
  EXPECT(!ModelOf(Scheme::kRead).Possible({1, true, false}));
  EXPECT(!ModelOf(Scheme::kRead).Possible({1, false, true}));
  EXPECT(ModelOf(Scheme::kStagedRead).Possible({1, true, false}));
  EXPECT(!ModelOf(Scheme::kStagedRead).Possible({1, false, true}));
  EXPECT(ModelOf(Scheme::kChunked).Possible({uint64_t{1} << 50, false, false}));
}

// Each kind of work shows in what it is part of.
void CostsAreMadeOfTheirParts() {
  const Situation large{uint64_t{2} << 20, true, true};
  const auto cost = [&](Scheme scheme, const Figures& figures) {
    return ModelOf(scheme).Cost(large, figures);
  };
  const Figures figures = AssumedShm();
  Figures helped = figures;
  helped.parallel_bytes_per_us.fill(figures.get.bytes_per_us);
  EXPECT(cost(Scheme::kRead, figures) < cost(Scheme::kRead, helped));
  EXPECT(cost(Scheme::kEager, figures) == cost(Scheme::kEager, helped));
  // One that has less than a MiB to itself would be woken for nothing.
  EXPECT(CopiersFor(0) == 1 && CopiersFor((2 << 20) - 1) == 1 && CopiersFor(2 << 20) == 2);
  EXPECT(CopiersFor(uint64_t{1} << 40) == kMaxCopiers);
  const Situation small{(uint64_t{2} << 20) - 1, true, true};
  EXPECT(ModelOf(Scheme::kRead).Cost(small, figures) == ModelOf(Scheme::kRead).Cost(small, helped));
  // One thread that measures both ends finds in its cache what it has written; two cores do not. So
  // it pays to copy a large tensor to where it can be read.
  Figures warm = figures;
  warm.copy_bytes_per_us = warm.get.bytes_per_us = 11700;
  warm.parallel_bytes_per_us = {11700, 20000, 20000, 20000};
  warm.send.bytes_per_us = 24400;
  warm.receive.bytes_per_us = 30600;
  for (const uint64_t mib : {4, 16, 1024}) {
    EXPECT(SchemeTable::Make(warm).Choose({mib << 20, true, false}) == Scheme::kStagedRead);
  }
  // Without a second core both ends work one after the other.
  Figures one_core = figures;
  one_core.window_bytes = uint64_t{1} << 62;
  EXPECT(cost(Scheme::kEager, figures) < cost(Scheme::kEager, one_core));
  EXPECT(cost(Scheme::kRead, figures) == cost(Scheme::kRead, one_core));
  Figures pinned = figures;
  pinned.registration = {16, 0, 1000};
  EXPECT(cost(Scheme::kStagedRead, figures) < cost(Scheme::kStagedRead, pinned));
  EXPECT(cost(Scheme::kRead, figures) == cost(Scheme::kRead, pinned));
}

// --- the envelope ---

double Drawn(std::mt19937_64* random, double least, double most) {
  return std::exp(std::uniform_real_distribution<double>(std::log(least), std::log(most))(*random));
}

Figures DrawnFigures(std::mt19937_64* random) {
  Figures figures;
  const auto stage = [&](double slowest) {
    return Stage{Drawn(random, 0.01, 100), Drawn(random, 0.001, 10), Drawn(random, slowest, 1e5)};
  };
  figures.send = stage(20);
  figures.receive = stage(20);
  figures.get = stage(20);
  figures.registration = stage(20);
  figures.window_bytes = static_cast<uint64_t>(Drawn(random, 1, 1e9));
  for (double& rate : figures.parallel_bytes_per_us) rate = Drawn(random, 20, 1e6);
  figures.copy_bytes_per_us = Drawn(random, 500, 1e5);
  figures.message_us = Drawn(random, 0.01, 100);
  figures.offer_us = Drawn(random, 0.01, 10);
  figures.wake_us = Drawn(random, 0.1, 500);
  figures.call_us = Drawn(random, 1, 1000);
  if ((*random)() % 2 == 0) {
    figures.far_us = Drawn(random, kLeastFarUs, kMostFarUs);
    figures.credit_bytes = static_cast<uint64_t>(Drawn(random, 1, 1e9));
  }
  return figures;
}

void TheTableIsTheLowerEnvelope() {
  std::mt19937_64 random(7);
  for (int machine = 0; machine < 100; ++machine) {
    Figures figures = DrawnFigures(&random);
    if (machine % 2 == 0) figures = Plausible(figures, {machine % 4 == 0});
    const SchemeTable table = SchemeTable::Make(figures);
    for (const bool can_read : kBoth) {
      for (const bool in_segment : kBoth) {
        const std::vector<Row>& rows = table.rows(can_read, in_segment);
        EXPECT(rows[0].first == 0);
        std::vector<uint64_t> sizes = {0, kEagerLimit, kEagerLimit + 1};
        for (size_t i = 1; i < rows.size(); ++i) {
          EXPECT(rows[i].first > rows[i - 1].first && rows[i].scheme != rows[i - 1].scheme);
          sizes.insert(sizes.end(), {rows[i].first - 1, rows[i].first, rows[i].first + 1});
        }
        for (uint64_t size = 1; size < uint64_t{1} << 40; size = size * 9 / 8 + 1) {
          sizes.push_back(size);
        }
        for (const uint64_t size : sizes) {
          const Situation situation{size, can_read, in_segment};
          const SchemeModel& chosen = ModelOf(table.Choose(situation));
          EXPECT(chosen.Possible(situation));
          const double cost = chosen.Cost(situation, figures);
          EXPECT(std::isfinite(cost) && cost > 0);
          for (const SchemeModel* const other : AllSchemes()) {
            if (!other->Possible(situation)) continue;
            // Sums in another order differ in the last digits.
            EXPECT(cost <= other->Cost(situation, figures) * (1 + 1e-12));
          }
        }
      }
    }
  }
}

class Function final : public SchemeModel {
 public:
  Function(Scheme scheme, double (*cost)(double bytes), std::vector<uint64_t> bends = {})
      : scheme_(scheme), cost_(cost), bends_(std::move(bends)) {}
  Scheme scheme() const override { return scheme_; }
  const char* name() const override { return "function"; }
  bool Possible(const Situation&) const override { return true; }
  double Cost(const Situation& situation, const Figures&) const override {
    return cost_(static_cast<double>(situation.bytes));
  }
  std::vector<uint64_t> Bends(const Figures&) const override { return bends_; }

 private:
  const Scheme scheme_;
  double (*const cost_)(double);
  const std::vector<uint64_t> bends_;
};

void TheEnvelopeIsOverAnyFunctions() {
  const auto rows = [](const std::vector<const SchemeModel*>& schemes) {
    std::string text;
    for (const Row& row : SchemeTable::Envelope(schemes, Figures(), true, true)) {
      text += std::to_string(row.first) + ":" + std::to_string(static_cast<int>(row.scheme)) + " ";
    }
    return text;
  };
  const Function line(Scheme::kEager, [](double bytes) { return 10 + bytes; });
  const Function root(Scheme::kRead, [](double bytes) { return 1000 + std::sqrt(bytes); });
  const Function square(Scheme::kChunked, [](double bytes) { return bytes * bytes; });
  // 10 + x = 1000 + sqrt(x) at 1022.0; x * x = 10 + x at 3.7.
  EXPECT(rows({&line, &root, &square}) == "0:3 4:0 1022:1 ");
  // Equals: the first of the list.
  const Function same(Scheme::kStagedRead, [](double bytes) { return 10 + bytes; });
  EXPECT(rows({&line, &same}) == "0:0 " && rows({&same, &line}) == "0:2 ");
  // A jump down and up again, far narrower than the grid: its ends are told.
  const Function dip(Scheme::kRead,
                     [](double bytes) { return bytes > 5000000 && bytes <= 5000003 ? 0 : 1e9; },
                     {5000000, 5000003});
  EXPECT(rows({&line, &dip}) == "0:0 5000001:1 5000004:0 999999991:1 ");
}

// --- what is derived ---

void ChunksFollowFromFigures() {
  const ChunkPlan tcp = PlanChunks(AssumedTcp());
  EXPECT(tcp.bytes == kLargestChunkBytes && tcp.in_flight == 2);
  // A slow wire needs no large chunks, and two are enough.
  Figures slow = AssumedTcp();
  slow.send.bytes_per_us = 10;
  EXPECT(PlanChunks(slow).bytes == uint64_t{256} << 10 && PlanChunks(slow).in_flight == 2);
  slow.send.bytes_per_us = 100;
  EXPECT(PlanChunks(slow).bytes == uint64_t{1} << 20 && PlanChunks(slow).in_flight == 2);
  slow.call_us = 0;
  EXPECT(PlanChunks(slow).bytes == uint64_t{256} << 10);
  // A long and fast one needs more of them on the way.
  Figures far = AssumedTcp();
  far.wake_us = 2500;
  EXPECT(PlanChunks(far).bytes == kLargestChunkBytes && PlanChunks(far).in_flight == 6);
  far.wake_us = 1e6;
  EXPECT(PlanChunks(far).in_flight == 8);
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const ChunkPlan plan = PlanChunks(DrawnFigures(&random));
    EXPECT(plan.bytes >= uint64_t{256} << 10 && plan.bytes <= kLargestChunkBytes);
    EXPECT((plan.bytes & (plan.bytes - 1)) == 0 && plan.in_flight >= 2 && plan.in_flight <= 8);
  }
}

void ReadsOfADeviceFollowFromFigures() {
  const ChunkPlan verbs = PlanReads(AssumedVerbs());
  EXPECT(verbs.bytes == uint64_t{8} << 20 && verbs.in_flight == 2);
  // What is slow needs no large parts.
  Figures slow = AssumedVerbs();
  slow.get.bytes_per_us = 1000;
  EXPECT(PlanReads(slow).bytes == uint64_t{512} << 10 && PlanReads(slow).in_flight == 2);
  // A long way needs more of them under way.
  Figures far = AssumedVerbs();
  far.get.start_us = 1000;
  EXPECT(PlanReads(far).bytes == uint64_t{8} << 20 && PlanReads(far).in_flight == 5);
  // And so does a copy that takes longer than the read.
  Figures copied = AssumedVerbs();
  copied.copy_bytes_per_us = 10000;
  EXPECT(PlanReads(copied).in_flight == 4);
  std::mt19937_64 random(5);
  for (int i = 0; i < 1000; ++i) {
    const ChunkPlan plan = PlanReads(DrawnFigures(&random));
    EXPECT(plan.bytes >= kPartBytes && plan.bytes <= kLargestPartBytes);
    EXPECT((plan.bytes & (plan.bytes - 1)) == 0 && plan.in_flight >= 2 && plan.in_flight <= 8);
  }
}

// Where reading becomes cheaper; 0 when that is not the only change.
uint64_t Crossing(const Figures& figures) {
  const std::vector<Row> rows = SchemeTable::Make(figures).rows(true, true);
  const bool one =
      rows.size() == 2 && rows[0].scheme == Scheme::kEager && rows[1].scheme == Scheme::kRead;
  return one ? rows[1].first : 0;
}

bool CrossingIsUsable(const Figures& figures) {
  const uint64_t crossing = Crossing(figures);
  if (crossing >= kLowestCrossing && crossing <= kHighestCrossing + 2) return true;
  std::fprintf(stderr, "reads begin at %llu\n%s", static_cast<unsigned long long>(crossing),
               SchemeTable::Make(figures).Print(true, true).c_str());
  return false;
}

void AnyFiguresGiveAUsableTable() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::mt19937_64 random(11);
  for (int machine = 0; machine < 300; ++machine) {
    const auto number = [&]() -> double {
      switch (random() % 12) {
        case 0:
          return kNan;
        case 1:
          return kInfinity;
        case 2:
          return 0;
        case 3:
          return -Drawn(&random, 1e-6, 1e9);
        default:
          return Drawn(&random, 1e-6, 1e9);
      }
    };
    const auto stage = [&] { return Stage{number(), number(), number()}; };
    Figures figures;
    figures.send = stage();
    figures.receive = stage();
    figures.get = stage();
    figures.registration = stage();
    figures.window_bytes = random() >> random() % 64;
    for (double& rate : figures.parallel_bytes_per_us) rate = number();
    figures.copy_bytes_per_us = number();
    figures.message_us = number();
    figures.offer_us = number();
    figures.wake_us = number();
    figures.call_us = number();
    EXPECT(CrossingIsUsable(Plausible(figures, kCopiesInline)));
    const Figures device = Plausible(figures, {});
    EXPECT(std::isfinite(ModelOf(Scheme::kStagedRead).Cost({1 << 20, true, true}, device)));
    EXPECT(std::isfinite(ModelOf(Scheme::kChunked).Cost({1 << 20, true, true}, device)));
  }
  // What is plausible stays as it is.
  EXPECT(SchemeTable::Make(Plausible(AssumedShm(), kCopiesInline)).Print(true, true) ==
         SchemeTable::Make(AssumedShm()).Print(true, true));
  EXPECT(SchemeTable::Make(Plausible(AssumedTcp(), {})).Print(false, false) ==
         SchemeTable::Make(AssumedTcp()).Print(false, false));
}

// Figures that nobody made plausible: still a table whose every choice is possible, and plans.
void FiguresThatAreNoNumbers() {
  for (const double value : {std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(), 0.0, -1.0, 1e300}) {
    Figures figures;
    figures.send = figures.receive = figures.get = figures.registration = {value, value, value};
    figures.parallel_bytes_per_us.fill(value);
    figures.copy_bytes_per_us = value;
    figures.message_us = figures.offer_us = figures.wake_us = figures.call_us = value;
    const SchemeTable table = SchemeTable::Make(figures);
    for (const uint64_t size :
         {uint64_t{0}, uint64_t{1} << 20, kEagerLimit, kEagerLimit + 1, uint64_t{1} << 50}) {
      for (const bool can_read : kBoth) {
        const Situation situation{size, can_read, can_read};
        EXPECT(ModelOf(table.Choose(situation)).Possible(situation));
      }
    }
    for (const ChunkPlan& plan : {PlanChunks(figures), PlanReads(figures)}) {
      EXPECT(plan.bytes >= kPartBytes && plan.bytes <= kLargestChunkBytes);
      EXPECT(plan.in_flight >= 2 && plan.in_flight <= 8);
    }
  }
}

// A measurement that went wrong holds as long as the process. What it costs is bounded: no tensor
// takes much longer by its table than by the right one.
void AWrongMeasurementCostsLittle() {
  const Figures right = AssumedShm();
  const SchemeTable best = SchemeTable::Make(right);
  std::mt19937_64 random(13);
  double most = 0;
  for (int machine = 0; machine < 200; ++machine) {
    Figures wrong = right;
    // Each up to 100 times too slow, as where every burst was interrupted.
    const auto times = [&](double* value) { *value *= Drawn(&random, 1, 100); };
    for (Stage* const stage : {&wrong.send, &wrong.receive, &wrong.get, &wrong.registration}) {
      times(&stage->start_us);
      times(&stage->operation_us);
      stage->bytes_per_us /= Drawn(&random, 1, 100);
    }
    for (double* const value : {&wrong.message_us, &wrong.offer_us, &wrong.wake_us}) times(value);
    const SchemeTable table = SchemeTable::Make(Plausible(wrong, kCopiesInline));
    for (uint64_t size = 1; size < kEagerLimit; size = size * 5 / 4 + 1) {
      const Situation situation{size, true, true};
      const double got = ModelOf(table.Choose(situation)).Cost(situation, right);
      most = std::max(most, got - ModelOf(best.Choose(situation)).Cost(situation, right));
    }
  }
  // 128 KiB twice more through the stream, less the offer that it spares.
  EXPECT(most > 0 && most < 15);
}

void TheStreamIsItsCarriers() {
  const Figures tcp = AssumedTcp();
  const Figures verbs = WithStreamOf(AssumedShm(), tcp);
  EXPECT(verbs.send.start_us == tcp.send.start_us && verbs.wake_us == tcp.wake_us);
  EXPECT(verbs.get.bytes_per_us == AssumedShm().get.bytes_per_us);
}

// --- the selector ---

void EachFabricIsMeasuredOnce() {
  std::atomic<int> measured{0};
  Selector selector([&](const std::string& fabric) {
    ++measured;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return Assumed(fabric);
  });
  EXPECT(selector.Print(true) == SchemeTable::Make(AssumedTcp()).Print(false, false));
  EXPECT(measured == 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      selector.Prepare({"shm", "tcp"});
      EXPECT(selector.Choose("shm", 0, {1 << 20, true, true}) == Scheme::kRead);
      EXPECT(selector.Choose("shm", 0, {100, true, true}) == Scheme::kEager);
      EXPECT(selector.Choose("tcp", 0, {1 << 20, false, false}) == Scheme::kEager);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(measured == 2);
  EXPECT(selector.Print(true) == SchemeTable::Make(AssumedShm()).Print(true, true));
  EXPECT(selector.Print(false) == SchemeTable::Make(AssumedShm()).Print(true, false));
  EXPECT(&selector.TableFor("shm") == &selector.TableFor("shm"));
}

void FarPeersHaveTablesOfTheirOwn() {
  using std::chrono::microseconds;
  int measured = 0;
  Selector selector([&](const std::string& fabric) {
    ++measured;
    Figures figures = Assumed(fabric);
    figures.round_trip_us = 500;  // of a slow kernel
    return figures;
  });
  EXPECT(selector.FarUs(microseconds(6000)) == 0 && measured == 0);
  selector.Prepare({"verbs"});
  EXPECT(selector.FarUs(microseconds(600)) == 0 && selector.FarUs(microseconds(1534)) == 1034);
  const SchemeTable& far = selector.TableFor("verbs", 1024);
  EXPECT(&far == &selector.TableFor("verbs", 2047) && &far != &selector.TableFor("verbs"));
  EXPECT(&far != &selector.TableFor("verbs", 2048) && far.figures().far_us == 1024);
  EXPECT(selector.FiguresOf("verbs", 1034).far_us == 1034 &&
         selector.FiguresOf("verbs").far_us == 0);
  const Situation situation{64 << 10, true, true};
  EXPECT(selector.Choose("verbs", 0, situation) == Scheme::kRead);
  EXPECT(selector.Choose("verbs", 1024, situation) == Scheme::kEager);
  EXPECT(selector.Print(true) == selector.TableFor("verbs").Print(true, true) && measured == 2);
}

// TCP remains where a fabric fails, and must not be measured then, by a thread that polls.
void WhatAFabricFallsBackToIsPrepared() {
  std::vector<std::string> measured;
  Selector selector([&](const std::string& fabric) {
    measured.push_back(fabric);
    Figures figures = Assumed(fabric);
    figures.call_us = fabric == "shm" ? 77 : 88;
    return figures;
  });
  EXPECT(selector.FiguresOf("shm").call_us == AssumedShm().call_us && measured.empty());
  selector.Prepare({"shm"});
  EXPECT((measured == std::vector<std::string>{"shm", "tcp"}));
  // To each its own.
  EXPECT(selector.FiguresOf("shm").call_us == 77 && selector.FiguresOf("tcp").call_us == 88);
  EXPECT(selector.Choose("tcp", 0, {1, false, false}) == Scheme::kEager && measured.size() == 2);
}

// --- threads ---

void AThreadBlocksSignalsAndIsWaitedFor() {
  sigset_t mask;
  sigemptyset(&mask);
  char name[16] = "";
  {
    StatusOr<Thread> thread = StartThread("a name", [&] {
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      pthread_getname_np(pthread_self(), name, sizeof(name));
    });
    EXPECT(thread.ok());
  }
  EXPECT(sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGINT) == 1);
  EXPECT(std::string(name) == "a name");
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT(sigismember(&mask, SIGTERM) == 0);
  refuse_threads = true;
  bool ran = false;
  const StatusOr<Thread> refused = StartThread("refused", [&] { ran = true; });
  refuse_threads = false;
  EXPECT(refused.status().code() == StatusCode::kResourceExhausted && !ran);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT(sigismember(&mask, SIGTERM) == 0);
}

// --- measuring ---

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The deadline is 0.3 s; what was begun then ends, however long the sanitizers and others take.
constexpr double kMostSeconds = 5;

void ShmIsUsable() {
  const Clock::time_point begin = Clock::now();
  const Figures figures = MeasuredFigures("shm");
  EXPECT(Seconds(begin) < kMostSeconds);
  EXPECT(CrossingIsUsable(figures));
}

void TcpIsUsable() {
  const Clock::time_point begin = Clock::now();
  const Figures figures = MeasuredFigures("tcp");
  EXPECT(Seconds(begin) < kMostSeconds);
  EXPECT(figures.send.start_us > 0 && figures.receive.start_us > 0 && figures.wake_us > 0);
  const std::vector<Row> rows = SchemeTable::Make(figures).rows(false, false);
  EXPECT(rows.size() == 2 && rows[1].first == kEagerLimit + 1);
}

// First of all that is measured, before there is a thread that a fabric could use.
void WithoutThreadsItIsAssumed() {
  refuse_threads = true;
  ShmIsUsable();
  TcpIsUsable();
  refuse_threads = false;
}

// Again where this machine had no time for it: the connection to itself alone takes two threads.
StatusOr<Figures> Measured(fabric::Context* context) {
  StatusOr<Figures> measured = Measure(context);
  for (int i = 0; i < 10 && measured.status().code() == StatusCode::kDeadlineExceeded; ++i) {
    measured = Measure(context);
  }
  return measured;
}

void MeasuredIsUsable() {
  for (int i = 0; i < 3; ++i) ShmIsUsable();
  TcpIsUsable();
  EXPECT(Measured(fabric::Find("shm")).ok());
  // The reactor runs by now, so a fabric can do without more threads.
  refuse_threads = true;
  ShmIsUsable();
  TcpIsUsable();
  refuse_threads = false;
}

// Its operations end later, out of order, on other threads, or not in time at all.
void ADeviceThatAnswersLater() {
  fabric::hostile::Options options;
  options.failing_percent = 0;
  options.largest_delay_us = 100;
  {
    const auto device = fabric::hostile::New(options);
    // What is assumed of an unknown fabric is 1 byte a us; the least that is plausible is 10. It
    // stays so where this machine has no time for a read within the deadline.
    Figures figures;
    for (int i = 0; i < 10 && figures.get.bytes_per_us <= 10; ++i) {
      const StatusOr<Figures> measured = Measured(device.get());
      EXPECT(measured.ok());
      if (measured.ok()) figures = *measured;
    }
    EXPECT(figures.get.bytes_per_us > 10 && figures.get.bytes_per_us < 1e5);
    EXPECT(figures.get.start_us + figures.get.operation_us > 0);
    EXPECT(figures.parallel_bytes_per_us[0] == figures.get.bytes_per_us);
    EXPECT(figures.parallel_bytes_per_us[3] >= figures.parallel_bytes_per_us[0]);
  }
  {
    // Half of them fail: what is measured is of the others.
    options.failing_percent = 50;
    const auto device = fabric::hostile::New(options);
    const StatusOr<Figures> measured = Measured(device.get());
    EXPECT(measured.ok() && std::isfinite(measured->get.start_us));
  }
  {
    options.failing_percent = 100;
    const auto device = fabric::hostile::New(options);
    const StatusOr<Figures> measured = Measured(device.get());
    EXPECT(measured.ok() && measured->get.bytes_per_us == 10 && measured->get.start_us == 0);
  }
  // One that hangs gets no more to do, and may write after the end of the measurement.
  options.failing_percent = 0;
  options.largest_delay_us = 600000;
  auto device = fabric::hostile::New(options);
  const Clock::time_point begin = Clock::now();
  EXPECT(Measure(device.get()).ok());
  EXPECT(Seconds(begin) < kMostSeconds);
  const Clock::time_point ending = Clock::now();
  device.reset();
  EXPECT(Seconds(ending) < 4);
}

// Messages and wakes are measured with the fabric's own operations: what it takes to post a message
// shows in message_us, up to its bound, and not in wake_us.
void MessagesAreTheFabricsOwn() {
  constexpr int kSlow = 150;
  constexpr int kBound = 50;
  const auto measured = [](int post_us) {
    fabric::hostile::Options options;
    options.failing_percent = options.largest_delay_us = 0;
    options.post_us = post_us;
    const auto device = fabric::hostile::New(options);
    const StatusOr<Figures> figures = Measured(device.get());
    EXPECT(figures.ok());
    return figures.ok() ? *figures : Figures();
  };
  // Again where this machine had no time for a message.
  for (int i = 0; i < 10; ++i) {
    const Figures quick = measured(0);
    const Figures slow = measured(kSlow);
    const bool seen = quick.message_us < kBound && slow.message_us >= kBound;
    if (seen && quick.wake_us < kSlow && slow.wake_us < kSlow) return;
  }
  EXPECT(!"a slow message is seen");
}

// A fabric whose first registrations are interrupted, as on a busy machine.
class SlowAtFirst final : public fabric::testing::ForwardingContext {
 public:
  SlowAtFirst() : ForwardingContext(fabric::loopback::New()) {}
  const char* name() const override { return "slow at first"; }
  StatusOr<std::shared_ptr<fabric::Registration>> Register(std::shared_ptr<memory::Segment> segment,
                                                           uint64_t offset, uint64_t size,
                                                           fabric::Access access) override {
    if (++registered_ <= kInterrupted) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return ForwardingContext::Register(std::move(segment), offset, size, access);
  }
  // Two were measured without an interruption.
  bool twice() const { return registered_ >= kInterrupted + 2; }

 private:
  static constexpr int kInterrupted = 3;
  int registered_ = 0;
};

void ARegistrationIsMeasuredMoreThanOnce() {
  Figures figures;
  figures.registration = {1000, 0, 10};
  bool in_time = false;
  for (int i = 0; i < 10 && figures.registration.bytes_per_us < 1000; ++i) {
    SlowAtFirst context;
    const StatusOr<Figures> measured = Measured(&context);
    EXPECT(measured.ok());
    if (!measured.ok() || !context.twice()) continue;
    in_time = true;
    figures = *measured;
  }
  // Where this machine never had time for a second burst, that is no fault.
  if (!in_time) return;
  EXPECT(figures.registration.start_us < 500 && figures.registration.bytes_per_us > 1000);
}

// A stranger who fills the listener's queue costs the measurement of TCP, and no more.
void StrangersDoNotHoldUpTheStart() {
  std::vector<int> fds;
  strangers = &fds;
  TcpIsUsable();
  strangers = nullptr;
  EXPECT(fds.size() >= 8);
  for (const int fd : fds) close(fd);
}

// As on a host where many servers start at once: others on the only core.
void ABusyMachineGivesAUsableTable() {
  cpu_set_t before;
  sched_getaffinity(0, sizeof(before), &before);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  sched_setaffinity(0, sizeof(one), &one);
  std::atomic<bool> over{false};
  {
    std::vector<Thread> others;
    for (int i = 0; i < 6; ++i) {
      StatusOr<Thread> other = StartThread("busy", [&] {
        while (!over.load(std::memory_order_relaxed)) {
        }
      });
      EXPECT(other.ok());
      if (other.ok()) others.push_back(std::move(*other));
    }
    for (int i = 0; i < 3; ++i) ShmIsUsable();
    TcpIsUsable();
    over = true;
  }
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace

int main() {
  GoldenTables();
  FarIsWhatTcpTakesMoreThanWithinTheHost();
  GoldenTablesOfAFarPeer();
  ModelsAreNamedAndPossible();
  CostsAreMadeOfTheirParts();
  TheTableIsTheLowerEnvelope();
  TheEnvelopeIsOverAnyFunctions();
  ChunksFollowFromFigures();
  ReadsOfADeviceFollowFromFigures();
  FiguresThatAreNoNumbers();
  AWrongMeasurementCostsLittle();
  AnyFiguresGiveAUsableTable();
  TheStreamIsItsCarriers();
  WithoutThreadsItIsAssumed();
  EachFabricIsMeasuredOnce();
  FarPeersHaveTablesOfTheirOwn();
  WhatAFabricFallsBackToIsPrepared();
  AThreadBlocksSignalsAndIsWaitedFor();
  MeasuredIsUsable();
  ADeviceThatAnswersLater();
  MessagesAreTheFabricsOwn();
  ARegistrationIsMeasuredMoreThanOnce();
  StrangersDoNotHoldUpTheStart();
  ABusyMachineGivesAUsableTable();
  return failures == 0 ? 0 : 1;
}
