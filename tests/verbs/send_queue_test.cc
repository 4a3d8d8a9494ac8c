// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What a queue pair is told, against a device that is a list of requests.

#include "third_party/ar_grpc/fabric/verbs/send_queue.h"

#include <map>
#include <random>

#include "tests/verbs/pair.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

using Request = SendQueue::Request;

std::shared_ptr<Operation> Of(uint64_t size) {
  auto operation = std::make_shared<Operation>();
  operation->size = size;
  return operation;
}

Status Broken(const std::string& what) { return Status(StatusCode::kUnavailable, what); }

std::deque<Request> PostAll(SendQueue* queue) {
  std::deque<Request> posted;
  while (const auto request = queue->Next()) {
    queue->Posted(*request);
    posted.push_back(*request);
  }
  return posted;
}

Operations EndFront(SendQueue* queue, std::deque<Request>* posted, const Status& status) {
  Operations ended;
  const auto taken = queue->TakeOut(posted->front().id);
  Check(taken.size() == 1 && taken[0].offset == posted->front().offset, "another request");
  posted->pop_front();
  queue->End(taken[0], status, &ended);
  return ended;
}

void LongOnesAreCut() {
  constexpr uint64_t kMost = uint64_t{1} << 30;
  constexpr uint64_t kSize = 5 * kMost + 1;
  SendQueue queue(4, kMost);
  const auto operation = Of(kSize);
  queue.Add(operation);
  auto posted = PostAll(&queue);
  Check(posted.size() == 4, "not as many as there are places");
  uint64_t next = 0;
  while (!posted.empty()) {
    Check(posted.front().offset == next && posted.front().size <= kMost, "another part");
    next += posted.front().size;
    const bool last = next == kSize;
    Check(EndFront(&queue, &posted, Status()).size() == (last ? 1 : 0), "ended at the wrong time");
    for (Request& request : PostAll(&queue)) posted.push_back(std::move(request));
  }
  Check(next == kSize && !queue.busy(), "not all of it");
  CheckCode(operation->status, StatusCode::kOk);
}

void StopsInTheMiddle() {
  SendQueue queue(2, 10);
  const auto whole = Of(10);
  const auto half = Of(20);
  const auto later = Of(5);
  for (const auto& operation : {whole, half, later}) queue.Add(operation);
  auto posted = PostAll(&queue);
  Operations ended;
  queue.Stop(Broken("closed"), &ended);
  Check(ended == Operations{later}, "what has requests outstanding has ended");
  Check(!queue.Next().has_value(), "more to post after the stop");
  Check(EndFront(&queue, &posted, Status()) == Operations{whole}, "the first one");
  Check(EndFront(&queue, &posted, Status()) == Operations{half}, "the second one");
  CheckCode(whole->status, StatusCode::kOk);
  // All that was posted of it came, but not all of it was posted.
  CheckCode(half->status, StatusCode::kUnavailable, "closed");
  CheckCode(later->status, StatusCode::kUnavailable, "closed");
}

void TheFirstErrorCounts() {
  SendQueue queue(8, 10);
  const auto operation = Of(30);
  queue.Add(operation);
  auto posted = PostAll(&queue);
  Operations ended;
  Check(EndFront(&queue, &posted, Status()).empty(), "ended early");
  queue.Stop(Broken("stopped"), &ended);
  Check(EndFront(&queue, &posted, Broken("first")).empty(), "ended early");
  Check(EndFront(&queue, &posted, Broken("flushed")).size() == 1, "has not ended");
  CheckCode(operation->status, StatusCode::kUnavailable, "first");
}

void AnsweredOutOfOrder() {
  SendQueue queue(8, 10);
  queue.Add(Of(30));
  const auto posted = PostAll(&queue);
  Check(queue.TakeOut(posted[1].id).empty(), "the second before the first");
  Check(queue.TakeOut(0).empty(), "one that nobody posted");
  Check(queue.TakeOut(posted[0].id).size() == 1, "the first is lost");
}

// Frames pass operations that wait, count for no place, and one answer is for all before it.
void FramesBetweenOperations() {
  SendQueue queue(1, 10);
  queue.Add(Of(20));
  queue.Next()->operation->opcode = abi::kRdmaWrite;
  auto posted = PostAll(&queue);
  Check(posted.size() == 1, "more than there are places");
  for (const uint32_t buffer : {5, 6, 7}) {
    const Request frame = queue.NextFrame(buffer, 100, buffer == 7);
    posted.push_back(frame);
    queue.Posted(frame);
  }
  Check(queue.busy() && queue.has_frames(), "a part and three frames are with the device");
  Check(queue.TakeOut(posted[3].id).empty(), "past a part that is not answered");
  Check(EndFront(&queue, &posted, Status()).empty(), "the first half");
  Check(!queue.busy(), "frames do not count");
  const auto frames = queue.TakeOut(posted[2].id);
  Check(frames.size() == 3 && frames[0].buffer == 5 && frames[2].buffer == 7, "all three");
  Check(!queue.has_frames(), "frames are left");
  const Request unanswered = queue.NextFrame(9, 100, false);
  queue.Posted(unanswered);
  posted = PostAll(&queue);
  Check(posted.size() == 1 && posted[0].offset == 10, "the other half");
  const auto both = queue.TakeOut(posted[0].id);
  Check(both.size() == 2 && both[0].buffer == 9 && both[1].operation, "the frame and the part");
}

// Soft-iWARP answers what it sends while READs that were posted before are under way.
void ReadsArePassed() {
  SendQueue queue(8, 10);
  queue.Add(Of(20));
  auto posted = PostAll(&queue);
  for (const uint32_t buffer : {5, 6, 7}) {
    const Request frame = queue.NextFrame(buffer, 100, buffer != 5);
    posted.push_back(frame);
    queue.Posted(frame);
  }
  queue.Add(Of(10));
  queue.Next()->operation->opcode = abi::kRdmaWrite;
  for (Request& request : PostAll(&queue)) posted.push_back(std::move(request));
  Check(queue.TakeOut(posted[3].id).size() == 2, "an unanswered frame and the answered one");
  Check(queue.TakeOut(posted[5].id).empty(), "a WRITE past a frame");
  Check(queue.TakeOut(posted[1].id).empty(), "a READ past a READ");
  Check(queue.TakeOut(posted[4].id).size() == 1 && !queue.has_frames(), "the last frame");
  Check(queue.TakeOut(posted[5].id).size() == 1 && queue.busy(), "a WRITE past READs");
  queue.Posted(queue.NextFrame(8, 100, true));
  queue.Add(Of(10));
  const Request last = PostAll(&queue).front();
  Check(queue.TakeOut(posted[0].id).size() == 1, "the first READ");
  Check(queue.TakeOut(posted[1].id).size() == 1, "the second READ");
  Check(queue.TakeOut(last.id).empty() && queue.busy(), "a READ past a frame");
}

// Many queues with as many ends: each operation ends once, with its bytes posted once and in order.
void AtRandom() {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const size_t places = 1 + random() % 5;
    SendQueue queue(places, 1 + random() % 20);
    std::map<Operation*, uint64_t> posted_bytes;
    std::map<Operation*, int> ends;
    Operations all;
    Operations ended;
    std::deque<Request> posted;
    const int stop_at = static_cast<int>(random() % 80);
    for (int step = 0; step < stop_at; ++step) {
      if (random() % 3 == 0) {
        all.push_back(Of(1 + random() % 60));
        queue.Add(all.back());
      }
      for (Request& request : PostAll(&queue)) {
        Check(request.offset == posted_bytes[request.operation.get()], "a gap");
        posted_bytes[request.operation.get()] += request.size;
        posted.push_back(std::move(request));
      }
      Check(posted.size() <= places, "more than there are places");
      if (posted.empty() || random() % 2 == 0) continue;
      for (auto& one : EndFront(&queue, &posted, Status())) ended.push_back(std::move(one));
    }
    queue.Stop(Broken("stopped"), &ended);
    while (!posted.empty() && random() % 4 != 0) {
      for (auto& one : EndFront(&queue, &posted, Status())) ended.push_back(std::move(one));
    }
    queue.Abandon(&ended);
    Check(!queue.busy(), "still busy");
    for (const auto& operation : ended) ++ends[operation.get()];
    for (const auto& operation : all) {
      Check(ends[operation.get()] == 1, "an operation ended not once");
      const bool whole = posted_bytes[operation.get()] == operation->size;
      Check(whole || !operation->status.ok(), "a part is taken for the whole");
    }
  }
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  LongOnesAreCut();
  StopsInTheMiddle();
  TheFirstErrorCounts();
  AnsweredOutOfOrder();
  FramesBetweenOperations();
  ReadsArePassed();
  AtRandom();
  std::puts("ok send queue");
}
