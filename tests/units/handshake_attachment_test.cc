// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What attachments tell a handshake: who is told what, also when it comes late.

#include "third_party/ar_grpc/grpc/handshake_attachment.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/fabric/loopback/loopback.h"

namespace {

using namespace ar_grpc;  // NOLINT
using ar_grpc::fabric::testing::Check;
using ar_grpc::fabric::testing::CheckCode;
using ar_grpc::fabric::testing::CheckOk;
using News = HandshakeAttachment::News;

// Its attachments do nothing: the test runs their events, also after they are destroyed, as a
// fabric may whose event was under way.
class ScriptedContext : public fabric::Context {
 public:
  const char* name() const override { return "scripted"; }
  fabric::Capabilities capabilities() const override { return {}; }
  Status Available() override { return OkStatus(); }
  StatusOr<std::string> Brochure() override { return std::string(); }
  Status Reaches(const std::string&) override { return OkStatus(); }
  StatusOr<std::shared_ptr<fabric::Registration>> Register(std::shared_ptr<memory::Segment>,
                                                           uint64_t, uint64_t,
                                                           fabric::Access) override {
    return Status(StatusCode::kUnimplemented, "no memory");
  }
  StatusOr<std::unique_ptr<fabric::Attachment>> Accept(fabric::AttachEvents events) override {
    return Begin(std::move(events));
  }
  StatusOr<std::unique_ptr<fabric::Attachment>> Connect(fabric::AttachEvents events) override {
    return Begin(std::move(events));
  }

  std::vector<fabric::AttachEvents> begun;
  std::vector<std::string> frames;
  Status refuses;

 private:
  class Idle : public fabric::Attachment {
   public:
    explicit Idle(ScriptedContext* context) : context_(context) {}
    void TakeFrame(const std::string& frame) override { context_->frames.push_back(frame); }

   private:
    ScriptedContext* const context_;
  };

  StatusOr<std::unique_ptr<fabric::Attachment>> Begin(fabric::AttachEvents events) {
    if (!refuses.ok()) return refuses;
    begun.push_back(std::move(events));
    return std::unique_ptr<fabric::Attachment>(std::make_unique<Idle>(this));
  }
};

// Not by ConnectToSelf, whose last event may close a descriptor a little later.
std::unique_ptr<fabric::Connection> NewConnection() {
  return fabric::testing::Attach(fabric::loopback::Get()).connector;
}

int Descriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

struct Waker {
  int woken = 0;
  std::function<std::function<void()>()> Prepare() {
    return [this] { return [this] { ++woken; }; };
  }
};

void WhatAnAttachmentSays() {
  ScriptedContext context;
  Waker waker;
  HandshakeAttachment attachment(protocol::End::kServer, waker.Prepare());
  CheckOk(attachment.Begin(&context, 7));
  attachment.TakeFrame(7, "for it");
  attachment.TakeFrame(8, "for another");
  Check(context.frames == std::vector<std::string>{"for it"}, "frames of its attempt");
  context.begun[0].send("one");
  context.begun[0].done(NewConnection());
  context.begun[0].send("after the end");
  Check(waker.woken == 1, "woken once");
  const std::vector<News> all = attachment.Take();
  Check(all.size() == 3 && all[0].frame == "one" && !all[0].ended, "in their order");
  Check(all[1].ended && all[1].status.ok() && all[1].attempt == 7, "its end");
  Check(all[2].frame == "after the end", "frames until it is given up");
  attachment.Woken();
  context.begun[0].send("again");
  Check(waker.woken == 2 && attachment.Take().size() == 1, "and woken again");
  const std::unique_ptr<fabric::Connection> connection = attachment.TakeConnection();
  const int wake = attachment.TakeWake();
  Check(connection != nullptr && wake >= 0 && wake != connection->wake_fd(), "a duplicate");
  Check(attachment.TakeWake() == -1 && attachment.TakeConnection() == nullptr, "once");
  close(wake);
}

// Attempts are counted anew on a fresh connection: the first of both has the number 1.
void WhatComesLateIsNotTheNextOnes() {
  ScriptedContext context;
  Waker waker;
  HandshakeAttachment attachment(protocol::End::kClient, waker.Prepare());
  CheckOk(attachment.Begin(&context, 1));
  attachment.GiveUp();
  CheckOk(attachment.Begin(&context, 1));
  const int before = Descriptors();
  context.begun[0].send("late");
  context.begun[0].done(NewConnection());
  Check(attachment.Take().empty(), "of one that was given up");
  Check(attachment.TakeConnection() == nullptr && attachment.TakeWake() == -1, "no connection");
  context.begun[1].done(Status(StatusCode::kUnavailable, "its own"));
  const std::vector<News> all = attachment.Take();
  Check(all.size() == 1 && all[0].attempt == 1, "its own end");
  CheckCode(all[0].status, StatusCode::kUnavailable, "its own");
  Check(Descriptors() == before, "what came late is closed");
}

void WhatIsLeftIsClosed() {
  ScriptedContext context;
  Waker waker;
  const int before = Descriptors();
  for (const bool taken : {false, true}) {
    HandshakeAttachment attachment(protocol::End::kServer, waker.Prepare());
    CheckOk(attachment.Begin(&context, 1));
    // An attachment ends once; one that does not must not cost a descriptor either.
    context.begun.back().done(NewConnection());
    context.begun.back().done(NewConnection());
    if (taken) Check(attachment.Take().size() == 2, "two ends");
    Check(Descriptors() > before, "a connection");
    attachment.Close();
    const int woken = waker.woken;
    context.begun.back().done(NewConnection());
    Check(waker.woken == woken && attachment.Take().empty(), "nothing comes after the end");
  }
  context.begun.clear();
  Check(Descriptors() == before, "all is closed");
}

// The peer is told of no connection that the endpoint could not use.
void NoDescriptorForTheEndpoint() {
  const int before = Descriptors();
  {
    ScriptedContext context;
    Waker waker;
    HandshakeAttachment attachment(protocol::End::kServer, waker.Prepare());
    CheckOk(attachment.Begin(&context, 1));
    std::unique_ptr<fabric::Connection> connection = NewConnection();
    const int lowest_free = dup(STDIN_FILENO);
    close(lowest_free);
    rlimit limit{};
    Check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    const rlimit none = {static_cast<rlim_t>(lowest_free), limit.rlim_max};
    Check(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
    context.begun[0].done(std::move(connection));
    const std::vector<News> all = attachment.Take();
    Check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    Check(all.size() == 1 && all[0].ended, "its end");
    CheckCode(all[0].status, StatusCode::kResourceExhausted, "ulimit -n");
    Check(attachment.TakeConnection() == nullptr && attachment.TakeWake() == -1, "no connection");
  }
  Check(Descriptors() == before, "nothing is left");
}

void ThatCannotBegin() {
  ScriptedContext context;
  Waker waker;
  HandshakeAttachment attachment(protocol::End::kClient, waker.Prepare());
  CheckCode(attachment.Begin(nullptr, 1), StatusCode::kNotFound, "does not have it");
  context.refuses = Status(StatusCode::kResourceExhausted, "full");
  CheckCode(attachment.Begin(&context, 1), StatusCode::kResourceExhausted, "full");
  attachment.TakeFrame(1, "for nobody");
  Check(attachment.Take().empty() && context.frames.empty(), "nothing is under way");
}

}  // namespace

int main() {
  fabric::testing::RunAll("handshake attachment",
                          {{"what it says", WhatAnAttachmentSays},
                           {"what comes late", WhatComesLateIsNotTheNextOnes},
                           {"what is left", WhatIsLeftIsClosed},
                           {"without a descriptor", NoDescriptorForTheEndpoint},
                           {"that cannot begin", ThatCannotBegin}});
  return 0;
}
