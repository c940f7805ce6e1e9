// Pictures fetched from other hosts, as strangers name them: only from hosts that are allowed, only from
// addresses of the public internet, with limits of time, bytes and redirects.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/ip_address.h"

namespace triptych::server {

struct FetchRules {
  std::vector<std::string> domains = {};                   // see fetch_url.h; empty: nothing is fetched
  std::chrono::milliseconds timeout{10'000};               // of all pictures of a request, redirects included
  std::uint64_t max_bytes = std::uint64_t{64} << 20;       // of them together
  std::uint64_t max_all_bytes = std::uint64_t{512} << 20;  // of all requests at once
  int max_redirects = 3;                                   // of a picture
  std::string ca_file = {};  // certificates that are trusted (PEM); empty: those of the system
  // The addresses of a host, and whether one may be asked; for tests.
  std::function<std::vector<IpAddress>(const std::string& host)> resolve = resolve_host;
  std::function<bool(const IpAddress&)> is_allowed = is_public_address;
};

inline constexpr const char* kPlaceNotAllowed =
    "this server does not read pictures from there; send the picture as a data URL";

class MediaFetcher {
 public:
  /// Throws Error(kInvalidArgument) for rules that cannot be kept: a domain or ca_file that is none.
  explicit MediaFetcher(FetchRules rules);
  ~MediaFetcher();
  MediaFetcher(const MediaFetcher&) = delete;
  MediaFetcher& operator=(const MediaFetcher&) = delete;

  bool enabled() const noexcept { return !rules_.domains.empty(); }

  /// What the pictures of one request may still take. It gives its bytes back when it ends.
  class Budget {
   public:
    /// `is_cancelled` is asked every tenth of a second; may be empty.
    Budget(const MediaFetcher& fetcher, std::function<bool()> is_cancelled);
    ~Budget();
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;

   private:
    friend class MediaFetcher;
    const MediaFetcher& fetcher_;
    const std::function<bool()> is_cancelled_;
    const std::chrono::steady_clock::time_point end_;
    std::uint64_t n_bytes_ = 0;
  };
  /// The body behind a URL, whatever its type says it is. Waits; any thread. Each hop is looked at: its URL,
  /// its host, and every address that the host has, of which one that was looked at is connected to. Throws
  /// ApiError naming `param`: 400, 413 over max_bytes, 499 when cancelled, 503 over max_all_bytes.
  std::string fetch(std::string_view url, const std::string& param, Budget& budget) const;

 private:
  struct Job;
  class Stream;
  struct Answer;
  struct Tls;
  static Answer read_answer(const Job& job, Stream& stream);
  FetchRules rules_;
  std::unique_ptr<Tls> tls_;
  mutable std::atomic<std::uint64_t> n_held_bytes_{0};
};

}  // namespace triptych::server
