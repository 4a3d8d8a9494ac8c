// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/node.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "third_party/ar_grpc/base/os.h"

namespace ar_grpc::protocol {
namespace {

// Tickets that wait for a call to one server, at most; the oldest are forgotten, and what they hold
// goes with the server's last link.
constexpr size_t kMostUntold = 4096;
// For a server that is not connected: longer than one that has retired the connection holds what it
// offered. Any other holds nothing.
constexpr std::chrono::seconds kUntoldKept = kAwayAfterRetirement + std::chrono::seconds(10);

bool IsRetired(const Link& link) { return link.retires_after().count() > 0 && link.closed(); }

// Guarded by ForkSafeMutex(); never destroyed, as nodes end while the process does.
std::vector<std::weak_ptr<Node>>& NodeTable() {
  static auto* const table = new std::vector<std::weak_ptr<Node>>;
  return *table;
}

}  // namespace

std::shared_ptr<Node> Node::Create(Options options) {
  std::shared_ptr<Node> node(new Node(std::move(options)));
  std::lock_guard<std::mutex> lock(ForkSafeMutex());
  std::vector<std::weak_ptr<Node>>& table = NodeTable();
  table.erase(std::remove_if(table.begin(), table.end(),
                             [](const std::weak_ptr<Node>& one) { return one.expired(); }),
              table.end());
  table.push_back(node);
  return node;
}

std::vector<std::shared_ptr<Node>> AllNodes() {
  std::vector<std::shared_ptr<Node>> nodes;
  std::lock_guard<std::mutex> lock(ForkSafeMutex());
  for (const std::weak_ptr<Node>& one : NodeTable()) {
    std::shared_ptr<Node> node = one.lock();
    if (node != nullptr && node->fork_count_ == ForkCount()) nodes.push_back(std::move(node));
  }
  return nodes;
}

Node::Node(Options options)
    : options_(std::move(options)), id_(NewToken()), fork_count_(ForkCount()) {}

bool Node::Allows(const std::string& fabric) const {
  return std::find(options_.fabrics.begin(), options_.fabrics.end(), fabric) !=
         options_.fabrics.end();
}

void Node::AddLink(std::shared_ptr<Link> link) {
  if (options_.exports != nullptr) options_.exports->Prepare(*link);
  // Whoever finds the link can offer to its peer.
  const bool serves = link->end() == End::kServer;
  if (serves) offers_.AddLink(link->peer());
  std::vector<uint64_t> untold;
  std::vector<std::shared_ptr<Link>> retired;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (serves) {
      // A peer that was away is back. This process's own connection to it says nothing of that.
      for (const std::shared_ptr<Link>& one : links_) {
        if (one->peer() == link->peer() && IsRetired(*one)) retired.push_back(one);
      }
    } else {
      paths_[link->address()] = {link->fabric(), link->far_us()};
      const auto found = untold_.find(link->peer());
      if (found != untold_.end()) {
        untold = std::move(found->second.tickets);
        untold_.erase(found);
      }
    }
    links_.push_back(link);
    has_had_links_.store(true);
  }
  // Only now that the peer has another, so that nothing that is offered to it is let go.
  for (const std::shared_ptr<Link>& one : retired) RemoveLink(one);
  TellOverAnotherLink(link->peer(), std::move(untold));
}

void Node::TellOverAnotherLink(const NodeId& server, std::vector<uint64_t> tickets) {
  if (tickets.empty()) return;
  if (const std::shared_ptr<Link> link = LinkToTell(server)) {
    tickets.erase(std::remove_if(tickets.begin(), tickets.end(),
                                 [&](uint64_t ticket) { return link->PostRelease(ticket); }),
                  tickets.end());
  }
  if (!tickets.empty()) KeepUntold(server, tickets);
}

void Node::KeepUntold(const NodeId& server, const std::vector<uint64_t>& tickets) {
  std::lock_guard<std::mutex> lock(mu_);
  Untold& untold = untold_[server];
  untold.since = std::chrono::steady_clock::now();
  std::vector<uint64_t>& waiting = untold.tickets;
  waiting.insert(waiting.end(), tickets.begin(), tickets.end());
  if (waiting.size() > kMostUntold) waiting.erase(waiting.begin(), waiting.end() - kMostUntold);
  for (auto each = untold_.begin(); each != untold_.end();) {
    const bool over = untold.since - each->second.since > kUntoldKept;
    each = over && !ConnectedLocked(each->first) ? untold_.erase(each) : std::next(each);
  }
}

bool Node::ConnectedLocked(const NodeId& server) const {
  return std::any_of(links_.begin(), links_.end(), [&](const std::shared_ptr<Link>& link) {
    return link->end() == End::kClient && link->peer() == server;
  });
}

void Node::LinkRetired(const std::shared_ptr<Link>& link) {
  link->Close();
  std::unique_lock<std::mutex> lock(mu_);
  const bool back = std::any_of(links_.begin(), links_.end(), [&](const auto& one) {
    return one->end() == End::kServer && one->peer() == link->peer() && !one->closed();
  });
  lock.unlock();
  if (back) RemoveLink(link);
}

void Node::RemoveLink(const std::shared_ptr<Link>& link) {
  {
    std::unique_lock<std::mutex> lock(mu_);
    const auto found = std::find(links_.begin(), links_.end(), link);
    if (found == links_.end()) {
      lock.unlock();
      return link->Close();
    }
    links_.erase(found);
    if (link->connection() != nullptr) {
      counters_.stream_bytes_sent += link->connection()->stream_bytes_sent();
      counters_.stream_bytes_received += link->connection()->stream_bytes_received();
    }
  }
  if (link->end() == End::kServer) {
    // Only now: until the peer cannot read over the link any more, the memory must keep its
    // contents. Where the peer maps it, it sees that the link is closed, and looks after its copy.
    // The link is not kept by this, as it owns the connection that runs it.
    return link->Close([self = shared_from_this(), peer = link->peer()] {
      const std::vector<Offers::Held> dropped = self->offers_.RemoveLink(peer);
    });
  }
  link->Close();
  TellOverAnotherLink(link->peer(), link->TakeUnconfirmedReleases());
}

std::vector<uint64_t> Node::TakeUntold(const NodeId& server, size_t most) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = untold_.find(server);
  if (found == untold_.end()) return {};
  std::vector<uint64_t>& waiting = found->second.tickets;
  const auto end = waiting.begin() + static_cast<std::ptrdiff_t>(std::min(most, waiting.size()));
  std::vector<uint64_t> taken(waiting.begin(), end);
  waiting.erase(waiting.begin(), end);
  if (waiting.empty()) untold_.erase(found);
  return taken;
}

template <typename Fits>
std::shared_ptr<Link> Node::Oldest(End end, const NodeId& peer, Fits fits) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found =
      std::find_if(links_.begin(), links_.end(), [&](const std::shared_ptr<Link>& link) {
        return link->end() == end && link->peer() == peer && fits(*link) && !link->closed();
      });
  return found == links_.end() ? nullptr : *found;
}

std::shared_ptr<Link> Node::LinkToRead(const NodeId& server, const LinkId& id) {
  return Oldest(End::kClient, server,
                [&](const Link& link) { return link.can_get() && link.id() == id; });
}

std::shared_ptr<Link> Node::LinkToTell(const NodeId& server) {
  return Oldest(End::kClient, server, [](const Link& link) { return link.carries_stream(); });
}

std::shared_ptr<Link> Node::LinkReadBy(const NodeId& client) {
  return Oldest(End::kServer, client, [](const Link& link) { return link.can_get(); });
}

Status Node::TakeMessages(Link* link, size_t most, std::vector<Offers::Held>* released,
                          size_t* taken) {
  std::vector<uint64_t> tickets;
  const Status status = link->TakeMessages(most, &tickets);
  *taken = tickets.size();
  for (const uint64_t ticket : tickets) {
    Offers::Held held = offers_.Release(link->peer(), ticket);
    if (held.keep != nullptr) released->push_back(std::move(held));
  }
  return status;
}

std::map<std::string, Node::Path> Node::Paths() {
  std::lock_guard<std::mutex> lock(mu_);
  return paths_;
}

Counters Node::Count() {
  const uint64_t offers_open = offers_.open();
  std::lock_guard<std::mutex> lock(mu_);
  Counters counters = counters_;
  for (const std::shared_ptr<Link>& link : links_) {
    if (link->connection() == nullptr) continue;
    counters.stream_bytes_sent += link->connection()->stream_bytes_sent();
    counters.stream_bytes_received += link->connection()->stream_bytes_received();
  }
  counters.offers_open = offers_open;
  counters.links = static_cast<uint64_t>(std::count_if(
      links_.begin(), links_.end(), [](const auto& link) { return !IsRetired(*link); }));
  return counters;
}

void Node::CountRendezvous(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  ++counters_.rendezvous;
  counters_.rendezvous_bytes += bytes;
}

void Node::CountChunked(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  counters_.chunk_bytes += bytes;
}

void Node::CountStaged(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  counters_.staged_bytes += bytes;
}

}  // namespace ar_grpc::protocol
