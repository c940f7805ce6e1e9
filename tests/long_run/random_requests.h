// Requests drawn from a seed for a tiny model: prompts that begin alike, several pictures, several answers,
// pictures that keep some of their tokens, and harm that befalls some of them.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/load.h"
#include "engine/request.h"
#include "engine/sampling.h"

namespace triptych::test {

/// What befalls a request.
enum class Harm {
  kNone,
  kCancelledByCallback,  // which says at a token that it wants no more
  kCancelled,            // by Engine::cancel, between two steps
  kCallbackThrows,
  kTowerThrows,
  kForwardThrows,
  kBadLogits,  // not a number, behind its prompt
  kDeadline,
};

struct RandomRequest {
  std::vector<std::int32_t> ids;  // placeholders once a picture
  std::vector<int> pictures;      // which, of kPictures
  ImageTokenOptions image_tokens;
  SamplingParams params;
  std::string salt;
  QueueOptions queue;
  Harm harm = Harm::kNone;
  int harm_at = 0;  // token or step
};

// Ids of the tiny Qwen2-VL: what stands for a picture, and tokens that no ordinary prompt has.
inline constexpr std::int32_t kPictureId = 20;
inline constexpr std::int32_t kForwardThrowsId = 30;
inline constexpr std::int32_t kBadLogitsId = 31;
inline constexpr int kPictures = 12;
/// The tower throws for pictures from here on.
inline constexpr int kBadPicture = 1000;

RandomRequest random_request(std::mt19937_64& random);
/// As LoadedModel::prepare would make it. Without pixels where `has_rows` says that they are at hand.
PreparedRequest prepare(const LoadedModel& model, const RandomRequest& request,
                        const LoadedModel::HasRows& has_rows = {});

/// Below `n`.
inline int below(std::mt19937_64& random, int n) {
  return static_cast<int>(random() % static_cast<unsigned>(n));
}
/// One in `n`.
inline bool one_in(std::mt19937_64& random, int n) { return below(random, n) == 0; }

}  // namespace triptych::test
