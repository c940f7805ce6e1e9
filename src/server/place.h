// A request's place among those that wait and run, from the moment it is let in to the end of its answer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "server/generation.h"
#include "server/key_usage.h"

namespace triptych::server {

class Place : public std::enable_shared_from_this<Place> {
 public:
  using Count = std::shared_ptr<std::atomic<std::size_t>>;
  /// `count` has been raised for it, and its key has begun, if it has one; both end with the place.
  Place(Count count, std::shared_ptr<KeyUsage> usage, std::optional<std::size_t> key)
      : count_(std::move(count)), usage_(std::move(usage)), key_(key) {}
  ~Place() { end(0); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  /// Keeps the place until all answers have ended, and counts their tokens: before the client hears of the
  /// end, so that the next request finds them counted.
  Generation::OnResults on_results() {
    return [self = shared_from_this()](const std::vector<GenerationResult>& results) {
      std::int64_t n_tokens = 0;
      for (const GenerationResult& result : results)
        n_tokens += result.n_prompt_tokens + static_cast<std::int64_t>(result.token_ids.size());
      self->end(n_tokens);
    };
  }

 private:
  void end(std::int64_t n_tokens) {
    if (ended_.exchange(true)) return;
    count_->fetch_sub(1);
    if (key_) usage_->end(*key_, n_tokens);
  }

  const Count count_;
  const std::shared_ptr<KeyUsage> usage_;
  const std::optional<std::size_t> key_;
  std::atomic<bool> ended_{false};
};

}  // namespace triptych::server
