// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A libibverbs that counts, for AR_IBVERBS_LIB: it is linked with the real one, whose functions are
// found through it, and has an ibv_open_device of its own, which wraps what the opened context is
// called by for each request, and an ibv_reg_mr. What it counts is what the device is told,
// whatever the fabric says of itself.
//
// counting_verbs_write(path) writes all so far, as JSON; a program calls it by dlopen of the same
// path.

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "third_party/ar_grpc/fabric/verbs/abi.h"

namespace {

namespace abi = ar_grpc::fabric::verbs::abi;

constexpr size_t kMostMoves = size_t{1} << 20;
// Of a SEND (fabric/verbs/stream_frame.h): version, kind, credits, and the payload's bytes.
constexpr size_t kFrameHeader = 8;
constexpr uint8_t kFrameData = 1;
constexpr size_t kHttp2Header = 9;
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kSettings = 4;

// What one end of a connection sends as gRPC's byte stream: HTTP/2, or a measurement's bytes.
class Http2 {
 public:
  // Counts the frames that begin in `bytes`, by type.
  void Take(std::string_view bytes, std::map<uint8_t, uint64_t>* frames) {
    while (!bytes.empty() && !foreign_) {
      if (skip_ > 0) {
        const size_t skipped = std::min<size_t>(skip_, bytes.size());
        bytes.remove_prefix(skipped);
        skip_ -= skipped;
        continue;
      }
      head_ += bytes.front();
      bytes.remove_prefix(1);
      if (first_ && kPreface.substr(0, head_.size()) == head_) {
        if (head_.size() == kPreface.size()) head_.clear();
        continue;
      }
      if (head_.size() < kHttp2Header) continue;
      const auto byte = [this](size_t at) { return static_cast<uint8_t>(head_[at]); };
      foreign_ = first_ && byte(3) != kSettings;
      if (foreign_) return;
      first_ = false;
      skip_ = uint32_t{byte(0)} << 16 | uint32_t{byte(1)} << 8 | byte(2);
      ++(*frames)[byte(3)];
      head_.clear();
    }
  }

 private:
  std::string head_;
  uint64_t skip_ = 0;
  bool first_ = true;
  bool foreign_ = false;
};

struct ByOpcode {
  uint64_t requests = 0;
  uint64_t bytes = 0;
  uint64_t inlined = 0;
  uint64_t signaled = 0;
};

// What a READ or a WRITE moves, in one piece of this process's memory.
struct Move {
  uint64_t local;
  uint64_t bytes;
  uint64_t remote;
};

// All that this process told its devices; guarded by the mutex, as requests come on any thread.
struct Counts {
  std::mutex mu;
  std::map<int, ByOpcode> requests;
  std::map<uint8_t, uint64_t> frames;  // by kind of SEND
  std::map<uint8_t, uint64_t> http2;   // by type of frame
  std::map<uint32_t, Http2> streams;   // by number of a queue pair
  std::vector<Move> reads;
  std::vector<Move> writes;
  uint64_t registrations = 0;
  uint64_t receives = 0;
  uint64_t completions = 0;
};

Counts& All() {
  static auto* const all = new Counts;  // as long as the process
  return *all;
}

// The context's own, which one driver shares between all of its contexts; two drivers at once are
// not for this library.
abi::ContextOperations real;

// The memory of a request, as the device would gather it. Only before it is posted.
std::string Gathered(const abi::SendRequest& request) {
  std::string bytes;
  for (int i = 0; i < request.count; ++i) {
    bytes.append(reinterpret_cast<const char*>(request.pieces[i].address),
                 request.pieces[i].length);
  }
  return bytes;
}

void CountSend(uint32_t pair, const abi::SendRequest& request, Counts* all) {
  const std::string bytes = Gathered(request);
  if (bytes.size() < kFrameHeader) return;
  const auto kind = static_cast<uint8_t>(bytes[1]);
  ++all->frames[kind];
  if (kind == kFrameData) {
    all->streams[pair].Take(std::string_view(bytes).substr(kFrameHeader), &all->http2);
  }
}

void Count(uint32_t pair, const abi::SendRequest& request, Counts* all) {
  ByOpcode& counted = all->requests[request.opcode];
  ++counted.requests;
  if ((request.flags & abi::kInline) != 0) ++counted.inlined;
  if ((request.flags & abi::kSignaled) != 0) ++counted.signaled;
  const bool reads = request.opcode == abi::kRdmaRead;
  std::vector<Move>& moves = reads ? all->reads : all->writes;
  uint64_t offset = 0;
  for (int i = 0; i < request.count; ++i) {
    const abi::Piece& piece = request.pieces[i];
    if ((reads || request.opcode == abi::kRdmaWrite) && moves.size() < kMostMoves) {
      moves.push_back({piece.address, piece.length, request.remote_address + offset});
    }
    offset += piece.length;
  }
  counted.bytes += offset;
  if (request.opcode == abi::kSend) CountSend(pair, request, all);
}

// Counted before it is posted: its memory is the device's from then on. What a device refuses is
// counted, too; with one that works it refuses nothing.
int PostSend(abi::QueuePair* pair, abi::SendRequest* request, abi::SendRequest** refused) {
  {
    std::lock_guard<std::mutex> lock(All().mu);
    for (const abi::SendRequest* each = request; each != nullptr; each = each->next) {
      Count(pair->number, *each, &All());
    }
  }
  return real.post_send(pair, request, refused);
}

int PostReceive(abi::QueuePair* pair, abi::ReceiveRequest* request, abi::ReceiveRequest** refused) {
  {
    std::lock_guard<std::mutex> lock(All().mu);
    for (const abi::ReceiveRequest* each = request; each != nullptr; each = each->next) {
      ++All().receives;
    }
  }
  return real.post_recv(pair, request, refused);
}

int Poll(abi::CompletionQueue* queue, int count, abi::WorkCompletion* completions) {
  const int taken = real.poll_cq(queue, count, completions);
  if (taken > 0) {
    std::lock_guard<std::mutex> lock(All().mu);
    All().completions += static_cast<uint64_t>(taken);
  }
  return taken;
}

template <typename Key>
void Write(std::FILE* file, const char* name, const std::map<Key, uint64_t>& counts) {
  std::fprintf(file, ",\"%s\":{", name);
  const char* comma = "";
  for (const auto& [key, count] : counts) {
    std::fprintf(file, "%s\"%d\":%ju", comma, static_cast<int>(key), static_cast<uintmax_t>(count));
    comma = ",";
  }
  std::fputc('}', file);
}

void Write(std::FILE* file, const char* name, const std::vector<Move>& moves) {
  std::fprintf(file, ",\"%s\":[", name);
  const char* comma = "";
  for (const Move& move : moves) {
    std::fprintf(file, "%s[%ju,%ju,%ju]", comma, static_cast<uintmax_t>(move.local),
                 static_cast<uintmax_t>(move.bytes), static_cast<uintmax_t>(move.remote));
    comma = ",";
  }
  std::fputc(']', file);
}

void WriteAll(std::FILE* file, const Counts& all) {
  std::fprintf(file, "{\"receives\":%ju,\"completions\":%ju,\"registrations\":%ju,\"requests\":{",
               static_cast<uintmax_t>(all.receives), static_cast<uintmax_t>(all.completions),
               static_cast<uintmax_t>(all.registrations));
  const char* comma = "";
  for (const auto& [opcode, counted] : all.requests) {
    std::fprintf(file, "%s\"%d\":{\"requests\":%ju,\"bytes\":%ju,\"inline\":%ju,\"signaled\":%ju}",
                 comma, opcode, static_cast<uintmax_t>(counted.requests),
                 static_cast<uintmax_t>(counted.bytes), static_cast<uintmax_t>(counted.inlined),
                 static_cast<uintmax_t>(counted.signaled));
    comma = ",";
  }
  std::fputc('}', file);
  Write(file, "frames", all.frames);
  Write(file, "http2", all.http2);
  Write(file, "reads", all.reads);
  Write(file, "writes", all.writes);
  std::fputs("}\n", file);
}

// The function of libibverbs itself; null where there is none.
template <typename Function>
Function Real(const char* name) {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr
                            : reinterpret_cast<Function>(dlvsym(library, name, "IBVERBS_1.1"));
}

}  // namespace

extern "C" {

// An errno value; 0: all is in the file.
int counting_verbs_write(const char* path) {
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return errno;
  {
    std::lock_guard<std::mutex> lock(All().mu);
    WriteAll(file, All());
  }
  return std::fclose(file) == 0 ? 0 : errno;
}

abi::MemoryRegion* ibv_reg_mr(abi::ProtectionDomain* domain, void* address, size_t length,
                              int access) {
  static const auto reg_mr = Real<decltype(&ibv_reg_mr)>("ibv_reg_mr");
  if (reg_mr == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  {
    std::lock_guard<std::mutex> lock(All().mu);
    ++All().registrations;
  }
  return reg_mr(domain, address, length, access);
}

abi::Context* ibv_open_device(abi::Device* device) {
  static const auto open = Real<decltype(&ibv_open_device)>("ibv_open_device");
  if (open == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  abi::Context* const context = open(device);
  if (context == nullptr) return nullptr;
  if (context->operations.post_send != PostSend) {
    std::lock_guard<std::mutex> lock(All().mu);
    real = context->operations;
  }
  context->operations.post_send = PostSend;
  context->operations.post_recv = PostReceive;
  context->operations.poll_cq = Poll;
  return context;
}

}  // extern "C"
